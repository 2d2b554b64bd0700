//! Throughput as bars, drawn by hand: readable on light and on dark pages, with no text outside the picture.

use std::fmt::Write;

use super::report::{Line, Report, conditions};

const WIDTH: f64 = 960.0;
const MARGIN: f64 = 16.0;
/// Room for the names.
const NAMES: f64 = 300.0;
/// Room for the figures behind the bars.
const FIGURES: f64 = 120.0;
const BAR: f64 = 20.0;
const ROW: f64 = 32.0;
const HEAD: f64 = 60.0;

/// Colours that stand out on white and on black; where a page says that it is dark, lighter ones.
const STYLE: &str = "text{font:14px system-ui,sans-serif;fill:#57606a}.title{font-weight:600}\
    .small{font-size:11px}.ours{fill:#1f7a4d}.hand{fill:#8c959f}.spread{stroke:#57606a;stroke-width:1.5}\
    @media(prefers-color-scheme:dark){text{fill:#c9d1d9}.ours{fill:#3fb97a}.hand{fill:#6e7681}.spread{stroke:#c9d1d9}}";

pub(super) fn bars(report: &Report) -> String {
    let height = HEAD + ROW * report.variants.len() as f64 + MARGIN;
    let most = report.variants.iter().map(|line| line.fastest).fold(1.0, f64::max);
    let scale = (WIDTH - 2.0 * MARGIN - NAMES - FIGURES) / most;
    let mut svg = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">
<title>Messages per second</title>
<style>{STYLE}</style>
<text class="title" x="{MARGIN}" y="24">Messages per second, median of the rounds; the line spans slowest to fastest</text>
<text class="small" x="{MARGIN}" y="42">{}</text>
"#,
        escape(&conditions(&report.server))
    );
    for (row, line) in report.variants.iter().enumerate() {
        bar(&mut svg, line, HEAD + ROW * row as f64, scale);
    }
    svg + "</svg>\n"
}

fn bar(svg: &mut String, line: &Line, top: f64, scale: f64) {
    let (left, middle) = (MARGIN + NAMES, top + BAR / 2.0);
    let (end, from, to) = (line.messages_per_second * scale, left + line.slowest * scale, left + line.fastest * scale);
    let class = if line.variant.is_ours() { "ours" } else { "hand" };
    // Writing to a string does not fail.
    let _ = writeln!(
        svg,
        r#"<text x="{:.1}" y="{:.1}" text-anchor="end">{}</text><rect class="{class}" x="{left:.1}" y="{top:.1}" width="{:.1}" height="{BAR}" rx="2"/><line class="spread" x1="{from:.1}" x2="{to:.1}" y1="{middle:.1}" y2="{middle:.1}"/><text x="{:.1}" y="{:.1}">{}</text>"#,
        left - 8.0,
        middle + 5.0,
        escape(&line.name),
        end.max(1.0),
        to.max(left + end) + 8.0,
        middle + 5.0,
        grouped(line.messages_per_second),
    );
}

/// 123,456.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::grouped;

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(
            [grouped(7.4), grouped(999.0), grouped(1_000.0), grouped(1_234_567.0)],
            ["7", "999", "1,000", "1,234,567"]
        );
    }
}
