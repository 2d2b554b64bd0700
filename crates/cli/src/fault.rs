//! What is said when something went wrong: one line, with the code of its page, and an exit code.
//!
//! | exit code | means |
//! | --- | --- |
//! | 0 | done |
//! | 1 | it was tried and failed, or what was asked about is not as it should be |
//! | 2 | the command line or the file is wrong, and nothing was tried |

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use oncebox::address::Address;
use oncebox::{Code, StoreError};
use oncebox_pipeline::file::{FileError, Mistakes};
use oncebox_pipeline::{RunFileError, SendError};

use crate::ops::screen::tame;

/// An error of the command itself.
#[derive(Debug)]
struct Fault {
    code: Code,
    says: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.says)
    }
}

impl Error for Fault {}

/// An error with a page. `says` is one sentence: what was attempted, on what, what to do; without secrets.
pub(crate) fn fault(code: Code, says: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(Fault { code, says: says.into() })
}

/// Says what went wrong, and answers how to exit.
#[allow(clippy::print_stderr, reason = "this is where the command talks")]
pub(crate) fn told(error: &anyhow::Error) -> ExitCode {
    let (code, says) = read(error);
    let says = without_secrets(&says, std::env::args());
    // A file with several mistakes has a line for each.
    for line in says.lines().map(tame) {
        match code {
            Some(code) => eprintln!("oncebox: {code}: {line}"),
            None => eprintln!("oncebox: {line}"),
        }
    }
    if code.is_some_and(|code| is_command_line(code, error)) { ExitCode::from(2) } else { ExitCode::FAILURE }
}

/// What is said, without the secrets of an address that was typed, perhaps in the wrong place, and without what steers a
/// terminal or breaks a line.
fn without_secrets(says: &str, typed: impl Iterator<Item = String>) -> String {
    let mut says = says.to_owned();
    for word in typed {
        if word.contains(char::is_control) {
            says = says.replace(&word, &tame(&word));
        }
        let Some(at) = word.find("://") else { continue };
        let begin = word[..at].trim_end_matches(|c: char| c.is_ascii_alphanumeric()).len();
        let Some(address) = word.get(begin..) else { continue };
        let shown = shown(address);
        // The whole of it first: a password may hold what a complaint cuts words at.
        says = says.replace(address, &shown);
        let mut pieces = address.split([' ', '"', '\'']).filter(|piece| !piece.is_empty());
        if let Some(first) = pieces.next().filter(|first| *first != address) {
            says = says.replace(first, &shown);
        }
        // What is left of a password that was cut.
        let rest = address.rfind('@').and_then(|end| address.get(..=end)).unwrap_or_default();
        for piece in rest.split([' ', '"', '\'']).skip(1).filter(|piece| piece.len() > 1) {
            says = says.replace(piece, "…");
        }
    }
    says
}

/// What may be shown of an address: scheme, host, port and path.
fn shown(address: &str) -> String {
    Address::read(address).map_or_else(|_| "(an address)".to_owned(), |address| address.to_string())
}

fn is_command_line(code: Code, error: &anyhow::Error) -> bool {
    // An export that can't be written to its end was tried.
    let tried = error.chain().any(|error| matches!(error.downcast_ref(), Some(oncebox_admin::Error::Output(_))));
    code.number() / 100 == 1 && !tried
}

/// The code, and one sentence. Errors with a code say all of it themselves; what caused them is for programs.
fn read(error: &anyhow::Error) -> (Option<Code>, String) {
    let mut says: Vec<String> = Vec::new();
    for error in error.chain() {
        let text = error.to_string();
        if !says.iter().any(|said| said.contains(&text)) {
            says.push(text);
        }
        if let Some(code) = code(error) {
            return (Some(code), says.join(": "));
        }
    }
    (None, says.join(": "))
}

fn code(error: &(dyn Error + 'static)) -> Option<Code> {
    let ours = error.downcast_ref().map(|error: &Fault| error.code);
    let ours = ours.or_else(|| error.downcast_ref().map(oncebox_admin::Error::code));
    let ours = ours.or_else(|| error.downcast_ref().map(StoreError::code));
    let ours = ours.or_else(|| error.downcast_ref().map(FileError::code));
    let ours = ours.or_else(|| error.downcast_ref().map(|_: &Mistakes| Code::FileMistakes));
    let ours = ours.or_else(|| error.downcast_ref().map(RunFileError::code));
    ours.or_else(|| error.downcast_ref().map(SendError::code))
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;
    use oncebox::StoreErrorKind;

    use super::*;

    #[test]
    fn an_error_with_a_code_is_one_sentence_without_its_causes() {
        let driver = std::io::Error::other("CANARY");
        let error = StoreError::new(StoreErrorKind::Unavailable, "connect", "nobody answers").with_source(driver);
        let chain = Err::<(), _>(error).context("nothing was changed").unwrap_err();
        assert_eq!(read(&chain), (Some(Code::StoreAway), "nothing was changed: cannot connect: nobody answers".into()));
    }

    #[test]
    fn a_cause_that_was_said_already_is_not_said_again() {
        let error = std::fs::read("/nowhere/at/all").unwrap_err();
        let says = format!("cannot read it: {error}");
        let chain = anyhow::Error::new(error).context(says.clone());
        assert_eq!(read(&chain), (None, says));
    }

    #[test]
    fn a_password_in_the_wrong_place_is_not_repeated() {
        for (typed, says, shown) in [
            (
                "postgres://u:CANARY@h/d",
                "unexpected argument 'postgres://u:CANARY@h/d' found",
                "'postgres://h/d' found",
            ),
            (
                "postgres://h/d?password=CANARY",
                "`postgres://h/d?password=CANARY` is no duration",
                "`postgres://h/d` is",
            ),
            ("postgres://h/d?password=CAN@CANARY", "`postgres://h/d?password=CAN@CANARY` is", "`(an address)` is"),
            ("postgres://u:a/CANARY@h", "`postgres://u:a/CANARY@h` is", "`(an address)` is"),
            ("--x=amqp://u:CANARY@h/v", "--x=amqp://u:CANARY@h/v", "--x=amqp://h/v"),
            ("amqp://u:it's CANARY@h/v", "'amqp://u:it's CANARY@h/v' found", "'amqp://h/v' found"),
            ("amqp://u:it's CANARY@h/v", "no field `amqp://u:it`, nor `CANARY@h/v`", "no field `amqp://h/v`"),
            ("id = amqp://u:CANARY@h/v", "no field `amqp://u:CANARY@h/v`", "no field `amqp://h/v`"),
            ("§://u:CANARY@h", "'§://u:CANARY@h'", "(an address)'"),
        ] {
            let said = without_secrets(says, [typed.to_owned()].into_iter());
            assert!(said.contains(shown) && !said.contains("CANARY"), "{said}");
        }
        let typed = "x\u{1b}[31m\ny".to_owned();
        assert_eq!(without_secrets(&format!("no consumer `{typed}`"), [typed].into_iter()), "no consumer `x�[31m�y`");
        let advice = "write amqp://user:password@host/vhost/queue";
        assert_eq!(without_secrets(advice, ["amqp://h".to_owned()].into_iter()), advice);
    }
}
