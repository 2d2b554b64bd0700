//! What operators do, on the operations of `oncebox-admin`: a command never does what a button can't, and the other way
//! round.

mod checkpoint;
pub(crate) mod doctor;
mod follow;
mod lines;
pub(crate) mod message;
pub(crate) mod outbox;
pub(crate) mod parked;
pub(crate) mod replay;
pub(crate) mod retention;
pub(crate) mod schema;
pub(crate) mod screen;
pub(crate) mod status;
mod table;
mod tree;

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use oncebox::postgres::Postgres;
use oncebox::sqlite::{Migrate, Sqlite};
use oncebox::{Code, Timestamp};
use oncebox_admin::Actor;
use oncebox_pipeline::file::{Pipeline, ProcessEnvironment, StoreAt};
use serde::Serialize;

use crate::fault::fault;

/// Where to look, and how to answer.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct At {
    /// The file that names the store.
    #[arg(long, short, global = true, default_value = "oncebox.toml")]
    file: PathBuf,
    /// The store itself, instead of a file: sqlite://FILE or postgres://….
    #[arg(long, global = true)]
    store: Option<String>,
    /// The schema of Oncebox's tables on PostgreSQL, with --store.
    #[arg(long, global = true, requires = "store")]
    schema: Option<String>,
    /// Answer with JSON.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// Who does something, and why.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct By {
    /// Why: it is written into the audit log.
    #[arg(long)]
    why: String,
    /// Who. Default: the user that runs this.
    #[arg(long)]
    who: Option<String>,
}

impl By {
    pub(crate) fn actor(&self) -> anyhow::Result<Actor> {
        let user = || std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).ok();
        let nobody = || fault(Code::CommandLine, "cannot tell who acts: USER is not set; say who with --who");
        let who = self.who.clone().or_else(user).ok_or_else(nobody)?;
        Ok(Actor::new(who, &self.why)?)
    }
}

/// What a verb opens the store for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    /// It waits for nobody, as far as the store can do that.
    Look,
    Act,
}

/// One of the stores.
pub(crate) enum AnyStore {
    Sqlite(Sqlite),
    Postgres(Postgres),
}

/// The same for whichever store it is.
macro_rules! on_store {
    ($store:expr, |$each:ident| $body:expr) => {
        match $store {
            $crate::ops::AnyStore::Sqlite($each) => $body,
            $crate::ops::AnyStore::Postgres($each) => $body,
        }
    };
}
pub(crate) use on_store;

impl At {
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// What the file says; `None` where a store is named instead of one.
    pub(crate) fn pipeline(&self) -> anyhow::Result<Option<Pipeline>> {
        match self.store {
            Some(_) => Ok(None),
            None => Ok(Some(Pipeline::open(&self.file, &ProcessEnvironment)?)),
        }
    }

    pub(crate) fn place(&self) -> anyhow::Result<(StoreAt, Option<String>)> {
        if let Some(store) = &self.store {
            let at = StoreAt::parse(store);
            let at = at.map_err(|reason| fault(Code::Address, format!("cannot read --store: {reason}")))?;
            return Ok((at, self.schema.clone()));
        }
        let pipeline = Pipeline::open(&self.file, &ProcessEnvironment)?;
        Ok((pipeline.store.at, pipeline.store.schema))
    }

    /// Opens the store, without bringing its tables up to date.
    pub(crate) async fn open(&self, to: To) -> anyhow::Result<AnyStore> {
        Ok(match self.place()? {
            (StoreAt::Sqlite(path), _) => {
                there(&path)?;
                let builder = Sqlite::builder(path).migrate(Migrate::Check);
                let builder = if to == To::Look { builder.look_only() } else { builder };
                AnyStore::Sqlite(builder.open().await?)
            }
            (StoreAt::Postgres(url), schema) => {
                let builder = Postgres::builder(url).migrate(Migrate::Check);
                let builder = match schema {
                    Some(schema) => builder.schema(schema),
                    None => builder,
                };
                AnyStore::Postgres(builder.connect().await?)
            }
        })
    }

    /// Answers with `value` as JSON, or with a text for people.
    pub(crate) fn answer<T: Serialize>(&self, value: &T, text: impl FnOnce() -> String) -> anyhow::Result<()> {
        let answer = if self.json { serde_json::to_string(value)? } else { text() };
        print(&answer)
    }
}

/// Refuses a file of SQLite that is not there: opening it would make an empty one.
pub(crate) fn there(path: &str) -> anyhow::Result<()> {
    if Path::new(path).exists() {
        return Ok(());
    }
    let says = format!("cannot open {path}: there is no such file; make the store with `oncebox schema up`");
    Err(fault(Code::StoreAway, says))
}

/// Writes an answer to stdout.
pub(crate) fn print(answer: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", answer.trim_end()).or_else(|error| match error.kind() {
        // Whoever reads it has had enough.
        std::io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error),
    })?;
    Ok(())
}

/// Asks before something that can't be undone, unless `yes`.
#[allow(clippy::print_stderr, reason = "this is where the command talks")]
pub(crate) fn confirm(yes: bool, what: &str) -> anyhow::Result<()> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return Err(fault(Code::NotConfirmed, format!("this would {what}; say so with --yes")));
    }
    eprint!("This will {what}. Type yes to go on: ");
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    if answer.trim() == "yes" { Ok(()) } else { Err(fault(Code::NotConfirmed, "nothing was done")) }
}

/// A count and what is counted.
pub(crate) fn count(number: u64, one: &str) -> String {
    format!("{number} {one}{}", if number == 1 { "" } else { "s" })
}

/// A time for people: to the second.
pub(crate) fn clock(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()
}
