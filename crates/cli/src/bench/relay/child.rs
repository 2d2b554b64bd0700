//! A relay in a process of its own.
//!
//! What it needs to know holds passwords, so it comes as the first line of stdin; when stdin is closed, it ends.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use oncebox::Relay;
use oncebox::queue::QueueStore;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{self, ChildStdin, Command};
use tokio::time::timeout;

use super::broker::{Broker, Kafka, Nats, RabbitMq};
use super::{Kind, broker_kind};
use crate::bench::database::{self, Address};

/// The verb that makes this program a child.
const VERB: &str = "bench-relay";

/// How long a child may take to end.
const END: Duration = Duration::from_secs(30);

#[derive(Deserialize, Serialize)]
struct Task {
    store: Address,
    broker: String,
    topic: String,
}

pub(super) struct Child {
    process: process::Child,
    stdin: ChildStdin,
}

impl Child {
    pub(super) async fn start(store: &Address, broker: &str, topic: &str) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut process = Command::new(program)
            .arg(VERB)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start a relay in a process of its own")?;
        let mut stdin = process.stdin.take().context("the relay has no stdin")?;
        let task = Task { store: store.clone(), broker: broker.to_owned(), topic: topic.to_owned() };
        stdin.write_all(format!("{}\n", serde_json::to_string(&task)?).as_bytes()).await?;
        Ok(Self { process, stdin })
    }

    /// Asks it to end, and waits for that.
    pub(super) async fn end(self) -> anyhow::Result<()> {
        let Self { mut process, stdin } = self;
        drop(stdin);
        let ended = timeout(END, process.wait()).await.context("the relay did not end")??;
        ensure!(ended.success(), "the relay ended with {ended}");
        Ok(())
    }
}

/// The child's side.
pub(crate) async fn run() -> anyhow::Result<()> {
    let mut stdin = BufReader::new(tokio::io::stdin());
    let mut line = String::new();
    stdin.read_line(&mut line).await?;
    // Its text would be repeated.
    let task: Task = serde_json::from_str(&line).ok().context("a relay of the benchmark needs its task on stdin")?;
    let parent_gone = async move {
        let mut byte = [0; 1];
        while let Ok(1..) = stdin.read(&mut byte).await {}
    };
    match &task.store {
        Address::Postgres { url, schema } => {
            relay(database::open_postgres(url, schema).await?, &task, parent_gone).await
        }
        Address::Sqlite { path } => relay(database::open_sqlite(path).await?, &task, parent_gone).await,
    }
}

async fn relay<S: QueueStore>(store: S, task: &Task, end: impl Future<Output = ()>) -> anyhow::Result<()> {
    match broker_kind(&task.broker)? {
        Kind::RabbitMq => relay_to::<S, RabbitMq>(store, task, end).await,
        Kind::Nats => relay_to::<S, Nats>(store, task, end).await,
        Kind::Kafka => relay_to::<S, Kafka>(store, task, end).await,
    }
}

async fn relay_to<S: QueueStore, B: Broker>(
    store: S,
    task: &Task,
    end: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let sink = B::connect(&task.broker).await?.sink(&task.topic);
    Relay::new(store, sink).run(end).await?;
    Ok(())
}
