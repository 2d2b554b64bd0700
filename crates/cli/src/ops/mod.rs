//! What operators do, on the operations of `oncebox-admin`: a command never does what a button can't, and the other way
//! round.

pub(crate) mod doctor;
pub(crate) mod outbox;
pub(crate) mod parked;
pub(crate) mod replay;
pub(crate) mod retention;
pub(crate) mod schema;
mod table;

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;

use anyhow::Context as _;
use oncebox::postgres::Postgres;
use oncebox::sqlite::{Migrate, Sqlite};
use oncebox_admin::Actor;
use oncebox_pipeline::file::{Pipeline, ProcessEnvironment, StoreAt};
use serde::Serialize;

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
        let who = self.who.clone().or_else(user).context("nobody is known by USER; say who with --who")?;
        Ok(Actor::new(who, &self.why)?)
    }
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
    pub(crate) fn file(&self) -> &std::path::Path {
        &self.file
    }

    /// What the file says; `None` where a store is named instead of one.
    pub(crate) fn pipeline(&self) -> anyhow::Result<Option<Pipeline>> {
        if self.store.is_some() {
            return Ok(None);
        }
        Ok(Some(Pipeline::open(&self.file, &ProcessEnvironment)?))
    }

    pub(crate) fn place(&self) -> anyhow::Result<(StoreAt, Option<String>)> {
        if let Some(store) = &self.store {
            let at = StoreAt::parse(store).map_err(|reason| anyhow::anyhow!("cannot read --store: {reason}"))?;
            return Ok((at, self.schema.clone()));
        }
        let pipeline = Pipeline::open(&self.file, &ProcessEnvironment)?;
        Ok((pipeline.store.at, pipeline.store.schema))
    }

    /// Opens the store. An operator's look changes no table.
    pub(crate) async fn open(&self) -> anyhow::Result<AnyStore> {
        Ok(match self.place()? {
            (StoreAt::Sqlite(path), _) => {
                anyhow::ensure!(std::path::Path::new(&path).exists(), "cannot open {path}: there is no such file");
                AnyStore::Sqlite(Sqlite::builder(path).migrate(Migrate::Check).open().await?)
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
    anyhow::ensure!(std::io::stdin().is_terminal(), "this would {what}; say so with --yes");
    eprint!("This will {what}. Type yes to go on: ");
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    anyhow::ensure!(answer.trim() == "yes", "nothing was done");
    Ok(())
}
