//! What the generator did, in a file of its own. The auditor believes this file and the business tables, and no counter
//! of what is being tested.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::feed::Order;

/// One line of the file.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Entry {
    /// About to be sent for the first time.
    Issued(Order),
    /// Sent: the broker or the queue has it for certain.
    Acknowledged(u64),
    /// It may have been sent.
    Unknown(u64),
}

/// The file, while it is written.
pub(crate) struct Writer(BufWriter<File>);

impl Writer {
    pub(crate) fn create(path: &Path) -> anyhow::Result<Self> {
        Ok(Self(BufWriter::new(File::create(path).context("cannot create the history")?)))
    }

    pub(crate) fn issued(&mut self, order: &Order) -> anyhow::Result<()> {
        self.write(&Entry::Issued(order.clone()))
    }

    pub(crate) fn sent(&mut self, orders: &[Order], known: bool) -> anyhow::Result<()> {
        for order in orders {
            self.write(&if known { Entry::Acknowledged(order.n) } else { Entry::Unknown(order.n) })?;
        }
        Ok(())
    }

    pub(crate) fn close(mut self) -> anyhow::Result<()> {
        self.0.flush().context("cannot write the history")
    }

    fn write(&mut self, entry: &Entry) -> anyhow::Result<()> {
        serde_json::to_writer(&mut self.0, entry)?;
        self.0.write_all(b"\n").context("cannot write the history")
    }
}

/// What is known of a message.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) order: Order,
    /// It was sent for certain, at least once.
    pub(crate) acknowledged: bool,
}

/// Reads the file again, by the number of the message.
pub(crate) fn read(path: &Path) -> anyhow::Result<BTreeMap<u64, Known>> {
    let mut known = BTreeMap::new();
    for line in BufReader::new(File::open(path).context("cannot open the history")?).lines() {
        match serde_json::from_str(&line?).context("the history holds something else than entries")? {
            Entry::Issued(order) => {
                known.insert(order.n, Known { order, acknowledged: false });
            }
            Entry::Acknowledged(n) => {
                known.get_mut(&n).context("acknowledged, and never issued")?.acknowledged = true;
            }
            Entry::Unknown(_) => {}
        }
    }
    Ok(known)
}
