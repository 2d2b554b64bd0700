//! The proxy in front of a server that sends everything back.

#![cfg(feature = "proxy")]
#![allow(clippy::unwrap_used, reason = "a test that panics has said what it found")]

use std::net::SocketAddr;
use std::time::Duration;

use oncebox_testkit::proxy::{CommitCut, Proxy, Way};
use oncebox_testkit::{eventually, stays_pending};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

const STARTUP: &[u8] = b"\0\0\0\x08\0\x03\0\0";
const COMMIT: &[u8] = b"Q\0\0\0\x0bCOMMIT\0";

/// Sends everything back, and notes it.
struct Echo {
    addr: SocketAddr,
    heard: mpsc::UnboundedReceiver<Vec<u8>>,
    _tasks: JoinSet<()>,
}

impl Echo {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (note, heard) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut connection, _)) = listener.accept().await {
                let note = note.clone();
                connections.spawn(async move {
                    let mut piece = vec![0; 1024];
                    while let Ok(read @ 1..) = connection.read(&mut piece).await {
                        let _ = note.send(piece[..read].to_vec());
                        if connection.write_all(&piece[..read]).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self { addr, heard, _tasks: tasks }
    }

    /// Waits until this, and no more, has reached it since it was asked last.
    async fn hears(&mut self, what: &[u8]) {
        let mut heard = Vec::new();
        while heard.len() < what.len() {
            heard.extend(self.heard.recv().await.unwrap());
        }
        heard.extend(std::iter::from_fn(|| self.heard.try_recv().ok()).flatten());
        assert_eq!(heard, what);
    }
}

async fn set_up() -> (Echo, Proxy, TcpStream) {
    let echo = Echo::start().await;
    let proxy = Proxy::start(echo.addr).await.unwrap();
    let client = TcpStream::connect(proxy.addr()).await.unwrap();
    (echo, proxy, client)
}

/// Says something and waits until all of it has come back.
async fn say(client: &mut TcpStream, what: &[u8]) {
    client.write_all(what).await.unwrap();
    hear(client, what).await;
}

async fn hear(client: &mut TcpStream, what: &[u8]) {
    let mut back = vec![0; what.len()];
    client.read_exact(&mut back).await.unwrap();
    assert_eq!(back, what);
}

/// What still comes before the connection ends, by a close or a reset.
async fn rest(client: &mut TcpStream) -> Vec<u8> {
    let (mut all, mut piece) = (Vec::new(), [0; 1024]);
    while let Ok(read @ 1..) = client.read(&mut piece).await {
        all.extend_from_slice(&piece[..read]);
    }
    all
}

#[tokio::test]
async fn without_faults_everything_passes() {
    let (_echo, proxy, mut client) = set_up().await;
    say(&mut client, STARTUP).await;
    say(&mut client, COMMIT).await;
    say(&mut client, &[7; 500]).await;
    assert_eq!(proxy.cuts(), 0);
}

#[tokio::test]
async fn a_connection_is_cut_after_so_many_bytes_and_the_next_one_is_whole() {
    for way in [Way::ToServer, Way::ToClient] {
        let (mut echo, proxy, mut client) = set_up().await;
        proxy.cut_after(way, 6);
        say(&mut client, b"abcd").await;
        client.write_all(b"efgh").await.unwrap();
        let rest = rest(&mut client).await;
        eventually("the cut is counted", async || proxy.cuts() == 1).await;
        match way {
            Way::ToServer => echo.hears(b"abcdef").await,
            Way::ToClient => {
                echo.hears(b"abcdefgh").await;
                assert_eq!(rest, b"ef");
            }
        }
        let mut next = TcpStream::connect(proxy.addr()).await.unwrap();
        say(&mut next, b"abcdefghijkl").await;
    }
}

#[tokio::test]
async fn a_delay_holds_each_way_once() {
    let (_echo, proxy, mut client) = set_up().await;
    proxy.delay(Duration::from_millis(30));
    let since = Instant::now();
    say(&mut client, b"ping").await;
    assert!(since.elapsed() >= Duration::from_millis(60));
}

#[tokio::test]
async fn a_black_hole_forwards_nothing_until_it_is_healed() {
    let (mut echo, proxy, mut client) = set_up().await;
    proxy.black_hole();
    client.write_all(b"ping").await.unwrap();
    let mut piece = [0; 4];
    assert!(stays_pending(client.read(&mut piece)).await, "nothing comes back");
    echo.hears(b"").await;
    proxy.heal();
    hear(&mut client, b"ping").await;
}

#[tokio::test]
async fn a_half_open_connection_hears_no_answers() {
    let (mut echo, proxy, mut client) = set_up().await;
    proxy.half_open();
    client.write_all(b"ping").await.unwrap();
    echo.hears(b"ping").await;
    let mut piece = [0; 4];
    assert!(stays_pending(client.read(&mut piece)).await, "nothing comes back");
    proxy.heal();
    hear(&mut client, b"ping").await;
}

#[tokio::test]
async fn a_commit_is_cut_on_the_side_that_was_asked_for() {
    for cut in [CommitCut::BeforeForwarding, CommitCut::AfterForwarding, CommitCut::Late, CommitCut::Orphaned] {
        let (mut echo, proxy, mut client) = set_up().await;
        proxy.pass_commits(1);
        proxy.cut_at_commit(cut, 1);
        say(&mut client, STARTUP).await;
        say(&mut client, COMMIT).await;
        echo.hears(&[STARTUP, COMMIT].concat()).await;
        for byte in COMMIT {
            client.write_all(&[*byte]).await.unwrap();
        }
        assert_eq!(rest(&mut client).await, b"", "{cut:?}: no byte of an answer");
        eventually("the cut is counted", async || proxy.cuts() == 1).await;
        let arrives = matches!(cut, CommitCut::AfterForwarding | CommitCut::Late);
        echo.hears(if arrives { COMMIT } else { b"" }).await;
        let mut next = TcpStream::connect(proxy.addr()).await.unwrap();
        say(&mut next, &[STARTUP, COMMIT].concat()).await;
    }
}

#[tokio::test]
async fn a_proxy_that_is_dropped_closes_its_connections() {
    let (_echo, proxy, mut client) = set_up().await;
    say(&mut client, b"ping").await;
    drop(proxy);
    assert_eq!(rest(&mut client).await, b"");
}
