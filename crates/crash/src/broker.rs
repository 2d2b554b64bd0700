//! A broker outside of the store: it delivers at least once, and forgets only what it was told is done. What a
//! connection held when it broke is delivered again. With partitions, each connection is an owner of some of them, until
//! they change hands.
//!
//! It lives in the process of the matrix, which nobody kills. Frames both ways are a length and JSON.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::feed::Order;
use oncebox_sim::partitions::{Owner, Partitions, Receipt};

/// What a client asks.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) enum Ask {
    Receive(usize),
    Ack(Vec<u64>),
    Release(Vec<u64>),
}

/// What it gets: messages with their delivery tags and counts. Empty for everything but `Receive`.
pub(crate) type Answer = Vec<(u64, u32, Order)>;

pub(crate) struct Broker {
    addr: SocketAddr,
    shelf: Arc<Mutex<Shelf>>,
    _tasks: JoinSet<()>,
}

/// Partitions of a broker that has them.
const PARTITIONS: usize = 6;

#[derive(Default)]
struct Shelf {
    /// Where messages are, and under which tags they are out, if there are partitions.
    parted: Option<(Partitions<Order>, HashMap<u64, Receipt>)>,
    next_owner: Owner,
    ready: VecDeque<Order>,
    held: BTreeMap<u64, Order>,
    /// How often each message was delivered.
    counts: HashMap<u64, u32>,
    next_tag: u64,
}

impl Broker {
    pub(crate) async fn start(parted: bool) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("cannot open the broker's port")?;
        let addr = listener.local_addr()?;
        let parted = parted.then(|| (Partitions::new(PARTITIONS), HashMap::new()));
        let shelf = Arc::new(Mutex::new(Shelf { parted, ..Shelf::default() }));
        let mut tasks = JoinSet::new();
        let shared = Arc::clone(&shelf);
        tasks.spawn(async move {
            let mut clients = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                while clients.try_join_next().is_some() {}
                let shelf = Arc::clone(&shared);
                clients.spawn(async move { serve(stream, &shelf).await });
            }
        });
        Ok(Self { addr, shelf, _tasks: tasks })
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(crate) fn send(&self, orders: &[Order]) {
        let mut shelf = lock(&self.shelf);
        match &mut shelf.parted {
            Some((partitions, _)) => {
                orders.iter().for_each(|order| partitions.send(order.clone(), Some(order.key.to_string())));
            }
            None => shelf.ready.extend(orders.iter().cloned()),
        }
    }

    /// Gives the partition of this key to another reader, without a word to its owner.
    pub(crate) fn pass_on(&self, key: u64) {
        if let Some((partitions, _)) = &mut lock(&self.shelf).parted {
            let partition = partitions.of(&key.to_string());
            partitions.pass_on(partition, key as usize);
        }
    }

    /// What was sent and is not done.
    pub(crate) fn backlog(&self) -> usize {
        let shelf = lock(&self.shelf);
        let parted = shelf.parted.as_ref().map_or(0, |(partitions, _)| partitions.left().len());
        shelf.ready.len() + shelf.held.len() + parted
    }
}

/// Serves one client until it goes; then what it held is ready again.
async fn serve(mut stream: TcpStream, shelf: &Mutex<Shelf>) {
    let mut held: Vec<u64> = Vec::new();
    let owner = join(&mut lock(shelf));
    while let Ok(ask) = read::<Ask>(&mut stream).await {
        let answer = {
            let mut shelf = lock(shelf);
            let Shelf { parted, next_tag, .. } = &mut *shelf;
            match parted {
                Some(parted) => answer_parted(ask, owner, parted, next_tag),
                None => answer(ask, &mut held, &mut shelf),
            }
        };
        if write(&mut stream, &answer).await.is_err() {
            break;
        }
    }
    let mut shelf = lock(shelf);
    give_back(held, &mut shelf);
    if let Some((partitions, _)) = &mut shelf.parted {
        partitions.leave(owner);
    }
}

fn join(shelf: &mut Shelf) -> Owner {
    shelf.next_owner += 1;
    if let Some((partitions, _)) = &mut shelf.parted {
        partitions.join(shelf.next_owner);
    }
    shelf.next_owner
}

fn answer_parted(
    ask: Ask,
    owner: Owner,
    (partitions, out): &mut (Partitions<Order>, HashMap<u64, Receipt>),
    next_tag: &mut u64,
) -> Answer {
    match ask {
        Ask::Receive(max) => {
            let received = partitions.receive(owner, max, 0).into_iter();
            let tagged = received.map(|(receipt, order)| {
                *next_tag += 1;
                out.insert(*next_tag, receipt);
                (*next_tag, receipt.count, order)
            });
            tagged.collect()
        }
        Ask::Ack(tags) => {
            tags.iter().filter_map(|tag| out.remove(tag)).for_each(|receipt| {
                partitions.ack(&receipt);
            });
            Vec::new()
        }
        Ask::Release(tags) => {
            tags.iter().filter_map(|tag| out.remove(tag)).for_each(|receipt| partitions.release(&receipt, 0));
            Vec::new()
        }
    }
}

fn answer(ask: Ask, held: &mut Vec<u64>, shelf: &mut Shelf) -> Answer {
    match ask {
        Ask::Receive(max) => {
            let mut answer = Vec::new();
            while answer.len() < max
                && let Some(order) = shelf.ready.pop_front()
            {
                shelf.next_tag += 1;
                shelf.held.insert(shelf.next_tag, order.clone());
                held.push(shelf.next_tag);
                let count = shelf.counts.entry(order.n).and_modify(|count| *count += 1).or_insert(1);
                answer.push((shelf.next_tag, *count, order));
            }
            answer
        }
        Ask::Ack(tags) => {
            held.retain(|tag| !tags.contains(tag));
            for tag in tags {
                if let Some(order) = shelf.held.remove(&tag) {
                    // A copy is a message of its own to the broker.
                    shelf.counts.remove(&order.n);
                }
            }
            Vec::new()
        }
        Ask::Release(tags) => {
            held.retain(|tag| !tags.contains(tag));
            give_back(tags, shelf);
            Vec::new()
        }
    }
}

fn give_back(tags: Vec<u64>, shelf: &mut Shelf) {
    for tag in tags.into_iter().rev() {
        if let Some(order) = shelf.held.remove(&tag) {
            shelf.ready.push_front(order);
        }
    }
}

fn lock(shelf: &Mutex<Shelf>) -> MutexGuard<'_, Shelf> {
    shelf.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) async fn read<T: for<'de> Deserialize<'de>>(stream: &mut TcpStream) -> anyhow::Result<T> {
    let mut frame = vec![0; stream.read_u32().await? as usize];
    stream.read_exact(&mut frame).await?;
    Ok(serde_json::from_slice(&frame)?)
}

pub(crate) async fn write<T: Serialize>(stream: &mut TcpStream, value: &T) -> anyhow::Result<()> {
    let json = serde_json::to_vec(value)?;
    let mut frame = u32::try_from(json.len())?.to_be_bytes().to_vec();
    frame.extend(json);
    Ok(stream.write_all(&frame).await?)
}
