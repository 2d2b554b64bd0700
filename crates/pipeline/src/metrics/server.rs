//! A small HTTP server for those who watch.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use oncebox::counting::Overview;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::families;
use super::health::Health;
use crate::file::MetricsSpec;

/// Connections at a time; one more waits until another ends.
const CONNECTIONS_MAX: usize = 32;

/// How long a request may take to arrive, and a connection to be idle.
const HEADERS_MAX: Duration = Duration::from_secs(10);

/// The longest that one connection lasts: nobody keeps a place for ever.
const CONNECTION_MAX: Duration = Duration::from_secs(300);

/// Between two tries when the system gives no more connections.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// An open address, before there is something to tell.
#[derive(Debug)]
pub(crate) struct Door {
    listener: TcpListener,
    /// The one that the system gave, where `listen` has port 0.
    pub(crate) address: SocketAddr,
    pub(crate) told: Arc<Told>,
}

/// What is told.
#[derive(Debug)]
pub(crate) struct Told {
    /// Set when counting has begun.
    pub(crate) overview: OnceLock<Arc<Overview>>,
    health: Health,
}

impl Door {
    /// Takes the address; or says why it can't be had.
    pub(crate) async fn open(spec: &MetricsSpec) -> Result<Self, String> {
        let listener = TcpListener::bind(spec.listen).await;
        let listener = listener.map_err(|error| {
            format!("cannot serve metrics at {}: {error}; choose another `listen`, or end who has it", spec.listen)
        })?;
        let address = listener.local_addr().unwrap_or(spec.listen);
        let told = Told { overview: OnceLock::new(), health: Health::new(spec.stuck_after) };
        Ok(Self { listener, address, told: Arc::new(told) })
    }
}

/// Serves until it is dropped.
pub(crate) async fn serve(door: Door) {
    let Door { listener, told, .. } = door;
    let mut tasks = JoinSet::new();
    let watched = Arc::clone(&told);
    tasks.spawn(async move {
        loop {
            if let Some(overview) = watched.overview.get() {
                watched.health.look(overview);
            }
            tokio::time::sleep(watched.health.look_every()).await;
        }
    });
    loop {
        // The watcher is one of the tasks.
        while tasks.len() > CONNECTIONS_MAX {
            tasks.join_next().await;
        }
        while tasks.try_join_next().is_some() {}
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let told = Arc::clone(&told);
        tasks.spawn(async move {
            let service = service_fn(move |request| {
                let answer = answer(&request, &told);
                std::future::ready(Ok::<_, Infallible>(answer))
            });
            let mut http = hyper::server::conn::http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HEADERS_MAX);
            // Whoever went away in the middle needs no answer.
            let _ = tokio::time::timeout(CONNECTION_MAX, http.serve_connection(TokioIo::new(stream), service)).await;
        });
    }
}

const PLAIN: &str = "text/plain; charset=utf-8";

fn answer(request: &Request<Incoming>, told: &Told) -> Response<Full<Bytes>> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return with(StatusCode::METHOD_NOT_ALLOWED, PLAIN, "only GET\n".to_owned());
    }
    let overview = told.overview.get();
    match request.uri().path() {
        "/metrics" => {
            let text = overview.map(|overview| families::render(overview, &told.health.stuck())).unwrap_or_default();
            with(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text)
        }
        "/healthz" => with(StatusCode::OK, PLAIN, "alive\n".to_owned()),
        "/readyz" => {
            let reasons =
                overview.map_or_else(|| vec!["it is just starting".to_owned()], |all| told.health.reasons(all));
            if reasons.is_empty() {
                return with(StatusCode::OK, PLAIN, "ready\n".to_owned());
            }
            with(StatusCode::SERVICE_UNAVAILABLE, PLAIN, format!("not ready:\n- {}\n", reasons.join("\n- ")))
        }
        _ => with(StatusCode::NOT_FOUND, PLAIN, "there are /metrics, /healthz and /readyz\n".to_owned()),
    }
}

fn with(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
