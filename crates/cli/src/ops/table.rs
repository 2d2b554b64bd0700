//! Tables that fit the terminal.

use super::lines::broken_at;
use super::screen::{Screen, Tone, tame, tone};

/// No column is made narrower than this.
const NARROWEST: usize = 6;

/// The head of a column of sentences.
pub(super) const SENTENCE: &str = "IN WORDS";

/// Rows under a heading. On a terminal that is too narrow, columns that may be folded go under their rows, and of what is
/// left the widest give way; elsewhere nothing is folded or cut.
pub(super) struct Table {
    heads: Vec<&'static str>,
    /// Which may be folded, in the order in which they go.
    folding: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(heads: &[&'static str]) -> Self {
        Self { heads: heads.to_vec(), folding: Vec::new(), rows: Vec::new() }
    }

    /// These columns go under their rows where the terminal is too narrow for all, the first of them first.
    #[must_use]
    pub(super) fn folding(mut self, heads: &[&'static str]) -> Self {
        self.folding = heads.to_vec();
        self
    }

    pub(super) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.iter().map(|cell| tame(cell)).collect());
    }

    /// As wide as the terminal, or as it wants to be where there is none.
    pub(super) fn text(&self) -> String {
        self.fit(Screen::stdout())
    }

    fn fit(&self, screen: Screen) -> String {
        let shown = self.shown(screen.width);
        let widths = self.widths(&shown, screen.width);
        let line = |row: &[&str], tone: &dyn Fn(&str) -> Tone| {
            let cell = |((at, cell), width): ((usize, &&str), &usize)| {
                let text = shortened(cell, *width);
                // The last needs no blanks after it.
                let blanks = if at + 1 == row.len() { 0 } else { width - text.chars().count() + 2 };
                screen.paint(tone(cell), &text) + &" ".repeat(blanks)
            };
            row.iter().enumerate().zip(&widths).map(cell).collect::<String>().trim_end().to_owned() + "\n"
        };
        let heads: Vec<&str> = shown.iter().map(|at| self.heads[*at]).collect();
        let mut text = line(&heads, &|_| Tone::Head);
        for row in &self.rows {
            let cells: Vec<&str> = shown.iter().filter_map(|at| row.get(*at)).map(String::as_str).collect();
            text += &line(&cells, &tone);
            text += &self.folded(row, &shown, screen.width);
        }
        text
    }

    /// The columns that stay, by their places.
    fn shown(&self, max: Option<usize>) -> Vec<usize> {
        let mut shown: Vec<usize> = (0..self.heads.len()).collect();
        for head in &self.folding {
            if max.is_none_or(|max| total(&self.widths(&shown, None)) <= max) {
                break;
            }
            shown.retain(|at| self.heads[*at] != *head);
        }
        shown
    }

    /// What of a row is not shown in its line, in lines under it.
    fn folded(&self, row: &[String], shown: &[usize], max: Option<usize>) -> String {
        let Some(max) = max else { return String::new() };
        let folded = self.heads.iter().zip(row).enumerate().filter(|(at, _)| !shown.contains(at));
        let told: Vec<String> = folded
            .filter(|(_, (_, cell))| !cell.is_empty())
            // A sentence needs no name.
            .map(
                |(_, (head, cell))| {
                    if *head == SENTENCE { cell.clone() } else { format!("{}: {cell}", head.to_lowercase()) }
                },
            )
            .collect();
        if told.is_empty() { String::new() } else { broken_at(&format!("  {}", told.join("; ")), max) }
    }

    fn widths(&self, shown: &[usize], max: Option<usize>) -> Vec<usize> {
        let wide = |at: &usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(*at));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0).max(self.heads[*at].len())
        };
        let mut widths: Vec<usize> = shown.iter().map(wide).collect();
        let Some(max) = max else { return widths };
        while total(&widths) > max {
            // Of equals the last: what explains stands at the end, and what names at the beginning.
            let Some(widest) = widths.iter_mut().max_by_key(|width| **width).filter(|width| **width > NARROWEST) else {
                break;
            };
            *widest -= 1;
        }
        widths
    }
}

/// How wide a line is, with the blanks between its columns.
fn total(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1)
}

/// With a sign where something is missing.
fn shortened(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    text.chars().take(max.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["CAUSE", "N", "REASON"]);
        table.row(vec!["timeout".into(), "12".into(), "the bank does not answer for a long time".into()]);
        table.row(vec!["é".into(), "3".into(), "short".into()]);
        table
    }

    fn wide(width: usize) -> Screen {
        Screen { width: Some(width), colours: false }
    }

    #[test]
    fn the_widest_column_gives_way() {
        assert_eq!(table().fit(wide(30)), "CAUSE    N   REASON\ntimeout  12  the bank does no…\né        3   short\n");
        let narrow = table().fit(wide(18));
        assert_eq!(narrow, "CAUSE   N   REASON\ntimeo…  12  the b…\né       3   short\n");
        assert!(narrow.lines().all(|line| line.chars().count() <= 18));
    }

    #[test]
    fn columns_that_may_be_folded_go_under_their_rows_in_their_order_and_nothing_is_lost() {
        let table = table().folding(&["REASON", "N"]);
        assert_eq!(table.fit(wide(60)), table.fit(Screen::NONE), "there is room");
        let folded = "CAUSE    N\ntimeout  12\n  reason: the bank does not\n    answer for a long time\né        3\n  reason: short\n";
        assert_eq!(table.fit(wide(30)), folded);
        let narrow = table.fit(wide(9));
        assert!(narrow.starts_with("CAUSE\ntimeout\n  n: 12;\n"), "{narrow}");
        assert!(narrow.lines().all(|line| line.chars().count() <= 9), "{narrow}");
    }

    #[test]
    fn nothing_is_cut_where_there_is_no_terminal() {
        assert!(table().fit(Screen::NONE).contains("the bank does not answer for a long time\n"));
    }

    #[test]
    fn a_cell_cannot_steer_the_terminal_or_break_its_line() {
        let mut table = Table::new(&["ID"]);
        table.row(vec!["a\x1b[31m\nb".into()]);
        assert_eq!(table.fit(Screen::NONE), "ID\na�[31m�b\n");
    }
}
