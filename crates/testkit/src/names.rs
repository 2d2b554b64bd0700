//! Names that people type: an unknown one is refused with the nearest known one.

/// A name that is not known here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no {what} `{name}`; did you mean `{nearest}`?")]
pub struct UnknownName {
    what: &'static str,
    name: String,
    nearest: &'static str,
}

/// Finds `name` among `known`; `what` says what it names, for the error.
pub(crate) fn find(what: &'static str, name: &str, known: &[&'static str]) -> Result<&'static str, UnknownName> {
    if let Some(known) = known.iter().find(|known| **known == name) {
        return Ok(known);
    }
    let nearest = known.iter().min_by_key(|known| distance(name, known)).copied().unwrap_or_default();
    Err(UnknownName { what, name: name.to_owned(), nearest })
}

/// How many letters must be added, removed or changed (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let changed = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_name_is_found() {
        assert_eq!(find("colour", "red", &["green", "red"]), Ok("red"));
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_nearest_known_one() {
        let error = find("colour", "gren", &["red", "green", "blue"]).unwrap_err();
        assert_eq!(error.to_string(), "there is no colour `gren`; did you mean `green`?");
    }
}
