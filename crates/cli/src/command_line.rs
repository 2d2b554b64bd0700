//! Reading the command line. What is wrong with it is said in one line.

use std::process::ExitCode;

use clap::error::{Error, ErrorKind};
use clap::{Command, Parser};
use oncebox::Code;

use crate::fault;

/// Reads the command line, or says what is wrong with it and answers how to exit.
pub(crate) fn read<C: Parser>() -> Result<C, ExitCode> {
    C::try_parse().map_err(|error| match error.kind() {
        // What was asked for: it goes to stdout and is no error.
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // Whoever reads it has had enough.
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(2)
        }
        ErrorKind::InvalidSubcommand if let Some(says) = not_yet(std::env::args().nth(1).as_deref()) => {
            fault::told(&fault::fault(Code::CommandLine, says))
        }
        _ => {
            let meant = meant(&C::command(), std::env::args().skip(1));
            fault::told(&fault::fault(Code::CommandLine, one_line(&error, &meant)))
        }
    })
}

/// Verbs that are planned, for those who have read of them.
fn not_yet(word: Option<&str>) -> Option<String> {
    let (what, verb) = match word? {
        word @ ("effect" | "effects") => ("effects outside the store are", word),
        word @ ("saga" | "sagas") => ("sagas are", word),
        word @ ("projection" | "projections") => ("projections are", word),
        word @ ("key" | "keys") => ("keys of HTTP requests are", word),
        word @ "console" => ("the console is", word),
        _ => return None,
    };
    Some(format!("{what} not built yet, so there is no `oncebox {verb}`; see `oncebox --help` for what there is"))
}

/// The first paragraph of what clap says, its tip, and where to read more.
fn one_line(error: &Error, meant: &str) -> String {
    let text = error.render().to_string();
    let mut paragraphs = text.split("\n\n");
    let first = paragraphs.next().unwrap_or_default().trim_start_matches("error:").trim();
    let mut says = first.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some(tip) = text.lines().find_map(|line| line.trim().strip_prefix("tip:")) {
        says += &format!("; {}", tip.trim());
    }
    says + &format!("; see `{meant} --help`")
}

/// The command that was meant, as far as it was understood.
fn meant(command: &Command, words: impl Iterator<Item = String>) -> String {
    let (mut at, mut meant) = (command, command.get_name().to_owned());
    for word in words {
        if let Some(below) = at.find_subcommand(&word) {
            meant += &format!(" {word}");
            at = below;
        }
    }
    meant
}
