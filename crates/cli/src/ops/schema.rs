//! `oncebox schema`: the tables of the store.

use std::process::ExitCode;

use oncebox::postgres::Postgres;
use oncebox::sqlite::Sqlite;
use oncebox_pipeline::file::StoreAt;
use serde_json::json;

use super::{At, there};

/// The tables of the store.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    at: At,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Subcommand)]
enum Verb {
    /// Bring them up to date.
    Up,
    /// Say whether they are; exits with 1 if not.
    Check,
    /// Print the statements that make them, for review.
    Print,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (at, schema) = args.at.place()?;
    let state = match at {
        StoreAt::Sqlite(path) => {
            if args.verb == Verb::Check {
                there(&path)?;
            }
            let builder = Sqlite::builder(path);
            match args.verb {
                Verb::Print => return print(&args.at, &builder.schema_print()?),
                Verb::Up => drop(builder.clone().open().await?),
                Verb::Check => {}
            }
            builder.look_only().schema_check().await?
        }
        StoreAt::Postgres(url) => {
            let builder = match schema {
                Some(schema) => Postgres::builder(url).schema(schema),
                None => Postgres::builder(url),
            };
            match args.verb {
                Verb::Print => return print(&args.at, &builder.schema_print()?),
                Verb::Up => drop(builder.clone().connect().await?),
                Verb::Check => {}
            }
            builder.schema_check().await?
        }
    };
    let current = state.is_current() && state.missing.is_empty();
    let answer =
        json!({ "applied": state.applied, "known": state.known, "missing": state.missing, "current": current });
    args.at.answer(&answer, || match (current, state.applied) {
        (true, applied) => format!("the tables are at version {applied}"),
        (false, applied) if !state.missing.is_empty() => format!(
            "the tables are at version {applied}, and some are gone: {}; restore them from a backup, or make them anew, empty, \
             with the statements of `oncebox schema print`",
            state.missing.join(", ")
        ),
        (false, 0) => "there are no tables yet; make them with `oncebox schema up`".to_owned(),
        (false, applied) => {
            let needed = state.known;
            format!("the tables are at version {applied} and {needed} is needed; run `oncebox schema up`")
        }
    })?;
    Ok(if current { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(at: &At, script: &str) -> anyhow::Result<ExitCode> {
    at.answer(&json!({ "sql": script }), || script.to_owned())?;
    Ok(ExitCode::SUCCESS)
}
