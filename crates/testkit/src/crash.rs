//! Arming crash points: what happens where a process passes for the nth time.
//!
//! A process that a test starts arms its own from the environment:
//!
//! ```text
//! ONCEBOX_CRASHPOINTS="claimed=abort@3,before-commit=hang,handled=delay:200"
//! ```
//!
//! Each entry is `point=action`, optionally with `@n` for the nth time that the process passes there (the first,
//! unless told otherwise). Actions are `abort`, `fail`, `hang` and `delay:` with milliseconds. Each is taken once.

use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

pub use oncebox_core::crashpoint::Action;
use oncebox_core::crashpoint::{ALL, install};

use crate::names::{self, UnknownName};

/// The variable that [`install_from_env`] reads.
pub const VARIABLE: &str = "ONCEBOX_CRASHPOINTS";

/// One armed crash point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Armed {
    /// Where.
    pub point: &'static str,
    /// What happens.
    pub action: Action,
    /// At which passing, counted from 1 since it was armed.
    pub on_nth_hit: u64,
}

/// Why crash points can't be armed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CrashError {
    /// There is no such crash point.
    #[error("cannot arm crash points: {0}")]
    Unknown(#[from] UnknownName),
    /// An entry can't be read.
    #[error("cannot arm crash points: `{entry}` is not `point=action` or `point=action@n`")]
    Entry {
        /// The entry.
        entry: String,
    },
    /// There is no such action.
    #[error("cannot arm crash points: `{action}` is none of `abort`, `fail`, `hang`, `delay:<milliseconds>`")]
    Action {
        /// The action.
        action: String,
    },
}

struct Waiting {
    armed: Armed,
    hits: u64,
}

// The hook belongs to the whole process, and so do these.
static WAITING: Mutex<Vec<Waiting>> = Mutex::new(Vec::new());

/// Makes `action` happen when the process passes `point` for the nth time from now, counted from 1.
///
/// Crash points belong to the whole process: tests that arm them have a process of their own.
pub fn arm(point: &str, action: Action, on_nth_hit: u64) -> Result<(), CrashError> {
    let point = names::find("crash point", point, ALL)?;
    add([Armed { point, action, on_nth_hit }]);
    Ok(())
}

/// Forgets whatever is armed and did not happen yet.
pub fn disarm() {
    waiting().clear();
}

/// How much is armed and did not happen yet.
pub fn still_armed() -> usize {
    waiting().len()
}

/// Arms what the environment names; see the [module](self). Does nothing if the variable is not set.
pub fn install_from_env() -> Result<(), CrashError> {
    let Ok(text) = std::env::var(VARIABLE) else { return Ok(()) };
    add(parse(&text)?);
    Ok(())
}

/// Reads the text form; see the [module](self).
pub fn parse(text: &str) -> Result<Vec<Armed>, CrashError> {
    text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).map(entry).collect()
}

fn entry(entry: &str) -> Result<Armed, CrashError> {
    let wrong = || CrashError::Entry { entry: entry.to_owned() };
    let (point, rest) = entry.split_once('=').ok_or_else(wrong)?;
    let (action, nth) = rest.split_once('@').unwrap_or((rest, "1"));
    let on_nth_hit = nth.trim().parse().ok().filter(|nth| *nth > 0).ok_or_else(wrong)?;
    let point = names::find("crash point", point.trim(), ALL)?;
    Ok(Armed { point, action: read_action(action.trim())?, on_nth_hit })
}

fn read_action(action: &str) -> Result<Action, CrashError> {
    let delay = action.strip_prefix("delay:").and_then(|millis| millis.parse().ok());
    match (action, delay) {
        ("abort", _) => Ok(Action::Abort),
        ("fail", _) => Ok(Action::Fail),
        ("hang", _) => Ok(Action::Hang),
        (_, Some(millis)) => Ok(Action::Delay(Duration::from_millis(millis))),
        _ => Err(CrashError::Action { action: action.to_owned() }),
    }
}

fn add(armed: impl IntoIterator<Item = Armed>) {
    static INSTALLED: Once = Once::new();
    waiting().extend(armed.into_iter().map(|armed| Waiting { armed, hits: 0 }));
    INSTALLED.call_once(|| install(pass));
}

/// Counts a passing and says what happens. Of several that are due at once, the one armed first happens and the
/// others are due the next time.
fn pass(point: &'static str) -> Action {
    let mut waiting = waiting();
    for one in waiting.iter_mut().filter(|one| one.armed.point == point) {
        one.hits += 1;
    }
    let due = waiting.iter().position(|one| one.armed.point == point && one.hits >= one.armed.on_nth_hit);
    due.map_or(Action::Go, |due| waiting.remove(due).armed.action)
}

fn waiting() -> MutexGuard<'static, Vec<Waiting>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_form_names_points_actions_and_counts() {
        let armed = |point, action, on_nth_hit| Armed { point, action, on_nth_hit };
        assert_eq!(
            parse("claimed=abort@3, before-commit=hang,handled=delay:200@2,").unwrap(),
            [
                armed("claimed", Action::Abort, 3),
                armed("before-commit", Action::Hang, 1),
                armed("handled", Action::Delay(Duration::from_millis(200)), 2),
            ]
        );
        assert_eq!(parse("").unwrap(), []);
    }

    #[test]
    fn what_cannot_be_read_is_refused_in_words() {
        let said = |text| parse(text).unwrap_err().to_string();
        assert_eq!(
            said("comitted=abort"),
            "cannot arm crash points: there is no crash point `comitted`; did you mean `committed`?"
        );
        assert_eq!(
            said("claimed=explode"),
            "cannot arm crash points: `explode` is none of `abort`, `fail`, `hang`, `delay:<milliseconds>`"
        );
        for wrong in ["claimed", "claimed=abort@0", "claimed=abort@soon"] {
            let expected = format!("cannot arm crash points: `{wrong}` is not `point=action` or `point=action@n`");
            assert_eq!(said(wrong), expected);
        }
    }
}
