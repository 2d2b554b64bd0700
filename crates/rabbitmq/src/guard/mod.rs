//! Between the socket and the client: what the client could not survive or read is taken out of a message's properties
//! before the client sees them.
//!
//! ```text
//!  broker ──bytes──▶ frames ──▶ client
//!                      ├── content header: properties ──▶ as they are, or without what cannot be read or is too long
//!                      └── delivery: routing key ───────▶ as it is, or with ? where it is not UTF-8
//! ```
//!
//! The client reads nested tables by recursion on a small stack, which ends the process, and gives up the whole connection
//! over one name that is not UTF-8, before there is a delivery tag to get past it with. Producers write both with ease. The
//! message itself is delivered; what was taken out comes along beside it, byte for byte, in [`Unread`].
//!
//! It ends the connection over a frame that is larger than was agreed on, too, and brokers send content headers that are.
//! Headers too long for a frame go the same way, and are put back before the message is read: none of it is missing.

mod frames;
mod methods;
mod properties;

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use async_rs::traits::Reactor;
use async_rs::util::RuntimeParts;
use async_rs::{Runtime, Tokio, TokioRuntime};
use futures_util::Stream;
use futures_util::io::{AsyncRead, AsyncWrite};
use lapin::tcp::AMQPUriTcpExt;
use lapin::types::AMQPValue;
use lapin::uri::AMQPUri;
use lapin::{AsyncTcpStream, BasicProperties, Connection, ConnectionProperties, Error};

use self::frames::Frames;

/// Headers that could not be read, under names of our own, as they came.
pub(crate) type Lost = Vec<(String, Vec<u8>)>;

/// What was taken out of a message.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    lost: Lost,
    /// The entries of its header table, if they were too long for a frame.
    aside: Vec<u8>,
}

/// Read from the socket at a time.
const CHUNK: usize = 64 << 10;

/// Connects with a guard in between.
pub(crate) async fn connect(
    uri: AMQPUri,
    properties: ConnectionProperties,
) -> Result<(Connection, Arc<Unread>), Error> {
    let unread = Arc::new(Unread::default());
    let kept = Arc::clone(&unread);
    let frame_max = uri.query.frame_max.unwrap_or_default();
    let tokio = TokioRuntime::tokio_current();
    let runtime = Runtime::new(RuntimeParts::new(Tokio::current(), Guarding(Tokio::current())));
    let connected = Connection::connector(
        uri,
        runtime,
        async move |uri, _| {
            let socket = uri.connect_async(&tokio).await.map_err(Error::from)?;
            Ok(AsyncTcpStream::Plain(Guarded::new(socket, Frames::new(Arc::clone(&kept), frame_max))))
        },
        properties,
    );
    Ok((connected.await?, unread))
}

/// What was taken out of messages that were not looked at yet, by the number that each was marked with.
#[derive(Debug, Default)]
pub(crate) struct Unread(Mutex<Numbered>);

#[derive(Debug, Default)]
struct Numbered {
    last: i64,
    kept: BTreeMap<i64, Kept>,
}

impl Unread {
    fn keep(&self, kept: Kept) -> i64 {
        let mut numbered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        numbered.last += 1;
        let number = numbered.last;
        numbered.kept.insert(number, kept);
        number
    }

    /// Puts back what was put aside of the message with these properties, and answers what cannot be read of it; mostly
    /// nothing.
    pub(crate) fn take(&self, properties: &mut BasicProperties) -> Lost {
        let mark = properties.headers().as_ref().and_then(|headers| headers.inner().get(properties::MARK));
        let Some(AMQPValue::LongLongInt(number)) = mark else { return Lost::new() };
        let mut numbered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Kept { lost, aside } = numbered.kept.remove(number).unwrap_or_default();
        drop(numbered);
        if let Some(headers) = (!aside.is_empty()).then(|| properties::headers_of(&aside)).flatten() {
            *properties = std::mem::take(properties).with_headers(headers);
        }
        lost
    }
}

/// What a property, or a part of what was said on delivery, was as it came; `None` if it could be read, or was not there.
pub(crate) fn unread<'l>(lost: &'l Lost, what: &str) -> Option<&'l [u8]> {
    let is_it = |name: &str| name.strip_prefix(properties::UNREADABLE) == Some(what);
    lost.iter().find(|(name, _)| is_it(name)).map(|(_, bytes)| bytes.as_slice())
}

/// Whether a header is the guard's own. It takes those of others out.
pub(crate) fn is_mark(name: &str) -> bool {
    name == properties::MARK
}

/// A socket that is read through the guard.
struct Guarded {
    socket: AsyncTcpStream<<Tokio as Reactor>::TcpStream>,
    frames: Frames,
    chunk: Box<[u8]>,
    /// What may be read, from `read` on.
    fit: Vec<u8>,
    read: usize,
}

impl Guarded {
    fn new(socket: AsyncTcpStream<<Tokio as Reactor>::TcpStream>, frames: Frames) -> Self {
        let chunk = vec![0; CHUNK].into_boxed_slice();
        Self { socket, frames, chunk, fit: Vec::new(), read: 0 }
    }
}

impl AsyncRead for Guarded {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        while this.read == this.fit.len() {
            let count = ready!(Pin::new(&mut this.socket).poll_read(context, &mut this.chunk))?;
            if count == 0 {
                return Poll::Ready(Ok(0));
            }
            this.fit.clear();
            this.read = 0;
            this.frames.feed(&this.chunk[..count], &mut this.fit);
        }
        let waiting = &this.fit[this.read..];
        let count = waiting.len().min(into.len());
        into[..count].copy_from_slice(&waiting[..count]);
        this.read += count;
        Poll::Ready(Ok(count))
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_close(context)
    }
}

/// Tokio, for a client whose sockets are guarded ones. The client asks it for timers only: sockets come from [`connect`].
#[derive(Clone, Debug)]
struct Guarding(Tokio);

impl Reactor for Guarding {
    type TcpStream = Guarded;
    type Sleep = <Tokio as Reactor>::Sleep;

    fn register<H: Read + Write + Send + 'static>(
        &self,
        _socket: H,
    ) -> io::Result<impl AsyncRead + AsyncWrite + Send + Unpin + 'static> {
        Err::<Guarded, _>(io::Error::from(io::ErrorKind::Unsupported))
    }

    fn sleep(&self, pause: Duration) -> Self::Sleep {
        self.0.sleep(pause)
    }

    fn interval(&self, pause: Duration) -> impl Stream<Item = Instant> + Send + 'static {
        self.0.interval(pause)
    }

    fn tcp_connect_addr(
        &self,
        address: SocketAddr,
    ) -> impl Future<Output = io::Result<Self::TcpStream>> + Send + 'static {
        let socket = self.0.tcp_connect_addr(address);
        async move { Ok(Guarded::new(AsyncTcpStream::Plain(socket.await?), Frames::new(Arc::default(), 0))) }
    }
}
