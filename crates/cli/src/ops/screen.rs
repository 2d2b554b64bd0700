//! What stdout is: a terminal of some width, with colours or without, or something else.

use std::io::IsTerminal as _;

/// Where an answer is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Screen {
    /// How wide a line may be; `None`: as wide as it is.
    pub(crate) width: Option<usize>,
    /// Whether colours are shown.
    pub(crate) colours: bool,
}

/// What a piece of text is, for its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Nothing of note.
    Plain,
    /// A heading.
    Head,
    /// As it should be.
    Good,
    /// On its way.
    Waits,
    /// For a person.
    Bad,
}

impl Screen {
    /// A file, a pipe, a test.
    #[cfg(test)]
    pub(crate) const NONE: Self = Self { width: None, colours: false };

    /// Standard output of this process.
    pub(crate) fn stdout() -> Self {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        if !std::io::stdout().is_terminal() {
            return Self { width: None, colours: false };
        }
        let width = terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| usize::from(width.0));
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { width: width.filter(|width| *width > 0), colours: !set("NO_COLOR") && !dumb }
    }

    /// The text in the colour of its tone.
    pub(crate) fn paint(self, tone: Tone, text: &str) -> String {
        let number = match tone {
            Tone::Plain => return text.to_owned(),
            Tone::Head => 1,
            Tone::Good => 32,
            Tone::Waits => 33,
            Tone::Bad => 31,
        };
        if !self.colours || text.is_empty() {
            return text.to_owned();
        }
        format!("\x1b[{number}m{text}\x1b[0m")
    }
}

/// The tone of a state, by its name.
pub(crate) fn tone(state: &str) -> Tone {
    match state {
        "dead" | "stopped" | "aside" | "rejected" | "conflict" => Tone::Bad,
        "retrying" | "turn" | "gap" | "paused" | "running" | "behind" | "parked" | "unsent" => Tone::Waits,
        "done" | "applied" | "sent" => Tone::Good,
        _ => Tone::Plain,
    }
}

/// A text of a producer's as it may be shown: what steers a terminal is made visible, and lines stay lines.
pub(crate) fn tame(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '�' } else { c }).collect()
}

/// A line of our own no wider than this. Colours take no room, and what comes after the cut keeps its colours off.
pub(crate) fn cut(line: &str, width: usize) -> String {
    let (mut shown, mut in_colour) = (0, false);
    let fits = |c: &char| {
        let is_colour = in_colour || *c == '\x1b';
        in_colour = is_colour && *c != 'm';
        shown += usize::from(!is_colour);
        is_colour || shown <= width
    };
    line.chars().filter(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_does_not_reach_it() {
        assert_eq!(tame("a\x1b[2Jb\nc"), "a�[2Jb�c");
    }

    #[test]
    fn colours_take_no_room() {
        let line = "\x1b[1mCONSUMER\x1b[0m  \x1b[31mdead\x1b[0m";
        assert_eq!(cut(line, 14), line);
        assert_eq!(cut(line, 12), "\x1b[1mCONSUMER\x1b[0m  \x1b[31mde\x1b[0m");
    }

    #[test]
    fn colours_are_for_those_who_see_them() {
        assert_eq!(Screen::NONE.paint(Tone::Bad, "dead"), "dead");
        assert_eq!(Screen { width: None, colours: true }.paint(Tone::Bad, "dead"), "\x1b[31mdead\x1b[0m");
    }
}
