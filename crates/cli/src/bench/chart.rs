//! Throughput as bars, drawn by hand: readable on light and on dark pages, with no text outside the picture.

use std::fmt::Write;

/// One bar.
#[derive(Clone, Debug)]
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) is_ours: bool,
    /// The median.
    pub(super) rate: f64,
    pub(super) slowest: f64,
    pub(super) fastest: f64,
}

const WIDTH: f64 = 960.0;
const MARGIN: f64 = 16.0;
/// Room for the names.
const NAMES: f64 = 300.0;
/// Room for the figures behind the bars.
const FIGURES: f64 = 120.0;
const BAR: f64 = 20.0;
const ROW: f64 = 32.0;
/// Room for the title and for what the figures depend on.
const HEAD: f64 = 80.0;
/// Letters in a line of small print.
const SMALL_PRINT: usize = 120;

/// Colours that stand out on white and on black; where a page says that it is dark, lighter ones.
const STYLE: &str = "text{font:14px system-ui,sans-serif;fill:#6e7781}.title{font-weight:600}\
    .small{font-size:11px}.ours{fill:#1f7a4d}.hand{fill:#8c959f}.spread{stroke:#57606a;stroke-width:1.5}\
    @media(prefers-color-scheme:dark){text{fill:#c9d1d9}.ours{fill:#3fb97a}.hand{fill:#6e7681}.spread{stroke:#c9d1d9}}";

/// `title` says what is counted, `conditions` what the figures depend on.
pub(super) fn bars(title: &str, conditions: &str, bars: &[Bar]) -> String {
    let height = HEAD + ROW * bars.len() as f64 + MARGIN;
    let most = bars.iter().map(|bar| bar.fastest).fold(1.0, f64::max);
    let scale = (WIDTH - 2.0 * MARGIN - NAMES - FIGURES) / most;
    let mut svg = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">
<title>{title}</title>
<style>{STYLE}</style>
<text class="title" x="{MARGIN}" y="24">{title}, median of the rounds; the line spans slowest to fastest</text>
"#,
    );
    for (row, text) in wrapped(conditions).iter().enumerate() {
        let (y, text) = (42.0 + 15.0 * row as f64, escape(text));
        // Writing to a string does not fail.
        let _ = writeln!(svg, r#"<text class="small" x="{MARGIN}" y="{y}">{text}</text>"#);
    }
    for (row, bar) in bars.iter().enumerate() {
        draw(&mut svg, bar, HEAD + ROW * row as f64, scale);
    }
    svg + "</svg>\n"
}

fn draw(svg: &mut String, bar: &Bar, top: f64, scale: f64) {
    let (left, middle) = (MARGIN + NAMES, top + BAR / 2.0);
    let (end, from, to) = (bar.rate * scale, left + bar.slowest * scale, left + bar.fastest * scale);
    let class = if bar.is_ours { "ours" } else { "hand" };
    let _ = writeln!(
        svg,
        r#"<text x="{:.1}" y="{:.1}" text-anchor="end">{}</text><rect class="{class}" x="{left:.1}" y="{top:.1}" width="{:.1}" height="{BAR}" rx="2"/><line class="spread" x1="{from:.1}" x2="{to:.1}" y1="{middle:.1}" y2="{middle:.1}"/><text x="{:.1}" y="{:.1}">{}</text>"#,
        left - 8.0,
        middle + 5.0,
        escape(&bar.name),
        end.max(1.0),
        to.max(left + end) + 8.0,
        middle + 5.0,
        grouped(bar.rate),
    );
}

/// In lines that fit, broken between settings.
fn wrapped(conditions: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for setting in conditions.split(" · ") {
        let last = lines.len() - 1;
        let line = &mut lines[last];
        if line.is_empty() {
            line.push_str(setting);
        } else if line.chars().count() + setting.chars().count() < SMALL_PRINT {
            line.push_str(" · ");
            line.push_str(setting);
        } else {
            lines.push(setting.to_owned());
        }
    }
    lines
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
    use super::{SMALL_PRINT, grouped, wrapped};

    #[test]
    fn conditions_are_broken_between_settings() {
        let lines = wrapped(&["setting value"; 20].join(" · "));
        assert!(lines.len() > 1 && lines.iter().all(|line| line.chars().count() <= SMALL_PRINT), "{lines:?}");
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(
            [grouped(7.4), grouped(999.0), grouped(1_000.0), grouped(1_234_567.0)],
            ["7", "999", "1,000", "1,234,567"]
        );
    }
}
