//! The fields that a filter knows.

/// A field of a parked message.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Field {
    Class,
    State,
    Text(TextField),
    Number(NumberField),
    Since(Since),
    Payload(Vec<String>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TextField {
    Type,
    Cause,
    Key,
    Order,
    Id,
    Source,
    Reason,
    Note,
    Header(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberField {
    Attempts,
    Row,
    Version,
    Replay,
    Size,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Since {
    Parked,
    Made,
}

/// All names of one word, for finding them and for suggesting the nearest.
const NAMES: [&str; 20] = [
    "age", "attempts", "cause", "class", "group", "header", "id", "key", "made", "note", "order", "payload", "reason",
    "replay", "row", "size", "source", "state", "type", "version",
];

impl Field {
    /// The field of this name, given as its parts between dots.
    pub(super) fn from_path(mut path: Vec<String>) -> Option<Self> {
        if path.iter().any(String::is_empty) {
            return None;
        }
        if path.len() > 1 {
            let first = path.remove(0);
            return match first.as_str() {
                "payload" => Some(Self::Payload(path)),
                "header" => Some(Self::Text(TextField::Header(path.join(".")))),
                _ => None,
            };
        }
        Some(match path[0].as_str() {
            "class" => Self::Class,
            "state" => Self::State,
            "type" => Self::Text(TextField::Type),
            "cause" | "group" => Self::Text(TextField::Cause),
            "key" => Self::Text(TextField::Key),
            "order" => Self::Text(TextField::Order),
            "id" => Self::Text(TextField::Id),
            "source" => Self::Text(TextField::Source),
            "reason" => Self::Text(TextField::Reason),
            "note" => Self::Text(TextField::Note),
            "attempts" => Self::Number(NumberField::Attempts),
            "row" => Self::Number(NumberField::Row),
            "version" => Self::Number(NumberField::Version),
            "replay" => Self::Number(NumberField::Replay),
            "size" => Self::Number(NumberField::Size),
            "age" => Self::Since(Since::Parked),
            "made" => Self::Since(Since::Made),
            _ => return None,
        })
    }
}

impl TextField {
    /// Its name; a header's stands in the path.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Type => "type",
            Self::Cause => "cause",
            Self::Key => "key",
            Self::Order => "order",
            Self::Id => "id",
            Self::Source => "source",
            Self::Reason => "reason",
            Self::Note => "note",
            Self::Header(_) => "header",
        }
    }
}

impl NumberField {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Attempts => "attempts",
            Self::Row => "row",
            Self::Version => "version",
            Self::Replay => "replay",
            Self::Size => "size",
        }
    }
}

impl Since {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Parked => "age",
            Self::Made => "made",
        }
    }
}

/// What somebody probably meant by a field that there is not.
pub(super) fn nearest_field(word: &str) -> Option<&'static str> {
    nearest(word.split('.').next().unwrap_or(word), NAMES)
}

/// The nearest of some names, unless all are far off.
pub(super) fn nearest(word: &str, names: impl IntoIterator<Item = &'static str>) -> Option<&'static str> {
    let word = word.to_lowercase();
    let far = |name: &&str| distance(&word, name);
    names.into_iter().min_by_key(far).filter(|name| far(name) <= 1 + name.len() / 3)
}

/// How many letters must be added, removed or changed to make one word of the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let change = above[j] + usize::from(x != *y);
            row.push(change.min(above[j + 1] + 1).min(row[j] + 1));
        }
        above = row;
    }
    above[b.len()]
}
