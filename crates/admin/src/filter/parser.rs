//! From a filter's words and signs to what it means.

use oncebox_core::Class;
use oncebox_core::quarantine::ParkedState;

use super::error::FilterError;
use super::field::{Field, NumberField, Since, nearest, nearest_field};
use super::lexer::{Sign, Token, tokens};
use super::number::Number;
use super::{Equal, Expr, FILTER_BYTES_MAX, Order, Pattern, PayloadTest, Term, TextTest, span};

/// How deep brackets and `not` may stand in each other.
const DEPTH_MAX: usize = 64;

const CLASSES: [&str; 4] = ["transient", "permanent", "unknown", "rejected"];

/// Reads a filter.
pub(super) fn parse(text: &str) -> Result<Expr, FilterError> {
    if text.len() > FILTER_BYTES_MAX {
        let problem = format!("it has {} bytes, and at most {FILTER_BYTES_MAX} are read", text.len());
        return Err(FilterError::new(0, problem));
    }
    let mut parser = Parser { tokens: tokens(text)?, at: 0, end: text.chars().count(), depth: 0 };
    if parser.tokens.is_empty() {
        return Err(FilterError::new(0, "it is empty; write `all` to mean every message"));
    }
    let expr = parser.any()?;
    match parser.peek() {
        None => Ok(expr),
        Some(Token::Close) => Err(parser.wrong("this `)` closes nothing")),
        Some(token) => {
            let problem = format!("expected `and`, `or` or the end, found {}", token.shown());
            Err(parser.wrong(problem))
        }
    }
}

struct Parser {
    tokens: Vec<(usize, Token)>,
    at: usize,
    /// The number of characters: where the end is.
    end: usize,
    depth: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(_, token)| token)
    }

    fn position(&self) -> usize {
        self.tokens.get(self.at).map_or(self.end, |(start, _)| *start)
    }

    fn wrong(&self, problem: impl Into<String>) -> FilterError {
        FilterError::new(self.position(), problem)
    }

    fn expected(&self, what: &str) -> FilterError {
        match self.peek() {
            Some(token) => self.wrong(format!("expected {what}, found {}", token.shown())),
            None => self.wrong(format!("expected {what}, and it ends here")),
        }
    }

    fn take_word(&mut self, keyword: &str) -> bool {
        let is_there = matches!(self.peek(), Some(Token::Word(word)) if word.eq_ignore_ascii_case(keyword));
        self.at += usize::from(is_there);
        is_there
    }

    /// Something joined by `or`.
    fn any(&mut self) -> Result<Expr, FilterError> {
        let mut expr = self.every()?;
        while self.take_word("or") {
            expr = Expr::Or(Box::new(expr), Box::new(self.every()?));
        }
        Ok(expr)
    }

    /// Something joined by `and`.
    fn every(&mut self) -> Result<Expr, FilterError> {
        let mut expr = self.one()?;
        while self.take_word("and") {
            expr = Expr::And(Box::new(expr), Box::new(self.one()?));
        }
        Ok(expr)
    }

    fn one(&mut self) -> Result<Expr, FilterError> {
        if self.depth == DEPTH_MAX {
            return Err(self.wrong(format!("it is nested more than {DEPTH_MAX} deep")));
        }
        self.depth += 1;
        let expr = self.one_at_depth();
        self.depth -= 1;
        expr
    }

    fn one_at_depth(&mut self) -> Result<Expr, FilterError> {
        if self.take_word("not") {
            return Ok(Expr::Not(Box::new(self.one()?)));
        }
        if self.take_word("all") {
            return Ok(Expr::All);
        }
        if self.peek() == Some(&Token::Open) {
            self.at += 1;
            let expr = self.any()?;
            if self.peek() != Some(&Token::Close) {
                return Err(self.expected("`and`, `or` or `)`"));
            }
            self.at += 1;
            return Ok(expr);
        }
        let field = self.field()?;
        let Some(Token::Sign(sign)) = self.peek() else { return Ok(Expr::Term(Term::Present(field))) };
        let sign = *sign;
        let at_sign = self.position();
        self.at += 1;
        self.comparison(field, sign, at_sign).map(Expr::Term)
    }

    fn field(&mut self) -> Result<Field, FilterError> {
        let path = match self.peek() {
            Some(Token::Word(word)) if matches!(word.as_str(), "and" | "or") => None,
            Some(Token::Word(word)) => Some(word.split('.').map(str::to_owned).collect()),
            Some(Token::Path(path)) => Some(path.clone()),
            _ => None,
        };
        let Some(path): Option<Vec<String>> = path else {
            return Err(self.expected("a field (such as `type`), `not` or `(`"));
        };
        if let [only @ ("payload" | "header")] = path.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            return Err(self.wrong(format!("`{only}` needs a name after a dot, such as `{only}.amount`")));
        }
        let name = path.join(".");
        let Some(field) = Field::from_path(path) else {
            let problem = format!("there is no field {}", Token::Word(name.clone()).shown());
            return Err(self.wrong(problem).or_rather(nearest_field(&name)));
        };
        self.at += 1;
        Ok(field)
    }

    fn comparison(&mut self, field: Field, sign: Sign, at_sign: usize) -> Result<Term, FilterError> {
        let refused = |takes: &str| FilterError::new(at_sign, format!("this field is compared with {takes} only"));
        Ok(match field {
            Field::Class => {
                let equal = sign.equal().ok_or_else(|| refused("`=` and `!=`"))?;
                Term::Class(equal, self.named("a class", &CLASSES, Class::from_name)?)
            }
            Field::State => {
                let equal = sign.equal().ok_or_else(|| refused("`=` and `!=`"))?;
                let names = ParkedState::ALL.map(ParkedState::name);
                Term::State(equal, self.named("a state", &names, ParkedState::from_name)?)
            }
            Field::Text(field) => Term::Text(field, self.text(sign).ok_or_else(|| refused("`=`, `!=` and `~`"))??),
            Field::Number(field) => {
                let order = sign.order().ok_or_else(|| refused("`=`, `!=`, `<`, `<=`, `>` and `>=`"))?;
                Term::Number(field, order, self.whole(field)?)
            }
            Field::Since(since) => {
                let order = sign.order().filter(|order| !matches!(order, Order::Is | Order::IsNot));
                let order = order.ok_or_else(|| refused("`<`, `<=`, `>` and `>=`"))?;
                Term::Age(since, order, self.span(since)?)
            }
            Field::Payload(path) => Term::Payload(path, self.payload(sign, at_sign)?),
        })
    }

    /// One of some names.
    fn named<T>(&mut self, what: &str, names: &[&'static str], find: fn(&str) -> Option<T>) -> Result<T, FilterError> {
        let expected = format!("{what} ({})", names.join(", "));
        let (Some(Token::Word(word)) | Some(Token::Quoted(word))) = self.peek() else {
            return Err(self.expected(&expected));
        };
        let Some(found) = find(&word.to_ascii_lowercase()) else {
            return Err(self.expected(&expected).or_rather(nearest(word, names.iter().copied())));
        };
        self.at += 1;
        Ok(found)
    }

    fn whole(&mut self, field: NumberField) -> Result<i64, FilterError> {
        let number = match self.peek() {
            Some(Token::Word(word)) => word.parse().ok(),
            _ => None,
        };
        let number = number.ok_or_else(|| self.expected(&format!("a whole number for `{}`", field.name())))?;
        self.at += 1;
        Ok(number)
    }

    fn span(&mut self, since: Since) -> Result<std::time::Duration, FilterError> {
        let found = match self.peek() {
            Some(Token::Word(word)) => span::parse(word),
            _ => None,
        };
        let what = format!("a length of time for `{}`, such as `90s`, `2h` or `1d12h`", since.name());
        let found = found.ok_or_else(|| self.expected(&what))?;
        self.at += 1;
        Ok(found)
    }

    /// A test of a text; `None` if texts are not compared so.
    fn text(&mut self, sign: Sign) -> Option<Result<TextTest, FilterError>> {
        let equal = sign.equal();
        if equal.is_none() && sign != Sign::Contains {
            return None;
        }
        let pattern = match self.peek() {
            Some(Token::Quoted(text)) => Pattern::Literal(text.clone()),
            Some(Token::Word(word)) if word.contains('*') && equal.is_some() => {
                Pattern::Glob(word.split('*').map(str::to_owned).collect())
            }
            Some(Token::Word(word)) => Pattern::Literal(word.clone()),
            _ => return Some(Err(self.expected("a text"))),
        };
        self.at += 1;
        Some(Ok(match (equal, pattern) {
            (Some(equal), pattern) => TextTest::Equal(equal, pattern),
            (None, Pattern::Literal(text)) => TextTest::Contains(text),
            (None, Pattern::Glob(parts)) => TextTest::Contains(parts.join("*")),
        }))
    }

    fn payload(&mut self, sign: Sign, at_sign: usize) -> Result<PayloadTest, FilterError> {
        let word = match self.peek() {
            Some(Token::Word(word)) => Some(word.clone()),
            _ => None,
        };
        let number = word.as_deref().and_then(number);
        if let (Some(order), Some(number)) = (sign.order(), number) {
            self.at += 1;
            return Ok(PayloadTest::Number(order, number));
        }
        if let (Some(equal), Some(word)) = (sign.equal(), word.as_deref()) {
            let test = match word {
                "true" => Some(PayloadTest::Bool(equal, true)),
                "false" => Some(PayloadTest::Bool(equal, false)),
                "null" => Some(PayloadTest::Null(equal)),
                _ => None,
            };
            if let Some(test) = test {
                self.at += 1;
                return Ok(test);
            }
        }
        match self.text(sign) {
            Some(test) => test.map(PayloadTest::Text),
            None => {
                let problem = format!("`{}` compares numbers, and what follows is none", sign.text());
                Err(FilterError::new(at_sign, problem))
            }
        }
    }
}

/// A number as JSON writes it.
pub(super) fn number(word: &str) -> Option<Number> {
    Number::read(word)
}

impl Sign {
    fn equal(self) -> Option<Equal> {
        match self {
            Self::Is => Some(Equal::Is),
            Self::IsNot => Some(Equal::IsNot),
            _ => None,
        }
    }

    fn order(self) -> Option<Order> {
        Some(match self {
            Self::Is => Order::Is,
            Self::IsNot => Order::IsNot,
            Self::Less => Order::Less,
            Self::LessOrIs => Order::LessOrIs,
            Self::More => Order::More,
            Self::MoreOrIs => Order::MoreOrIs,
            Self::Contains => return None,
        })
    }
}
