//! The worker processes: started, killed with SIGKILL, started again.

use std::collections::HashMap;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::shop::{Place, Shop};
use super::worker::URL;

/// What the workers said and what was done to them.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) deliveries: u64,
    pub(super) crashes: u64,
    /// Kills by crash point; `elsewhere` for those that came at a random moment.
    pub(super) killed_at: HashMap<String, u64>,
    pub(super) last: Option<String>,
}

pub(super) struct Fleet {
    place: Place,
    random: fastrand::Rng,
    workers: HashMap<u64, Worker>,
    next: u64,
    tally: Tally,
    lines: mpsc::Receiver<(u64, Line)>,
    sender: mpsc::Sender<(u64, Line)>,
    readers: JoinSet<()>,
    /// Workers that ended by themselves; a few are worth a look, many mean that nothing works.
    unexpected: u32,
}

struct Worker {
    child: Child,
    /// Closed to ask for an orderly end.
    stdin: Option<ChildStdin>,
    complaint: String,
}

/// Something that happened to a worker.
#[derive(Debug)]
pub(super) enum Line {
    Received(u64),
    HangsAt(String),
    /// Its time has come, wherever it is.
    Due,
    Complaint(String),
    Ended,
}

/// A worker lives at most this long.
const LIFE: std::ops::Range<u64> = 30..250;

const UNEXPECTED_MAX: u32 = 10;

impl Fleet {
    pub(super) fn start(shop: &Shop, workers: u16, seed: u64) -> anyhow::Result<Self> {
        let (sender, lines) = mpsc::channel(1_000);
        let mut fleet = Self {
            place: shop.place().clone(),
            random: fastrand::Rng::with_seed(seed.wrapping_add(1)),
            workers: HashMap::new(),
            next: 0,
            tally: Tally::default(),
            lines,
            sender,
            readers: JoinSet::new(),
            unexpected: 0,
        };
        for _ in 0..workers {
            fleet.hire(true)?;
        }
        Ok(fleet)
    }

    pub(super) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Starts a worker; a doomed one hangs at a crash point or is killed at a random moment.
    fn hire(&mut self, doomed: bool) -> anyhow::Result<()> {
        let number = self.next;
        self.next += 1;
        let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
        command.arg("demo-worker").arg("--seed").arg(self.random.u64(..).to_string());
        if doomed {
            command.arg("--hang");
        }
        match &self.place {
            Place::Sqlite { path } => command.arg("--sqlite").arg(path),
            Place::Postgres { url, schema } => command.arg("--schema").arg(schema).env(URL, url),
        };
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().context("cannot start a worker")?;
        let stdin = child.stdin.take();
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let due = doomed.then(|| Duration::from_millis(self.random.u64(LIFE)));
        let (say, life, talk) = (self.sender.clone(), self.sender.clone(), self.sender.clone());
        self.readers.spawn(async move {
            let mut lines = BufReader::new(stdout.expect("stdout is piped")).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let line = match line.split_once(' ') {
                    Some(("received", count)) => Line::Received(count.parse().unwrap_or(0)),
                    Some(("at", name)) => Line::HangsAt(name.to_owned()),
                    _ => continue,
                };
                let _ = say.send((number, line)).await;
            }
            let _ = say.send((number, Line::Ended)).await;
        });
        self.readers.spawn(async move {
            let mut lines = BufReader::new(stderr.expect("stderr is piped")).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let _ = talk.send((number, Line::Complaint(line))).await;
            }
        });
        if let Some(due) = due {
            self.readers.spawn(async move {
                tokio::time::sleep(due).await;
                let _ = life.send((number, Line::Due)).await;
            });
        }
        self.workers.insert(number, Worker { child, stdin, complaint: String::new() });
        Ok(())
    }

    /// The next thing that happens to a worker.
    pub(super) async fn next_event(&mut self) -> anyhow::Result<(u64, Line)> {
        // The tasks that ended are swept out on the way, or they would pile up.
        while self.readers.try_join_next().is_some() {}
        self.lines.recv().await.context("no worker is left to listen to")
    }

    /// Reacts: counts, kills, hires again.
    pub(super) fn react(&mut self, (number, line): (u64, Line), doomed: bool) -> anyhow::Result<()> {
        match line {
            Line::Received(count) => self.tally.deliveries += count,
            Line::Complaint(text) => {
                if let Some(worker) = self.workers.get_mut(&number) {
                    worker.complaint = text;
                }
            }
            Line::HangsAt(name) => self.kill(number, &name, doomed)?,
            Line::Due => self.kill(number, "elsewhere", doomed)?,
            // A killed worker is no longer listed: this one ended by itself.
            Line::Ended => {
                if let Some(worker) = self.workers.remove(&number) {
                    self.unexpected += 1;
                    if self.unexpected > UNEXPECTED_MAX {
                        anyhow::bail!("workers end by themselves; the last one said: {}", worker.complaint);
                    }
                    self.hire(doomed)?;
                }
            }
        }
        Ok(())
    }

    /// SIGKILL, and a new worker in its place.
    fn kill(&mut self, number: u64, at: &str, doomed: bool) -> anyhow::Result<()> {
        let Some(mut worker) = self.workers.remove(&number) else { return Ok(()) };
        worker.child.start_kill().context("cannot kill a worker")?;
        self.tally.crashes += 1;
        *self.tally.killed_at.entry(at.to_owned()).or_default() += 1;
        self.tally.last = Some(at.to_owned());
        // Waited for elsewhere, so that it leaves no zombie and nobody waits for it.
        self.readers.spawn(async move {
            let _ = worker.child.wait().await;
        });
        self.hire(doomed)
    }

    /// Lets the workers end in order and hears them out.
    pub(super) async fn finish(mut self) -> anyhow::Result<Tally> {
        let mut ending: Vec<u64> = self.workers.keys().copied().collect();
        for worker in self.workers.values_mut() {
            worker.stdin = None;
        }
        let patience = tokio::time::sleep(Duration::from_secs(10));
        tokio::pin!(patience);
        while !ending.is_empty() {
            tokio::select! {
                Some((number, line)) = self.lines.recv() => match line {
                    Line::Received(count) => self.tally.deliveries += count,
                    Line::Ended => ending.retain(|ended| *ended != number),
                    // It hangs where it was told to: the last crashes of the run.
                    Line::HangsAt(name) => {
                        if let Some(worker) = self.workers.get_mut(&number) {
                            worker.child.start_kill().context("cannot kill a worker")?;
                            self.tally.crashes += 1;
                            *self.tally.killed_at.entry(name).or_default() += 1;
                        }
                    }
                    Line::Due | Line::Complaint(_) => {}
                },
                () = &mut patience => break,
            }
        }
        Ok(self.tally)
    }
}
