//! `oncebox schema`: the tables of the store.

use std::process::ExitCode;

use oncebox::postgres::Postgres;
use oncebox::sqlite::Sqlite;
use oncebox_pipeline::file::StoreAt;
use serde_json::json;

use super::At;

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

#[allow(clippy::print_stdout, reason = "this is what was asked for")]
pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (at, schema) = args.at.place()?;
    let state = match at {
        StoreAt::Sqlite(path) => {
            let builder = Sqlite::builder(path);
            if args.verb == Verb::Print {
                println!("{}", builder.schema_print()?.trim_end());
                return Ok(ExitCode::SUCCESS);
            }
            if args.verb == Verb::Up {
                drop(builder.clone().open().await?);
            }
            builder.schema_check().await?
        }
        StoreAt::Postgres(url) => {
            let builder = match schema {
                Some(schema) => Postgres::builder(url).schema(schema),
                None => Postgres::builder(url),
            };
            if args.verb == Verb::Print {
                println!("{}", builder.schema_print()?.trim_end());
                return Ok(ExitCode::SUCCESS);
            }
            if args.verb == Verb::Up {
                drop(builder.clone().connect().await?);
            }
            builder.schema_check().await?
        }
    };
    let current = state.is_current();
    let answer = json!({ "applied": state.applied, "known": state.known, "current": current });
    args.at.answer(&answer, || match current {
        true => format!("the tables are at version {}", state.applied),
        false => format!(
            "the tables are at version {} and {} is needed; run `oncebox schema up`",
            state.applied, state.known
        ),
    })?;
    Ok(if current { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
