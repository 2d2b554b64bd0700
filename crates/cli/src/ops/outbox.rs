//! `oncebox outbox`: what is to be published, and what a broker refuses.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use oncebox::outbox::{Outbox, OutboxStore};
use oncebox::{Ended, Session, Transaction};
use serde_json::json;

use super::table::Table;
use super::{At, confirm, on_store};

/// How long a look may wait for someone's lock.
const LOCK_WAIT: Duration = Duration::from_secs(5);

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
        /// After this row.
        #[arg(long, default_value_t = 0)]
        after: i64,
        /// So many at most.
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Publish rows that were refused again.
    Retry {
        /// Their numbers.
        #[arg(required = true)]
        rows: Vec<i64>,
    },
    /// Give up rows that were refused, for good; what waits behind them goes on.
    Skip {
        /// Their numbers.
        #[arg(required = true)]
        rows: Vec<i64>,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
    },
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let store = args.at.open().await?;
    on_store!(store, |store| act(&store, &args.at, args.verb).await)
}

async fn act<S: OutboxStore>(store: &S, at: &At, verb: Verb) -> anyhow::Result<ExitCode> {
    let mut tx = store.connect().await?.begin(LOCK_WAIT).await?;
    match verb {
        Verb::List { after, limit } => {
            let backlog = tx.outbox_backlog().await?;
            let aside = tx.page_aside(after, limit).await?;
            tx.rollback().await;
            let rows: Vec<serde_json::Value> = aside
                .iter()
                .map(|row| {
                    let id = row.message.id.as_ref().map(|id| id.as_str());
                    json!({ "row": row.row, "topic": row.topic, "id": id, "type": row.message.kind, "reason": row.reason,
                            "since": row.since.to_string() })
                })
                .collect();
            let oldest = backlog.oldest.map(|oldest| oldest.to_string());
            at.answer(
                &json!({ "unsent": backlog.unsent, "aside": backlog.aside, "oldest": oldest, "rows": rows }),
                || {
                    let since = oldest.as_ref().map(|oldest| format!(", the oldest from {oldest}")).unwrap_or_default();
                    let mut text = format!("{} to be published{since}; {} set aside\n", backlog.unsent, backlog.aside);
                    if !aside.is_empty() {
                        let mut table = Table::new(&["ROW", "TOPIC", "TYPE", "SINCE", "REASON"]);
                        for row in &aside {
                            let (number, kind) = (row.row.to_string(), row.message.kind.clone());
                            table.row(vec![number, row.topic.clone(), kind, row.since.to_string(), row.reason.clone()]);
                        }
                        text += &table.text();
                    }
                    text
                },
            )?;
        }
        Verb::Retry { rows } => {
            let done = tx.retry_aside(&rows).await?;
            ended(tx).await?;
            told(at, &rows, &done, "to be published again")?;
        }
        Verb::Skip { rows, yes } => {
            confirm(yes, &format!("give up {} messages that were never published", rows.len()))?;
            let done = tx.skip_aside(&rows).await?;
            ended(tx).await?;
            told(at, &rows, &done, "given up")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn ended<T: Transaction>(tx: T) -> anyhow::Result<()> {
    match tx.commit().await {
        Ended::Committed(_) => Ok(()),
        Ended::RolledBack { error, .. } => Err(error).context("nothing was changed"),
        Ended::Unknown { error, .. } => Err(error).context("it may have been done or not; look again"),
    }
}

fn told(at: &At, rows: &[i64], done: &[bool], what: &str) -> anyhow::Result<()> {
    let count = done.iter().filter(|done| **done).count();
    let missed: Vec<i64> = rows.iter().zip(done).filter(|(_, done)| !**done).map(|(row, _)| *row).collect();
    at.answer(&json!({ "done": count, "not_aside": missed }), || {
        let rest = if missed.is_empty() { String::new() } else { format!("; not set aside: {missed:?}") };
        format!("{count} {what}{rest}")
    })
}
