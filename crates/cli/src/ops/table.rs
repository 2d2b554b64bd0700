//! Tables that fit the terminal.

use std::io::IsTerminal as _;

/// Where nobody says how wide a line may be.
const WIDE: usize = 200;

/// Rows under a heading. The last column takes what is left of the line.
pub(super) struct Table {
    heads: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(heads: &[&'static str]) -> Self {
        Self { heads: heads.to_vec(), rows: Vec::new() }
    }

    pub(super) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// As wide as the terminal, or as it wants to be where there is none.
    pub(super) fn text(&self) -> String {
        let terminal = std::io::stdout().is_terminal();
        let width = terminal.then(terminal_size::terminal_size).flatten().map_or(WIDE, |(width, _)| width.0.into());
        self.fit(width)
    }

    fn fit(&self, width: usize) -> String {
        let cells = |at: usize| self.rows.iter().filter_map(move |row| row.get(at));
        let wide = |at: usize| {
            let head = self.heads[at].len();
            cells(at).map(|cell| cell.chars().count()).max().unwrap_or(0).max(head)
        };
        let widths: Vec<usize> = (0..self.heads.len()).map(wide).collect();
        let before_last: usize = widths.iter().rev().skip(1).map(|width| width + 2).sum();
        let last = width.saturating_sub(before_last).max(10);
        let line = |row: &[String]| {
            let mut line = String::new();
            for (at, cell) in row.iter().enumerate() {
                if at + 1 == self.heads.len() {
                    line.push_str(&shortened(cell, last));
                } else {
                    line.push_str(&format!("{cell:<width$}  ", width = widths[at]));
                }
            }
            line.trim_end().to_owned() + "\n"
        };
        let heads: Vec<String> = self.heads.iter().map(|head| (*head).to_owned()).collect();
        std::iter::once(heads).chain(self.rows.iter().cloned()).map(|row| line(&row)).collect()
    }
}

/// With a sign where something is missing.
fn shortened(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    text.chars().take(max - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_column_gives_way() {
        let mut table = Table::new(&["CAUSE", "N", "REASON"]);
        table.row(vec!["timeout".into(), "12".into(), "the bank does not answer for a long time".into()]);
        table.row(vec!["é".into(), "3".into(), "short".into()]);
        assert_eq!(table.fit(30), "CAUSE    N   REASON\ntimeout  12  the bank does no…\né        3   short\n");
    }
}
