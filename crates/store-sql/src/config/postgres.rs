//! How to open a store on PostgreSQL.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use oncebox_core::address::Address;
use oncebox_core::error::{StoreError, StoreErrorKind};
use oncebox_core::time::Clock;
use sqlx::postgres::PgConnectOptions;

use crate::Postgres;
use crate::dialect::{Dialect, PostgresDialect, Timeouts};
use crate::name::Identifier;
use crate::schema::{self, Migrate, SchemaState};
use crate::store::SqlStore;

/// What the driver understands in a URL. What it does not understand it logs with its value, and that may be a secret
/// under a misspelt name; so we refuse it first, and name it without its value.
#[rustfmt::skip]
const PARAMETERS: &[&str] = &[
    "application_name", "dbname", "host", "hostaddr", "options", "password", "port", "ssl-ca", "ssl-cert", "ssl-key",
    "ssl-mode", "ssl-root-cert", "sslcert", "sslkey", "sslmode", "sslrootcert", "statement-cache-capacity", "user",
];

/// How to open a store on PostgreSQL. Made by [`Postgres::builder`].
#[derive(Clone)]
#[must_use = "a builder does nothing until it connects"]
pub struct PostgresBuilder {
    url: String,
    schema: String,
    timeouts: Timeouts,
    clock: Option<Arc<dyn Clock>>,
    migrate: Migrate,
}

impl Postgres {
    /// Opens the store at `postgres://user:password@host:port/database`, in the schema `oncebox`, and brings its tables
    /// up to date.
    pub async fn connect(url: impl Into<String>) -> Result<Self, StoreError> {
        Self::builder(url).connect().await
    }

    /// The same with other settings.
    pub fn builder(url: impl Into<String>) -> PostgresBuilder {
        let minute = Duration::from_secs(60);
        PostgresBuilder {
            url: url.into(),
            schema: "oncebox".to_owned(),
            timeouts: Timeouts { statement: minute, idle_in_transaction: minute },
            clock: None,
            migrate: Migrate::Apply,
        }
    }
}

impl PostgresBuilder {
    /// Keeps the tables in this schema instead of `oncebox`.
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
    }

    /// The server cancels a statement, a handler's too, that takes longer than this. 60 seconds unless set.
    pub fn statement_timeout(mut self, limit: Duration) -> Self {
        self.timeouts.statement = limit;
        self
    }

    /// The server ends a transaction in which nothing happens for this long. 60 seconds unless set. A handler that
    /// waits for something outside the database must be done sooner.
    pub fn idle_in_transaction_timeout(mut self, limit: Duration) -> Self {
        self.timeouts.idle_in_transaction = limit;
        self
    }

    /// Lets leases run by `clock` instead of the server's clock. For tests: the clocks of two machines differ.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Whether to bring the tables up to date or only to check them.
    pub fn migrate(mut self, migrate: Migrate) -> Self {
        self.migrate = migrate;
        self
    }

    /// Connects once, looks at the server and at the tables, and returns the store.
    pub async fn connect(self) -> Result<Postgres, StoreError> {
        SqlStore::start(self.dialect()?, self.migrate, self.clock).await
    }

    /// Compares the tables with what this version needs. Changes nothing.
    pub async fn schema_check(&self) -> Result<SchemaState, StoreError> {
        let dialect = self.dialect()?;
        schema::check(&dialect, &dialect.queries().schema).await
    }

    /// The statements that make the tables, to review them or to run them by hand. Does not connect.
    pub fn schema_print(&self) -> Result<String, StoreError> {
        let dialect = self.dialect()?;
        Ok(schema::print(&dialect, &dialect.queries().schema))
    }

    /// The host that it would connect to without insisting on TLS, wherever the URL or the environment names it; `None`: it
    /// insists, or goes by a socket of this machine. Does not connect.
    pub fn host_without_tls(&self) -> Result<Option<String>, StoreError> {
        use sqlx::postgres::PgSslMode::{Require, VerifyCa, VerifyFull};
        let options = parse(&self.url)?;
        let host = options.get_host();
        let is_safe = matches!(options.get_ssl_mode(), Require | VerifyCa | VerifyFull);
        let is_socket = options.get_socket().is_some() || host.starts_with('/');
        Ok((!is_safe && !is_socket).then(|| host.to_owned()))
    }

    fn dialect(&self) -> Result<PostgresDialect, StoreError> {
        let options = parse(&self.url)?;
        let place = place(&options);
        let schema = Identifier::new(self.schema.as_str()).map_err(|error| wrong(error.to_string()))?;
        Ok(PostgresDialect::new(options, place, schema, self.timeouts))
    }
}

impl fmt::Debug for PostgresBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the URL: it holds the password.
        f.debug_struct("PostgresBuilder").field("schema", &self.schema).finish_non_exhaustive()
    }
}

fn wrong(why: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Configuration, "open a store on postgres", why)
}

/// Reads a URL. No part of a URL that could not be read is shown, because nobody knows which part that is.
fn parse(url: &str) -> Result<PgConnectOptions, StoreError> {
    let form = "its URL is not of the form postgres://user:password@host:port/database";
    let address = Address::read(url).map_err(|why| wrong(format!("{form}: {why}")))?;
    if !["postgres", "postgresql"].contains(&address.scheme()) || address.hosts().len() > 1 {
        return Err(wrong(form));
    }
    for (name, _) in address.parameters() {
        if !PARAMETERS.contains(&name.as_str()) && !name.starts_with("options[") {
            let is_plain = name.len() <= 40 && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_' || b == b'-');
            let shown = if is_plain { name.as_str() } else { "…" };
            return Err(wrong(format!("its URL has a parameter that is not known: {shown}")));
        }
    }
    let mut options = PgConnectOptions::from_str(&address.for_client()).map_err(|_| wrong(form))?;
    // The driver's parser takes a database called `.` for a step in a path.
    let database = address.path().trim_start_matches('/');
    if !database.is_empty() && !address.parameters().iter().any(|(name, _)| name == "dbname") {
        options = options.database(&Address::name(database).map_err(|why| wrong(format!("{form}: {why}")))?);
    }
    let named = options.get_application_name().is_some();
    Ok(if named { options } else { options.application_name("oncebox") })
}

/// What may be shown of a URL: scheme, host, port, database.
fn place(options: &PgConnectOptions) -> String {
    let host = match options.get_socket() {
        Some(socket) => socket.display().to_string(),
        None => options.get_host().to_owned(),
    };
    let database = options.get_database().unwrap_or_default();
    format!("postgres at {host}:{}/{database}", options.get_port())
}

#[cfg(test)]
mod tests {
    use sqlx::ConnectOptions as _;

    use super::*;

    #[test]
    fn only_host_port_and_database_are_shown() {
        let options = parse("postgres://CANARY-user:CANARY-pass@db.example:6432/shop?password=CANARY-other").unwrap();
        assert_eq!(place(&options), "postgres at db.example:6432/shop");
    }

    #[test]
    fn a_host_is_found_wherever_the_url_names_it() {
        for (url, host) in [
            ("postgres://u@db.shop/d", Some("db.shop")),
            ("postgres:///d?host=db.shop", Some("db.shop")),
            ("postgres://localhost/d?hostaddr=10.0.0.7", Some("10.0.0.7")),
            ("postgres:///d?host=db.shop&sslmode=verify-full", None),
            ("postgres://db.shop/d?application_name=sslmode%3Drequire", Some("db.shop")),
            ("postgres:///d?host=/run/postgresql", None),
            ("postgres://%2Frun%2Fpostgresql/d", None),
        ] {
            assert_eq!(Postgres::builder(url).host_without_tls().unwrap().as_deref(), host, "{url}");
        }
    }

    #[test]
    fn a_wrong_url_is_not_shown() {
        let urls = [
            "CANARY",
            "mysql://u:CANARY@h/d",
            "postgres://u:CANARY/x@h/d",
            "postgres://u:CANARY@h:port/d",
            "postgres://u@h/d?pasword=CANARY",
            "postgres://u@h/d?sslmode=CANARY",
            "postgres://u:CANARY@h/d?CANARY%20=1",
            "postgres://u:12/CANARY@h/d",
            "postgres://u:CANARY@a,b/d",
        ];
        for url in urls {
            let error = parse(url).unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Configuration);
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains("CANARY") && std::error::Error::source(&error).is_none(), "{shown}");
        }
        assert!(parse("postgres://u@h/d?pasword=x").unwrap_err().to_string().contains("pasword"));
    }

    #[test]
    fn every_printable_character_of_a_secret_reaches_the_driver() {
        let printable: String = (' '..='~').chain("é日\u{1f980}\n".chars()).collect();
        let each = printable.chars().map(String::from);
        for secret in each.chain([printable.clone()]) {
            let part = oncebox_core::address::encode(&secret);
            let urls = [
                format!("postgres://{part}:{part}@h/{part}"),
                format!("postgres://h/?user={part}&password={part}&dbname={part}"),
            ];
            for url in urls {
                let options = parse(&url).unwrap();
                assert_eq!((options.get_username(), options.get_database()), (secret.as_str(), Some(secret.as_str())));
                // The driver tells the password in no other way; the user it does not encode.
                let told = options.username("u").database("d").to_url_lossy();
                assert_eq!(Address::read(told.as_str()).unwrap().password(), Some(secret.as_str()));
            }
        }
    }
}
