//! One process that the matrix starts: this program again, with a job to do, and what it says on its way.
//!
//! It reports on stdout, a line at a time, unbuffered, so that what it said survives its death. Its stdin stays open for
//! as long as it shall run.

use std::process::Stdio;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Where a process finds its job.
pub(crate) const JOB: &str = "ONCEBOX_CRASH_JOB";

pub(crate) struct Process {
    pub(crate) child: Child,
    /// Closed to ask for an orderly end.
    stdin: Option<ChildStdin>,
}

/// Something that happened to a process.
#[derive(Debug)]
pub(crate) enum Event {
    /// It came to its first crash point.
    Works,
    /// It received messages.
    Received(u64),
    /// It hangs at a crash point, to be killed.
    HangsAt(String),
    /// It stopped itself, to be continued.
    Stopped,
    /// It was stopped for long enough.
    Continue,
    /// Its time has come, wherever it is.
    Due,
    /// Commits whose answer was lost.
    Unknown(u64),
    /// A message of this key is about to be parked.
    Parks(u64),
    /// It found lanes of the outbox with a new owner.
    LanesLost,
    Complaint(String),
    Ended,
}

/// Where events go, each with the number of the process.
pub(crate) type Events = mpsc::Sender<(u64, Event)>;

impl Process {
    /// Starts `crash-matrix VERB` and listens to it, with `tasks` that end when it does.
    pub(crate) fn start(
        verb: &str,
        job: &impl Serialize,
        bug: Option<&str>,
        number: u64,
        events: &Events,
        tasks: &mut JoinSet<()>,
    ) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
        command.arg(verb).env(JOB, serde_json::to_string(job)?).env("ONCEBOX_PLANTED", bug.unwrap_or(""));
        // Its last words are to say what happened, not where.
        command.env("RUST_BACKTRACE", "0");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().context("cannot start a process")?;
        let stdin = child.stdin.take();
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (say, talk) = (events.clone(), events.clone());
        tasks.spawn(async move {
            let Some(stdout) = stdout else { return };
            let mut lines = BufReader::new(stdout).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(event) = Event::read(&line) {
                    let _ = say.send((number, event)).await;
                }
            }
            let _ = say.send((number, Event::Ended)).await;
        });
        tasks.spawn(async move {
            let Some(stderr) = stderr else { return };
            let mut lines = BufReader::new(stderr).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let _ = talk.send((number, Event::Complaint(line))).await;
            }
        });
        Ok(Self { child, stdin })
    }

    pub(crate) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let Some(pid) = pid else { return Ok(()) };
        kill_process(pid, signal).context("cannot signal a process")
    }

    /// SIGKILL, waited for by one of `tasks`, so that it leaves no zombie and nobody waits for it.
    pub(crate) fn kill(mut self, tasks: &mut JoinSet<()>) -> anyhow::Result<()> {
        self.child.start_kill().context("cannot kill a process")?;
        tasks.spawn(async move {
            let _ = self.child.wait().await;
        });
        Ok(())
    }

    /// Asks for an orderly end, unless it has ended by itself.
    pub(crate) fn ask_to_end(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.stdin = None;
        }
    }

    /// Waits for one that said that it ends. Says how, if it was asked to and did not end in order.
    pub(crate) async fn bad_end(&mut self) -> anyhow::Result<Option<String>> {
        let was_asked = self.stdin.is_none();
        let status = self.child.wait().await.context("cannot wait for a process")?;
        Ok((was_asked && !status.success()).then(|| status.to_string()))
    }
}

impl Event {
    fn read(line: &str) -> Option<Self> {
        match line.split_once(' ')? {
            ("works", _) => Some(Self::Works),
            ("received", count) => Some(Self::Received(count.parse().ok()?)),
            ("at", name) => Some(Self::HangsAt(name.to_owned())),
            ("stopped", _) => Some(Self::Stopped),
            ("unknown", count) => Some(Self::Unknown(count.parse().ok()?)),
            ("parks", key) => Some(Self::Parks(key.parse().ok()?)),
            ("lost", _) => Some(Self::LanesLost),
            _ => None,
        }
    }
}
