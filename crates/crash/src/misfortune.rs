//! What befalls a handler that did nothing wrong: trouble of the server's, and panics in what the user wrote.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use oncebox::{Class, Failure};

/// Codes of trouble that passes, or that is not about the message: the server's own resources, its operators, its plans,
/// its neighbours, a foreign server behind it.
const PASSING: [&str; 18] = [
    "57014", "25P03", "0A000", "26000", "55000", "XX000", "53100", "53200", "53300", "53400", "57P01", "57P03",
    "58000", "58030", "40001", "40P01", "55P03", "HV000",
];

/// Statements of which the last fails, for the message that is the `turn`th to be hit.
pub(crate) fn foreign(turn: u64) -> Vec<String> {
    let at = turn as usize % (PASSING.len() + 1);
    match PASSING.get(at) {
        Some(code) => {
            vec![format!("do $$ begin raise exception 'not about the message' using errcode = '{code}'; end $$")]
        }
        // A real one: the server gives up on the statement.
        None => vec!["set local statement_timeout = '5ms'".to_owned(), "select pg_sleep(1)".to_owned()],
    }
}

/// An error whose source, or whose class, can't be asked for.
#[derive(Debug)]
pub(crate) enum Odd {
    NoSource,
    NoClass,
}

impl fmt::Display for Odd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an odd error")
    }
}

impl Error for Odd {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::NoSource => panic("the source of an error"),
            Self::NoClass => None,
        }
    }
}

/// The user's reading of it.
pub(crate) fn class(error: &Odd) -> Class {
    match error {
        Odd::NoSource => Class::Transient,
        Odd::NoClass => panic("the reading of an error"),
    }
}

/// Panics in its drop.
struct Brittle;

impl Drop for Brittle {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic("the drop of a future");
        }
    }
}

/// One panic after the other, for the message that is the `turn`th to be hit; or a hook that does.
pub(crate) async fn panicking(turn: u64) -> Result<Option<BoxFuture<'static, ()>>, Failure> {
    match turn % 5 {
        0 => panic("a handler"),
        1 => Err(Odd::NoSource.into()),
        2 => Err(Odd::NoClass.into()),
        3 => {
            // Dropped where it waits: its time is over before this is.
            let _brittle = Brittle;
            tokio::time::sleep(Duration::from_secs(60)).await;
            Ok(None)
        }
        _ => Ok(Some(async { panic("a hook") }.boxed())),
    }
}

/// Without the message that a panic prints: it is one of many.
fn panic(what: &'static str) -> ! {
    std::panic::resume_unwind(Box::new(what))
}
