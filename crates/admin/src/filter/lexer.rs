//! From a filter's text to its words and signs.

use oncebox_core::message::Shown;

use super::error::FilterError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A word without quotes: a keyword, a field, a number, a text.
    Word(String),
    /// A dotted path in which some part stands in quotes: `payload."odd name"`.
    Path(Vec<String>),
    /// A text in quotes.
    Quoted(String),
    Sign(Sign),
    Open,
    Close,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    Is,
    IsNot,
    Less,
    LessOrIs,
    More,
    MoreOrIs,
    Contains,
}

impl Token {
    /// As it is shown in an error.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Word(word) => format!("`{}`", Shown(word)),
            Self::Path(path) => format!("`{}`", Shown(&path.join("."))),
            Self::Quoted(text) => format!("the text \"{}\"", Shown(text)),
            Self::Sign(sign) => format!("`{}`", sign.text()),
            Self::Open => "`(`".to_owned(),
            Self::Close => "`)`".to_owned(),
        }
    }
}

impl Sign {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Is => "=",
            Self::IsNot => "!=",
            Self::Less => "<",
            Self::LessOrIs => "<=",
            Self::More => ">",
            Self::MoreOrIs => ">=",
            Self::Contains => "~",
        }
    }
}

/// Whether a character can stand in a word without quotes.
pub(super) fn is_word(c: char) -> bool {
    !c.is_whitespace() && !c.is_control() && !matches!(c, '(' | ')' | '"' | '=' | '!' | '<' | '>' | '~' | '\\')
}

/// The tokens of a text, each with the number of its first character.
pub(super) fn tokens(text: &str) -> Result<Vec<(usize, Token)>, FilterError> {
    let mut reader = Reader { chars: text.chars().collect(), at: 0 };
    let mut tokens = Vec::new();
    while let Some(c) = reader.peek() {
        let start = reader.at;
        let token = match c {
            c if c.is_whitespace() => {
                reader.at += 1;
                continue;
            }
            '(' => reader.take(1, Token::Open),
            ')' => reader.take(1, Token::Close),
            '"' => Token::Quoted(reader.quoted()?),
            '=' => reader.take(1, Token::Sign(Sign::Is)),
            '~' => reader.take(1, Token::Sign(Sign::Contains)),
            '!' if reader.next_is('=') => reader.take(2, Token::Sign(Sign::IsNot)),
            '<' if reader.next_is('=') => reader.take(2, Token::Sign(Sign::LessOrIs)),
            '>' if reader.next_is('=') => reader.take(2, Token::Sign(Sign::MoreOrIs)),
            '<' => reader.take(1, Token::Sign(Sign::Less)),
            '>' => reader.take(1, Token::Sign(Sign::More)),
            '!' => return Err(FilterError::new(start, "`!` stands alone; write `not`, or `!=`")),
            c if is_word(c) => reader.word()?,
            c => {
                let problem = format!("`{}` has no meaning here; put texts in double quotes", c.escape_default());
                return Err(FilterError::new(start, problem));
            }
        };
        tokens.push((start, token));
    }
    Ok(tokens)
}

struct Reader {
    chars: Vec<char>,
    at: usize,
}

impl Reader {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn next_is(&self, c: char) -> bool {
        self.chars.get(self.at + 1) == Some(&c)
    }

    fn take(&mut self, length: usize, token: Token) -> Token {
        self.at += length;
        token
    }

    fn bare(&mut self) -> String {
        let start = self.at;
        while self.peek().is_some_and(is_word) {
            self.at += 1;
        }
        self.chars[start..self.at].iter().collect()
    }

    /// A word, which becomes a path where a dot is followed by a quote.
    fn word(&mut self) -> Result<Token, FilterError> {
        let mut word = self.bare();
        if !(word.ends_with('.') && self.peek() == Some('"')) {
            return Ok(Token::Word(word));
        }
        let mut path = Vec::new();
        while word.ends_with('.') && self.peek() == Some('"') {
            word.pop();
            path.extend(word.split('.').skip(usize::from(!path.is_empty())).map(str::to_owned));
            path.push(self.quoted()?);
            word = self.bare();
        }
        path.extend(word.split('.').skip(1).map(str::to_owned));
        Ok(Token::Path(path))
    }

    /// A text in quotes; a backslash stands before a quote or a backslash that belongs to it.
    fn quoted(&mut self) -> Result<String, FilterError> {
        let start = self.at;
        let mut text = String::new();
        self.at += 1;
        while let Some(c) = self.peek() {
            self.at += 1;
            match c {
                '"' => return Ok(text),
                '\\' => match self.peek() {
                    Some(c @ ('"' | '\\')) => {
                        text.push(c);
                        self.at += 1;
                    }
                    _ => {
                        return Err(FilterError::new(self.at - 1, "a `\\` stands before a quote or another `\\` only"));
                    }
                },
                c => text.push(c),
            }
        }
        Err(FilterError::new(start, "this quote is never closed"))
    }
}
