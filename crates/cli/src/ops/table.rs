//! Tables that fit the terminal.

use super::screen::{Screen, Tone, tame, tone};

/// No column is made narrower than this.
const NARROWEST: usize = 6;

/// Rows under a heading. On a terminal the widest columns give way; elsewhere nothing is cut.
pub(super) struct Table {
    heads: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(heads: &[&'static str]) -> Self {
        Self { heads: heads.to_vec(), rows: Vec::new() }
    }

    pub(super) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.iter().map(|cell| tame(cell)).collect());
    }

    /// As wide as the terminal, or as it wants to be where there is none.
    pub(super) fn text(&self) -> String {
        self.fit(Screen::stdout())
    }

    fn fit(&self, screen: Screen) -> String {
        let widths = self.widths(screen.width);
        let line = |row: &[String], tone: &dyn Fn(&str) -> Tone| {
            let cell = |(at, cell): (usize, &String)| {
                let shown = shortened(cell, widths[at]);
                // The last needs no blanks after it.
                let blanks = if at + 1 == row.len() { 0 } else { widths[at] - shown.chars().count() + 2 };
                screen.paint(tone(cell), &shown) + &" ".repeat(blanks)
            };
            row.iter().enumerate().map(cell).collect::<String>().trim_end().to_owned() + "\n"
        };
        let heads: Vec<String> = self.heads.iter().map(|head| (*head).to_owned()).collect();
        let mut text = line(&heads, &|_| Tone::Head);
        for row in &self.rows {
            text += &line(row, &tone);
        }
        text
    }

    fn widths(&self, max: Option<usize>) -> Vec<usize> {
        let wide = |at: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(at));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0).max(self.heads[at].len())
        };
        let mut widths: Vec<usize> = (0..self.heads.len()).map(wide).collect();
        let Some(max) = max else { return widths };
        while widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1) > max {
            // Of equals the last: what explains stands at the end, and what names at the beginning.
            let Some(widest) = widths.iter_mut().max_by_key(|width| **width).filter(|width| **width > NARROWEST) else {
                break;
            };
            *widest -= 1;
        }
        widths
    }
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
