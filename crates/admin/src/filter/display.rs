//! A filter written out, so that it reads the same again: it is kept with a replay and in the audit log.

use std::fmt;

use super::field::{Field, TextField};
use super::lexer::is_word;
use super::{Equal, Expr, Filter, Order, Pattern, PayloadTest, Term, TextTest, parser, span};

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            // Chains lean to the left; what leans to the right was in brackets.
            Self::Or(left, right) if matches!(**right, Self::Or(..)) => write!(f, "{left} or ({right})"),
            Self::Or(left, right) => write!(f, "{left} or {right}"),
            Self::And(left, right) => {
                match **left {
                    Self::Or(..) => write!(f, "({left}) and ")?,
                    _ => write!(f, "{left} and ")?,
                }
                match **right {
                    Self::Or(..) | Self::And(..) => write!(f, "({right})"),
                    _ => right.fmt(f),
                }
            }
            Self::Not(inner) if matches!(**inner, Self::Or(..) | Self::And(..)) => write!(f, "not ({inner})"),
            Self::Not(inner) => write!(f, "not {inner}"),
            Self::Term(term) => term.fmt(f),
        }
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Present(field) => field.fmt(f),
            Self::Class(equal, class) => write!(f, "class {equal} {}", class.name()),
            Self::State(equal, state) => write!(f, "state {equal} {}", state.name()),
            Self::Text(field, test) => write!(f, "{field} {test}"),
            Self::Number(field, order, number) => write!(f, "{} {order} {number}", field.name()),
            Self::Age(since, order, age) => write!(f, "{} {order} {}", since.name(), span::print(*age)),
            Self::Payload(path, test) => {
                f.write_str("payload")?;
                dotted(f, path)?;
                match test {
                    PayloadTest::Text(test) => write!(f, " {test}"),
                    PayloadTest::Number(order, number) => write!(f, " {order} {number}"),
                    PayloadTest::Bool(equal, value) => write!(f, " {equal} {value}"),
                    PayloadTest::Null(equal) => write!(f, " {equal} null"),
                }
            }
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Class => f.write_str("class"),
            Self::State => f.write_str("state"),
            Self::Text(field) => field.fmt(f),
            Self::Number(field) => f.write_str(field.name()),
            Self::Since(since) => f.write_str(since.name()),
            Self::Payload(path) => {
                f.write_str("payload")?;
                dotted(f, path)
            }
        }
    }
}

impl fmt::Display for TextField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Header(name) => dotted(f, &name.split('.').map(str::to_owned).collect::<Vec<_>>()),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for TextTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Equal(equal, Pattern::Literal(text)) => write!(f, "{equal} {}", Literal(text)),
            Self::Equal(equal, Pattern::Glob(parts)) => write!(f, "{equal} {}", parts.join("*")),
            Self::Contains(text) => write!(f, "~ {}", Literal(text)),
        }
    }
}

impl fmt::Display for Equal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Is { "=" } else { "!=" })
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Is => "=",
            Self::IsNot => "!=",
            Self::Less => "<",
            Self::LessOrIs => "<=",
            Self::More => ">",
            Self::MoreOrIs => ">=",
        })
    }
}

/// The parts of a path, each after a dot, in quotes where a word would end.
fn dotted(f: &mut fmt::Formatter<'_>, path: &[String]) -> fmt::Result {
    for part in path {
        if !part.is_empty() && part.chars().all(|c| is_word(c) && c != '.') {
            write!(f, ".{part}")?;
        } else {
            write!(f, ".{}", Quoted(part))?;
        }
    }
    Ok(())
}

/// A text as a value: bare where nothing else can be meant by it.
struct Literal<'t>(&'t str);

impl fmt::Display for Literal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0;
        let word = !text.is_empty() && text.chars().all(|c| is_word(c) && c != '*');
        let taken = matches!(text, "true" | "false" | "null") || parser::number(text).is_some();
        if word && !taken { f.write_str(text) } else { Quoted(text).fmt(f) }
    }
}

struct Quoted<'t>(&'t str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.replace('\\', "\\\\").replace('"', "\\\""))
    }
}
