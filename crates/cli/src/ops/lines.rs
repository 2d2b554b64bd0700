//! Sentences that fit the terminal.

use super::screen::Screen;

/// Lines no longer than the terminal is wide, or as they are where there is none. What does not fit goes on in the next
/// line, under the beginning of its own and a little further in.
pub(super) fn broken(text: &str) -> String {
    match Screen::stdout().width {
        None => text.to_owned(),
        Some(width) => text.lines().map(|line| broken_at(line, width)).collect(),
    }
}

/// One line as several, each with its end.
pub(super) fn broken_at(line: &str, width: usize) -> String {
    let blanks = line.chars().take_while(|c| *c == ' ').count();
    // Where there is hardly any room, it is not spent on blanks.
    let further = if width >= 20 { blanks + 2 } else { 0 };
    let (mut lines, mut now) = (String::new(), " ".repeat(blanks));
    let mut is_empty = true;
    for word in line.split(' ').skip_while(|word| word.is_empty()) {
        if !is_empty && now.chars().count() + 1 + word.chars().count() > width {
            lines += now.trim_end();
            lines.push('\n');
            now = " ".repeat(further);
            is_empty = true;
        }
        if !is_empty {
            now.push(' ');
        }
        now += word;
        is_empty = false;
        // A word that is wider than all of it is cut where the line ends.
        while now.chars().count() > width {
            let head: String = now.chars().take(width).collect();
            now = " ".repeat(further) + &now[head.len()..];
            lines += &head;
            lines.push('\n');
        }
    }
    lines + now.trim_end() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_between_words_and_go_on_further_in() {
        assert_eq!(broken_at("one two three", 40), "one two three\n");
        assert_eq!(
            broken_at("  fix: write it in the file, then run it", 24),
            "  fix: write it in the\n    file, then run it\n"
        );
        assert_eq!(broken_at("", 24), "\n");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let hard = "  a consumer-with-a-name-that-is-longer-than-a-narrow-terminal waits";
        for width in [5, 20, 24, 30] {
            let text = broken_at(hard, width);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
            assert_eq!(text.replace(['\n', ' '], ""), hard.replace(' ', ""), "nothing is lost");
        }
    }
}
