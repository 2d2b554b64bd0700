//! A place where a mutant can live, as edits of the text around it.

use std::ops::Range;

use serde::Serialize;

/// One possible mutant of one file.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// What is wrapped or preceded, in bytes of the file.
    pub(crate) range: Range<usize>,
    /// What stands before the range once the mutant lives there; `{call}` is the question whether it is alive.
    pub(crate) before: String,
    /// What stands behind it.
    pub(crate) after: String,
    /// The function around it.
    pub(crate) function: String,
    /// What changes, in words that do not depend on the line.
    pub(crate) name: String,
    /// Where it is, for a reader.
    pub(crate) line: usize,
}

/// What `scripts/mutants` is told of a mutant.
#[derive(Debug, Serialize)]
pub(crate) struct Told {
    /// The number that brings it to life.
    pub(crate) id: usize,
    /// Names it in the list of explained survivors.
    pub(crate) key: String,
    /// Its file, from the root of the workspace.
    pub(crate) file: String,
    /// Its line in the original.
    pub(crate) line: usize,
    /// Lines of the rewritten file that belong to it: a compiler's error there is its own.
    pub(crate) bytes: Range<usize>,
}

/// The text with these mutants in it, and where each has come to lie.
pub(crate) fn woven(text: &str, sites: &[(usize, &Site)], question: &str) -> (String, Vec<Range<usize>>) {
    // Around the same text the wider one stands outside; a statement's own wrapper outside what is in it.
    let mut inserts: Vec<(usize, u8, isize, usize, String)> = Vec::new();
    for (place, (id, site)) in sites.iter().enumerate() {
        let call = format!("{question}({id})");
        let width = isize::try_from(site.range.len()).unwrap_or(isize::MAX);
        inserts.push((site.range.start, 1, -width, place, site.before.replace("{call}", &call)));
        // What ends at the same byte closes from the inside out, and before anything opens there.
        inserts.push((site.range.end, 0, width, usize::MAX - place, site.after.clone()));
    }
    inserts.sort_by_key(|insert| (insert.0, insert.1, insert.2, insert.3));

    let mut out = String::with_capacity(text.len() * 2);
    let mut spans = vec![0..0; sites.len()];
    let mut at = 0;
    for (byte, side, _, mark, insert) in inserts {
        out.push_str(&text[at..byte]);
        at = byte;
        if side == 1 {
            spans[mark].start = out.len();
            out.push_str(&insert);
            // Of an insertion that stands alone, the end is its own.
            spans[mark].end = out.len();
        } else {
            out.push_str(&insert);
            spans[usize::MAX - mark].end = out.len();
        }
    }
    out.push_str(&text[at..]);
    (out, spans)
}
