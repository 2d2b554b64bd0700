//! `oncebox.toml`: the contract between people and the binary.
//!
//! Every mistake is found before anything runs, and all of them are told at once, each with its line.

mod consumer;
mod duration;
mod environment;
mod metrics;
mod mistake;
mod retention;
mod table;
mod traces;

use std::fmt;
use std::path::Path;

use oncebox::Code;
use oncebox::address::Address;
use toml::de::DeTable;

pub use self::consumer::{ConsumerSpec, Emit, On, RetrySpec, StartSpec};
pub use self::environment::{Environment, ProcessEnvironment};
pub use self::metrics::MetricsSpec;
pub use self::mistake::{Mistake, Mistakes};
pub use self::retention::RetentionSpec;
use self::table::{Field, Reader, Table};
pub use self::traces::{Endpoint, TracesSpec};
use crate::place::{Destination, shown};

/// Reads a duration as the file writes it: `200ms`, `30s`, `5m`, `12h`, `30d`.
pub fn duration(text: &str) -> Result<std::time::Duration, String> {
    duration::parse(text)
}

/// Everything that a file says.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Pipeline {
    /// The store.
    pub store: StoreSpec,
    /// What consumes.
    pub consumers: Vec<ConsumerSpec>,
    /// What publishes, if anything.
    pub relay: Option<RelaySpec>,
    /// Settings of the Kafka client. Values may be secrets.
    pub kafka: KafkaSettings,
    /// Where metrics and health are served, if anywhere.
    pub metrics: Option<MetricsSpec>,
    /// Where traces go, if anywhere.
    pub traces: Option<TracesSpec>,
}

/// The store of a file.
#[derive(Clone)]
#[non_exhaustive]
pub struct StoreSpec {
    /// Which kind, and where.
    pub at: StoreAt,
    /// PostgreSQL: the schema of Oncebox's tables. Default `oncebox`.
    pub schema: Option<String>,
    /// A file with statements of the user's own that run at each start, as it was named.
    pub setup: Option<std::path::PathBuf>,
    /// Where it stands in the file.
    pub line: usize,
}

/// Where a store is.
#[derive(Clone, PartialEq, Eq)]
pub enum StoreAt {
    /// A file of SQLite.
    Sqlite(String),
    /// A database of PostgreSQL, by its URL.
    Postgres(String),
}

/// The relay of a file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RelaySpec {
    /// The broker.
    pub to: Destination,
    /// Whether rows stay, marked as sent.
    pub keep_sent: bool,
    /// For how long, if they do.
    pub sent_retention: std::time::Duration,
    /// Where it stands in the file.
    pub line: usize,
}

/// Settings of the Kafka client.
#[derive(Clone, Default)]
pub struct KafkaSettings(pub Vec<(String, String)>);

impl fmt::Debug for KafkaSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

impl fmt::Debug for StoreSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreSpec").field("at", &self.at).field("schema", &self.schema).finish_non_exhaustive()
    }
}

/// Without user and password.
impl fmt::Display for StoreAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite://{path}"),
            Self::Postgres(url) => f.write_str(&shown(url)),
        }
    }
}

impl fmt::Debug for StoreAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl StoreAt {
    /// Reads an address. A complaint never holds it: it may hold a password.
    pub fn parse(text: &str) -> Result<Self, String> {
        let known = "write sqlite://FILE or postgres://user:password@host/database";
        if let Some(path) = text.strip_prefix("sqlite:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return if path.is_empty() {
                Err(format!("it names no file; {known}"))
            } else {
                Ok(Self::Sqlite(path.to_owned()))
            };
        }
        match text.trim_start().split_once(':').map(|(scheme, _)| scheme) {
            Some("postgres" | "postgresql") => {
                let address = Address::read(text).map_err(|error| format!("{error}; {known}"))?;
                Ok(Self::Postgres(address.for_client()))
            }
            Some("memory") => Err(format!("a store in memory forgets everything when the process ends; {known}")),
            Some("mysql" | "redis" | "dynamodb") => Err(format!("this store is not built yet; {known}")),
            _ => Err(format!("it is no store that is known; {known}")),
        }
    }
}

impl Pipeline {
    /// Reads a file.
    pub fn open(path: &Path, environment: &dyn Environment) -> Result<Self, FileError> {
        let file = path.display().to_string();
        let text =
            std::fs::read_to_string(path).map_err(|error| FileError::Unreadable { file: file.clone(), error })?;
        let mut pipeline = Self::parse(&file, &text, environment)?;
        // Beside the file, wherever it is run from.
        if let (Some(setup), Some(folder)) = (&mut pipeline.store.setup, path.parent()) {
            *setup = folder.join(&setup);
        }
        Ok(pipeline)
    }

    /// Reads the text of a file that is called `file`.
    pub fn parse(file: &str, text: &str, environment: &dyn Environment) -> Result<Self, Mistakes> {
        let reader = Reader::new(text, environment);
        let (root, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            // The parser quotes what it found; its message alone does not.
            let line = error.span().map_or(1, |span| reader.line(span.start));
            reader.mistake(line, format!("this is not TOML: {}", error.message()));
        }
        let pipeline = if errors.is_empty() { read(&Table::new(&reader, "the file", root.get_ref(), 1)) } else { None };
        let found = reader.into_mistakes();
        match pipeline {
            Some(pipeline) if found.is_empty() => Ok(pipeline),
            _ => Err(Mistakes { file: file.to_owned(), found }),
        }
    }
}

/// A file could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// It is not there, or not ours to read.
    #[error("cannot read {file}: {error}; `oncebox init` writes one, `--file` names another")]
    Unreadable {
        /// Which.
        file: String,
        /// Why.
        #[source]
        error: std::io::Error,
    },
    /// It says something wrong.
    #[error(transparent)]
    Mistakes(#[from] Mistakes),
}

impl FileError {
    /// The page that tells an operator what to do.
    pub fn code(&self) -> Code {
        match self {
            Self::Unreadable { .. } => Code::FileUnusable,
            Self::Mistakes(_) => Code::FileMistakes,
        }
    }
}

fn read(root: &Table<'_>) -> Option<Pipeline> {
    let store = root.required("store").and_then(|field| read_store(&field));
    let consumers: Vec<ConsumerSpec> = match root.field("consumer") {
        Some(field) => field.elements().iter().filter_map(consumer::read).collect(),
        None => Vec::new(),
    };
    for (place, consumer) in consumers.iter().enumerate() {
        if consumers[..place].iter().any(|other| other.name == consumer.name) {
            root.mistake_at(consumer.line, format!("there are two consumers called `{}`", consumer.name));
        } else if let Some(other) = consumers[..place].iter().find(|other| other.competes_with(consumer)) {
            let (one, two, from) = (&other.name, &consumer.name, &consumer.from);
            root.mistake_at(
                consumer.line,
                format!(
                    "consumers `{one}` and `{two}` both receive from {from}, so each message would reach only one of them; \
                     give each a place of its own"
                ),
            );
        }
    }
    let relay = root.field("relay").and_then(|field| read_relay(&field));
    let kafka = root.field("kafka").map(|field| read_kafka(&field)).unwrap_or_default();
    let metrics = root.field("metrics").and_then(|field| metrics::read(&field));
    let traces = root.field("traces").and_then(|field| traces::read(&field));
    for (name, what) in [
        ("console", "the console"),
        ("effect", "effects"),
        ("projection", "projections"),
        ("saga", "sagas"),
        ("http", "keys of HTTP requests"),
    ] {
        root.not_yet(name, what);
    }
    let emits = consumers.iter().flat_map(|consumer| &consumer.on).any(|on| !on.emit.is_empty());
    if emits && root.field("relay").is_none() {
        tracing::warn!(code = %Code::NoRelay, "the file emits messages and has no [relay]: they wait in the outbox until one runs");
    }
    root.finish();
    Some(Pipeline { store: store?, consumers, relay, kafka, metrics, traces })
}

fn read_store(field: &Field<'_>) -> Option<StoreSpec> {
    let table = field.table("[store]")?;
    let at = table.required("url").and_then(|url| url.read_address(StoreAt::parse));
    let schema = table.text("schema");
    let setup = table.text("setup").map(Into::into);
    if let (Some(StoreAt::Sqlite(_)), Some(_)) = (&at, &schema) {
        table.mistake("[store]: a file of SQLite has no schema; leave it out");
    }
    let line = table.line;
    table.finish();
    Some(StoreSpec { at: at?, schema, setup, line })
}

fn read_relay(field: &Field<'_>) -> Option<RelaySpec> {
    let table = field.table("[relay]")?;
    let to = table.required("to").and_then(|to| to.read_address(Destination::parse));
    let keep_sent = table.field("keep_sent").and_then(|keep| keep.boolean()).unwrap_or(false);
    let sent_retention = table.field("sent_retention").map_or(Some(oncebox::retention::RETENTION), |field| {
        if !keep_sent {
            field.mistake("nothing is kept; add `keep_sent = true`");
        }
        field.duration()
    });
    let line = table.line;
    table.finish();
    Some(RelaySpec { to: to?, keep_sent, sent_retention: sent_retention?, line })
}

fn read_kafka(field: &Field<'_>) -> KafkaSettings {
    let Some(table) = field.table("[kafka]") else { return KafkaSettings::default() };
    KafkaSettings(table.all().filter_map(|(name, value)| Some((name.to_owned(), value.text()?))).collect())
}
