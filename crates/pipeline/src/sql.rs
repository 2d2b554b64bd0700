//! Statements with `:name` in them, which binds a field of the message. Values are bound, never spliced.

use std::fmt;

/// One statement: its text with `$1`, `$2` … in it, and what is bound there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Pieces of text around the parameters: one more than there are uses of parameters.
    text: Vec<String>,
    /// Which parameter stands between each two pieces.
    uses: Vec<usize>,
    /// Each parameter once, in the order of its first use.
    pub parameters: Vec<Path>,
    /// How many rows it must touch.
    pub expect: Option<u64>,
}

/// Where a value comes from: a dotted path into the payload, or an attribute of the message such as `@id`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Path(String);

impl Path {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Statement {
    /// The text for the server, with each use of a parameter written by `parameter` from its number, counted from 1.
    pub(crate) fn render(&self, parameter: impl Fn(usize) -> String) -> String {
        let mut text = self.text.first().cloned().unwrap_or_default();
        for (place, next) in self.uses.iter().zip(self.text.iter().skip(1)) {
            text.push_str(&parameter(*place + 1));
            text.push_str(next);
        }
        text
    }
}

/// Reads a list of statements, separated by `;`.
pub fn parse(sql: &str) -> Result<Vec<Statement>, String> {
    let mut scanner = Scanner { rest: sql, statement: Draft::default(), done: Vec::new() };
    while let Some(next) = scanner.rest.chars().next() {
        scanner.step(next)?;
    }
    scanner.end_statement();
    if scanner.done.is_empty() {
        return Err("there is no statement in it".to_owned());
    }
    for statement in &scanner.done {
        let word = first_word(statement.text.first().map_or("", String::as_str));
        if TRANSACTIONS.contains(&word.to_ascii_lowercase().as_str()) {
            return Err(format!("`{word}` steers the transaction, which is Oncebox's own; leave it out"));
        }
    }
    Ok(scanner.done)
}

/// What begins a statement that begins, ends or marks a transaction.
const TRANSACTIONS: [&str; 8] = ["abort", "begin", "commit", "end", "release", "rollback", "savepoint", "start"];

/// The word that a statement begins with, behind blanks and comments.
fn first_word(mut text: &str) -> &str {
    loop {
        text = text.trim_start();
        if text.starts_with("--") {
            text = text.find('\n').map_or("", |end| &text[end..]);
        } else if text.starts_with("/*") {
            text = &text[comment(text).unwrap_or(text.len())..];
        } else {
            let end = text.find(|c: char| !c.is_alphanumeric()).unwrap_or(text.len());
            return &text[..end];
        }
    }
}

/// A statement that is being read.
#[derive(Default)]
struct Draft {
    text: Vec<String>,
    current: String,
    uses: Vec<usize>,
    parameters: Vec<Path>,
    /// Something beside blanks and comments.
    says_something: bool,
}

struct Scanner<'s> {
    rest: &'s str,
    statement: Draft,
    done: Vec<Statement>,
}

impl<'s> Scanner<'s> {
    fn step(&mut self, next: char) -> Result<(), String> {
        let rest = self.rest;
        if rest.starts_with("--") {
            self.take(rest.find('\n').unwrap_or(rest.len()), false);
        } else if rest.starts_with("/*") {
            self.take(comment(rest)?, false);
        } else if next == '\'' || next == '"' {
            let escapes = next == '\'' && self.follows_e();
            self.take(quoted(rest, next, escapes)?, true);
        } else if next == '$' {
            match dollar_quoted(rest)? {
                Some(length) => self.take(length, true),
                None if rest[1..].starts_with(|c: char| c.is_ascii_digit()) => {
                    return Err("a parameter is written `:name`, not `$1`".to_owned());
                }
                None => self.take(1, true),
            }
        } else if rest.starts_with("::") {
            self.take(2, true);
        } else if next == ':' && path_length(&rest[1..]) > 0 {
            self.parameter(1 + path_length(&rest[1..]));
        } else if next == '?' && !self.is_operator() {
            return Err("a parameter is written `:name`, not `?`".to_owned());
        } else if next == ';' {
            self.rest = &rest[1..];
            self.end_statement();
        } else {
            self.take(next.len_utf8(), !next.is_whitespace());
        }
        Ok(())
    }

    /// PostgreSQL has operators with a question mark in them: `?|`, `?&`, and `?` between two operands.
    fn is_operator(&self) -> bool {
        let after = self.rest[1..].trim_start();
        self.rest[1..].starts_with(['|', '&']) || after.starts_with(['\'', ':'])
    }

    /// Whether an `E` stands right before: then a backslash escapes.
    fn follows_e(&self) -> bool {
        let mut before = self.statement.current.chars().rev();
        matches!(before.next(), Some('e' | 'E')) && !before.next().is_some_and(|c| c.is_alphanumeric() || c == '_')
    }

    fn take(&mut self, length: usize, says_something: bool) {
        let (taken, rest) = self.rest.split_at(length);
        self.statement.current.push_str(taken);
        self.statement.says_something |= says_something;
        self.rest = rest;
    }

    fn parameter(&mut self, length: usize) {
        let (taken, rest) = self.rest.split_at(length);
        let path = Path::new(&taken[1..]);
        let statement = &mut self.statement;
        let place = statement.parameters.iter().position(|known| *known == path).unwrap_or_else(|| {
            statement.parameters.push(path);
            statement.parameters.len() - 1
        });
        statement.uses.push(place);
        statement.text.push(std::mem::take(&mut statement.current));
        statement.says_something = true;
        self.rest = rest;
    }

    fn end_statement(&mut self) {
        let Draft { mut text, current, uses, parameters, says_something } = std::mem::take(&mut self.statement);
        if says_something {
            text.push(current);
            self.done.push(Statement { text, uses, parameters, expect: None });
        }
    }
}

/// The length of the path at the beginning: `invoice.id`, `@id`, `@header.tenant`.
fn path_length(text: &str) -> usize {
    let is_step = |c: char| c.is_alphanumeric() || c == '_';
    let start = usize::from(text.starts_with('@'));
    if !text[start..].starts_with(|c: char| c.is_alphabetic() || c == '_') {
        return 0;
    }
    let mut end = start;
    loop {
        let step = text[end..].find(|c: char| !(is_step(c) || (start == 1 && c == '-'))).unwrap_or(text.len() - end);
        end += step;
        if !(text[end..].starts_with('.') && text[end + 1..].starts_with(is_step)) {
            return end;
        }
        end += 1;
    }
}

/// The length of a comment, which may hold others.
fn comment(text: &str) -> Result<usize, String> {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        if text[at..].starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if text[at..].starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return Ok(at);
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    Err("a comment `/*` is never closed".to_owned())
}

/// The length of a quoted text or name; a doubled quote is part of it.
fn quoted(text: &str, quote: char, escapes: bool) -> Result<usize, String> {
    let mut characters = text.char_indices().skip(1).peekable();
    while let Some((at, character)) = characters.next() {
        if escapes && character == '\\' {
            characters.next();
        } else if character == quote && characters.next_if(|(_, next)| *next == quote).is_none() {
            return Ok(at + quote.len_utf8());
        }
    }
    Err(format!("a quote {quote} is never closed"))
}

/// The length of `$$…$$` or `$tag$…$tag$`, if it is that.
fn dollar_quoted(text: &str) -> Result<Option<usize>, String> {
    let Some(end) = text[1..].find('$') else { return Ok(None) };
    let tag = &text[..end + 2];
    let inside = &tag[1..tag.len() - 1];
    let is_tag =
        inside.chars().all(|c| c.is_alphanumeric() || c == '_') && !inside.starts_with(|c: char| c.is_numeric());
    if !is_tag {
        return Ok(None);
    }
    let body = &text[tag.len()..];
    let close = body.find(tag).ok_or_else(|| format!("a quote {tag} is never closed"))?;
    Ok(Some(tag.len() + close + tag.len()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn dollars(sql: &str) -> Vec<(String, Vec<String>)> {
        let names = |statement: &Statement| statement.parameters.iter().map(Path::to_string).collect();
        let read = parse(sql).unwrap();
        read.iter().map(|s| (s.render(|n| format!("${n}")).trim().to_owned(), names(s))).collect()
    }

    #[test]
    fn names_become_parameters_each_once() {
        let sql = "update invoices set paid = paid + :amount, last=:amount where id = :invoice.id and m = :@header.x-y";
        let expected = "update invoices set paid = paid + $1, last=$1 where id = $2 and m = $3";
        assert_eq!(
            dollars(sql),
            [(expected.to_owned(), vec!["amount".into(), "invoice.id".into(), "@header.x-y".into()])]
        );
    }

    #[test]
    fn what_only_looks_like_a_name_is_left_alone() {
        for sql in [
            "select a::int, ':x', \":y\", 'it''s :z'",
            "select $$ :x ; $$ || $tag$ :y $tag$",
            "select 1 -- :x ;\n",
            "select /* :x /* ; */ :y */ 1",
            r"select e'\':x'",
            "select a[1:2]",
            "select j ? 'k', j ?| array['a']",
        ] {
            assert_eq!(dollars(sql), [(sql.trim().to_owned(), vec![])]);
        }
        assert_eq!(dollars("select :a::int"), [("select $1::int".to_owned(), vec!["a".to_owned()])]);
        assert_eq!(dollars("select :a.").len(), 1, "a dot at the end is not part of the name");
    }

    #[test]
    fn statements_are_told_apart() {
        let read = dollars("insert into a values (:x);\n -- nothing\n ; update b set y = :y;");
        assert_eq!(read.iter().map(|(_, names)| names.concat()).collect::<Vec<_>>(), ["x", "y"]);
        assert_eq!(parse(" ; -- nothing\n").unwrap_err(), "there is no statement in it");
    }

    #[test]
    fn what_is_never_closed_is_said() {
        for (sql, says) in
            [("select 'a", "quote '"), ("select \"a", "quote \""), ("select /* a", "comment"), ("$$ a", "$$")]
        {
            assert!(parse(sql).unwrap_err().contains(says), "{sql}");
        }
        assert!(parse("select ?").unwrap_err().contains(":name"));
        assert!(parse("select $1").unwrap_err().contains(":name"));
    }

    proptest! {
        #[test]
        fn nothing_panics_and_nothing_is_lost(sql in "[a-z:;.'\"$@?*/ é\\-\\\\\n]{0,60}") {
            if let Ok(statements) = parse(&sql) {
                for statement in statements {
                    let names = statement.render(|n| format!(":{}", statement.parameters[n - 1]));
                    prop_assert!(sql.contains(&names), "{names:?} in {sql:?}");
                }
            }
        }
    }
}
