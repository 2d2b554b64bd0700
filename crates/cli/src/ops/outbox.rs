//! `oncebox outbox`: what is to be published, and what a broker refuses.

use std::process::ExitCode;

use oncebox::Store;
use oncebox::quarantine::QuarantineStore;
use oncebox::trail::Trails;
use oncebox_admin::{Acted, Admin, OutboxListing, OutboxView, WhichRows};

use super::screen::tame;
use super::table::Table;
use super::{At, By, To, clock, confirm, count, on_store};

/// What is to be published, and what a broker refuses.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    at: At,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Count what is to be published, and list what brokers refused.
    List {
        /// List everything that is not sent.
        #[arg(long)]
        all: bool,
        /// After this row.
        #[arg(long, default_value_t = 0)]
        after: i64,
        /// So many at most.
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Show one row, without its payload.
    Show {
        /// Its number.
        row: i64,
    },
    /// Publish rows that were refused again.
    Retry {
        /// Their numbers.
        #[arg(required = true)]
        rows: Vec<i64>,
        #[command(flatten)]
        by: By,
    },
    /// Give up rows that were refused, for good; what waits behind them goes on.
    Skip {
        /// Their numbers.
        #[arg(required = true)]
        rows: Vec<i64>,
        #[command(flatten)]
        by: By,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
    },
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let to = match args.verb {
        Verb::List { .. } | Verb::Show { .. } => To::Look,
        Verb::Retry { .. } | Verb::Skip { .. } => To::Act,
    };
    let store = args.at.open(to).await?;
    on_store!(store, |store| act(&Admin::new(store), &args.at, args.verb).await)
}

async fn act<S: QuarantineStore + Store<Tx: Trails>>(
    admin: &Admin<S>,
    at: &At,
    verb: Verb,
) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::List { all, after, limit } => {
            let which = if all { WhichRows::NotSent } else { WhichRows::Aside };
            let listing = admin.outbox(which, after, limit).await?;
            at.answer(&listing, || listed(&listing))?;
        }
        Verb::Show { row } => {
            let row = admin.outbox_row(row).await?;
            at.answer(&row, || shown(&row))?;
        }
        Verb::Retry { rows, by } => {
            let acted = admin.retry_outbox(&rows, &by.actor()?).await?;
            return told(at, acted, "to be published again");
        }
        Verb::Skip { rows, by, yes } => {
            let actor = by.actor()?;
            confirm(yes, &format!("give up {} that will never be published", count(rows.len() as u64, "message")))?;
            let acted = admin.skip_outbox(&rows, &actor).await?;
            return told(at, acted, "given up");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn listed(listing: &OutboxListing) -> String {
    let since = listing.oldest.map(|oldest| format!(", the oldest since {}", clock(oldest))).unwrap_or_default();
    let mut text = format!("{} to be published{since}; {} set aside\n", listing.unsent, listing.aside);
    if !listing.rows.is_empty() {
        let mut table = Table::new(&["ROW", "STATE", "TOPIC", "TYPE", "SINCE", "REASON"]).folding(&["REASON", "SINCE"]);
        for row in &listing.rows {
            let since = clock(row.settled_at.unwrap_or(row.emitted_at));
            let (number, reason) = (row.row.to_string(), row.reason.clone().unwrap_or_default());
            table.row(vec![number, row.state.to_owned(), row.topic.clone(), row.kind.clone(), since, reason]);
        }
        text += &table.text();
    }
    text
}

fn shown(row: &OutboxView) -> String {
    let lines = [
        ("row", Some(row.row.to_string())),
        ("state", Some(row.state.to_owned())),
        ("topic", Some(row.topic.clone())),
        ("id", Some(row.id.clone())),
        ("type", Some(row.kind.clone())),
        ("order key", row.order_key.clone()),
        ("emitted at", Some(clock(row.emitted_at))),
        ("settled at", row.settled_at.map(clock)),
        ("reason", row.reason.clone()),
        ("payload", Some(format!("{} bytes", row.payload_bytes))),
    ];
    let line = |(name, value): (&str, Option<String>)| Some(format!("{name:<10}  {}\n", tame(&value?)));
    lines.into_iter().filter_map(line).collect()
}

/// Fails if there was nothing to do: whoever named a row meant it.
fn told(at: &At, acted: Acted, what: &str) -> anyhow::Result<ExitCode> {
    at.answer(&acted, || {
        let rest = if acted.passed_over == 0 {
            String::new()
        } else {
            format!("; {} not set aside, so nothing was done to them", acted.passed_over)
        };
        format!("{} {what}{rest}", acted.done)
    })?;
    Ok(if acted.done > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
