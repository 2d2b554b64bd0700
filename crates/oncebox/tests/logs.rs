//! Logs carry ids and never contents. One test in a process of its own, because a subscriber belongs to the process.

#![allow(clippy::unwrap_used, reason = "a test that panics has said what it found")]

#[path = "../../store-sql/tests/common/mod.rs"]
mod sql;

use std::io::Write;
use std::sync::{Arc, Mutex};

use oncebox::memory::{MemorySource, MemoryStore};
use oncebox::{Consumer, Context, Failure, Message, MessageId, Outcome};
use oncebox_store_sql::Postgres;
use oncebox_testkit::eventually;
use serde_json::{Value, json};

/// Keeps what is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn message(id: &str, payload: &Value) -> Message {
    let mut message = Message::new("noted").with_id(MessageId::new(id).unwrap()).with_json(payload).unwrap();
    message.headers.add("authorization", "CANARY-header").unwrap();
    message
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_carry_ids_and_never_contents() {
    let log = Log::default();
    let written = log.clone();
    tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(move || written.clone()).init();

    // Handled, duplicate, conflict, not decodable, unknown type, failing, panicking.
    let source = MemorySource::new();
    let mut unknown = message("m-unknown", &json!("CANARY-unknown"));
    unknown.kind = "nobody.knows".to_owned();
    source.send_all([
        message("m-good", &json!("CANARY-good")),
        message("m-good", &json!("CANARY-good")),
        message("m-good", &json!("CANARY-conflict")),
        message("m-shape", &json!(["CANARY-shape"])),
        message("m-fails", &json!("CANARY-fails")),
        unknown,
    ]);
    let consumer = Consumer::new("noisy", MemoryStore::new(), source.clone()).on(
        "noted",
        |_: Context<MemoryStore>, text: String| async move {
            if text.contains("fails") { Err(Failure::permanent("the case said so")) } else { Ok(Outcome::applied()) }
        },
    );
    let stats = consumer.stats();
    let seen = || stats.snapshot();
    let all = eventually("all kinds are seen", async || seen().transport_duplicates == 1 && seen().failures >= 4);
    consumer.run(all).await.unwrap();
    on_postgres().await;

    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    for id in ["m-good", "m-shape", "m-fails", "m-unknown"] {
        assert!(log.contains(id), "{id} is not named in\n{log}");
    }
    assert!(!log.contains("CANARY"), "contents in\n{log}");
}

/// PostgreSQL quotes values in its errors, and its URLs hold passwords.
async fn on_postgres() {
    let Some(place) = sql::PostgresPlace::or_skip("logs::logs_carry_ids_and_never_contents (postgres)") else { return };
    let source = MemorySource::new();
    source.send(message("m-driver", &json!("CANARY-driver")));
    let consumer = Consumer::new("noisy", place.open().await, source.clone()).on(
        "noted",
        |mut ctx: Context<Postgres>, text: String| async move {
            sqlx::query("select $1::text::int").bind(text).execute(ctx.db()).await?;
            Ok(Outcome::applied())
        },
    );
    let stats = consumer.stats();
    consumer.run(eventually("it failed", async || stats.snapshot().failures >= 1)).await.unwrap();
    let refused = Postgres::connect("postgres://u:CANARY-password@127.0.0.1:1/db").await.unwrap_err();
    tracing::error!("{refused} {refused:?}");
}
