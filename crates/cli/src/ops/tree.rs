//! What belongs to what, as a tree.

use super::screen::tame;

/// A line, and what belongs to it.
pub(super) struct Tree {
    line: String,
    below: Vec<Tree>,
}

impl Tree {
    /// A line. What steers a terminal in it is made harmless.
    pub(super) fn new(line: impl AsRef<str>) -> Self {
        Self { line: tame(line.as_ref()), below: Vec::new() }
    }

    /// Adds what belongs to it.
    pub(super) fn add(&mut self, below: Tree) {
        self.below.push(below);
    }

    pub(super) fn text(&self) -> String {
        let mut text = self.line.clone() + "\n";
        self.draw("", &mut text);
        text
    }

    fn draw(&self, before: &str, text: &mut String) {
        for (at, below) in self.below.iter().enumerate() {
            let (branch, stem) = if at + 1 == self.below.len() { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            text.push_str(&format!("{before}{branch}{}\n", below.line));
            below.draw(&format!("{before}{stem}"), text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_a_line_stands_below_it() {
        let mut tree = Tree::new("message 7");
        let mut a = Tree::new("consumer a");
        a.add(Tree::new("applied\x1b"));
        a.add(Tree::new("noted"));
        tree.add(a);
        let mut b = Tree::new("consumer b");
        b.add(Tree::new("nothing"));
        tree.add(b);
        assert_eq!(
            tree.text(),
            "message 7\n├─ consumer a\n│  ├─ applied�\n│  └─ noted\n└─ consumer b\n   └─ nothing\n"
        );
    }
}
