//! A TCP proxy that loses what a network can lose.
//!
//! ```text
//!  client ──▶ [delay · hold · cut after n bytes · watch for COMMIT] ──▶ server
//!         ◀── [delay · hold · cut after n bytes]                    ◀──
//! ```
//!
//! What goes wrong is planned on the [`Proxy`] and holds for the connections that are open as well as for those to
//! come. A connection is carried by one task; where either side closes, or a fault cuts, both sides are closed.

mod commit;
mod plan;

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use commit::{Found, Scanner};
use plan::Plan;
pub use plan::{CommitCut, Way};

/// How long a [`CommitCut::Late`] commit is on its way after the client has lost its connection: long enough that the
/// client is already looking for what became of it, short enough that it does not always find out first.
const LATE: Duration = Duration::from_millis(8);

/// A proxy in front of one server. Dropped, it closes everything.
pub struct Proxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

struct Shared {
    upstream: Mutex<SocketAddr>,
    /// Changed by the test and used up by connections, which also wait on it for faults to end.
    plan: watch::Sender<Plan>,
    cuts: AtomicU64,
}

impl Shared {
    fn upstream(&self) -> MutexGuard<'_, SocketAddr> {
        self.upstream.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a connection is not carried any further.
enum End {
    Closed,
    Cut,
    Commit(Found),
}

impl Proxy {
    /// Listens on a free port of the loopback interface and forwards to `upstream`.
    pub async fn start(upstream: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let addr = listener.local_addr()?;
        let shared = Arc::new(Shared {
            upstream: Mutex::new(upstream),
            plan: watch::Sender::new(Plan::default()),
            cuts: AtomicU64::new(0),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { addr, shared, _tasks: tasks })
    }

    /// Forwards connections to come to another server, as a failover does. Those that are open stay where they are.
    pub fn redirect(&self, upstream: SocketAddr) {
        *self.shared.upstream() = upstream;
    }

    /// Where clients connect to.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// How many connections were cut on purpose.
    pub fn cuts(&self) -> u64 {
        self.shared.cuts.load(SeqCst)
    }

    /// Lets `bytes` more pass this way, over all connections, and cuts the connection that would exceed them. Once.
    pub fn cut_after(&self, way: Way, bytes: usize) {
        self.shared.plan.send_modify(|plan| *plan.left(way) = Some(bytes));
    }

    /// Holds each piece for this long before it is forwarded.
    pub fn delay(&self, delay: Duration) {
        self.shared.plan.send_modify(|plan| plan.delay = delay);
    }

    /// Accepts connections and forwards nothing, either way.
    pub fn black_hole(&self) {
        self.shared.plan.send_modify(|plan| plan.black_hole = true);
    }

    /// Forwards what clients say, and no answers.
    pub fn half_open(&self) {
        self.shared.plan.send_modify(|plan| plan.half_open = true);
    }

    /// Cuts the connections of the next `times` commits, after those that were planned before.
    pub fn cut_at_commit(&self, cut: CommitCut, times: usize) {
        self.shared.plan.send_modify(|plan| plan.commits.extend(std::iter::repeat_n(Some(cut), times)));
    }

    /// Lets the next `times` commits pass, after those that were planned before.
    pub fn pass_commits(&self, times: usize) {
        self.shared.plan.send_modify(|plan| plan.commits.extend(std::iter::repeat_n(None, times)));
    }

    /// Ends all faults. What was held is forwarded, as TCP does once a network is back.
    pub fn heal(&self) {
        self.shared.plan.send_modify(|plan| *plan = Plan::default());
    }
}

impl Shared {
    /// Uses the plan up without waking those who wait for faults to end.
    fn take<T>(&self, take: impl FnOnce(&mut Plan) -> Option<T>) -> Option<T> {
        let mut taken = None;
        self.plan.send_if_modified(|plan| {
            taken = take(plan);
            false
        });
        taken
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                // A client that is gone before it was accepted is no reason to stop.
                let Ok((client, _)) = accepted else { continue };
                connections.spawn(carry(client, Arc::clone(&shared)));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Carries one connection to its end. Errors end it as a close does: the other side gets to see that much.
async fn carry(mut client: TcpStream, shared: Arc<Shared>) {
    let to = *shared.upstream();
    let Ok(mut server) = TcpStream::connect(to).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let end = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        tokio::select! {
            end = forward(&shared, Way::ToServer, from_client, to_server) => end,
            end = forward(&shared, Way::ToClient, from_server, to_client) => end,
        }
    };
    match end.unwrap_or(End::Closed) {
        End::Closed => return,
        End::Cut | End::Commit((CommitCut::BeforeForwarding, _)) => {}
        End::Commit((CommitCut::AfterForwarding, message)) => {
            let _ = server.write_all(&message).await;
            let _ = server.read(&mut [0; 64]).await;
        }
        End::Commit((cut @ (CommitCut::Late | CommitCut::Orphaned), message)) => {
            shared.cuts.fetch_add(1, SeqCst);
            drop(client);
            if cut == CommitCut::Late {
                sleep(LATE).await;
                let _ = server.write_all(&message).await;
                let _ = server.shutdown().await;
            }
            // Until the server is through: a reset could take the commit back from its socket.
            while matches!(server.read(&mut [0; 64]).await, Ok(1..)) {}
            return;
        }
    }
    shared.cuts.fetch_add(1, SeqCst);
}

async fn forward(
    shared: &Shared,
    way: Way,
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
) -> io::Result<End> {
    let mut scanner = Scanner::default();
    let mut plan = shared.plan.subscribe();
    let (mut piece, mut ready) = (vec![0; 16 * 1024], Vec::new());
    loop {
        let read = from.read(&mut piece).await?;
        if read == 0 {
            return Ok(End::Closed);
        }
        let delay = plan.borrow().delay;
        if !delay.is_zero() {
            sleep(delay).await;
        }
        // Fails only if the sender is gone, and we hold it.
        let _ = plan.wait_for(|plan| !plan.holds(way)).await;
        ready.clear();
        let mut cut = None;
        match way {
            Way::ToClient => ready.extend_from_slice(&piece[..read]),
            Way::ToServer => cut = scanner.scan(&piece[..read], &mut ready, || shared.take(Plan::next_commit)),
        }
        if let Some(allowed) = shared.take(|plan| plan.allowance(way, ready.len())) {
            to.write_all(&ready[..allowed]).await?;
            return Ok(End::Cut);
        }
        to.write_all(&ready).await?;
        if let Some(cut) = cut {
            return Ok(End::Commit(cut));
        }
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let upstream = *self.shared.upstream();
        f.debug_struct("Proxy").field("addr", &self.addr).field("upstream", &upstream).finish_non_exhaustive()
    }
}
