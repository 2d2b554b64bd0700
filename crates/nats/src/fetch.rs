//! One request for deliveries.
//!
//! The client library's answer to "nothing there" and to "no server there" is the same empty list, five seconds late. So
//! this looks at the connection while it waits, and asks after the consumer when the server complains.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::Message;
use futures_util::StreamExt as _;
use oncebox_core::Delivery;
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::{self, Trouble};
use crate::headers;
use crate::link::{ANSWER_MAX, Link};
use crate::place::Place;
use crate::receipt::{JetStreamReceipt, lease_end};
use crate::source::Open;

/// How often to look at the connection, and at whether messages wait in the client library.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long to wait for more once something came. Usually the server says at once that there is no more; it does not when
/// other processes have taken what `max_ack_pending` allows, and what came must not age until `wait` is over.
const MORE_MAX: Duration = Duration::from_millis(200);

/// How long after the end of the wait the server may still be on its way to say so.
const LATE_MAX: Duration = Duration::from_secs(1);

/// Why a request brought nothing.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The connection was lost while deliveries were on their way. Maybe by one of them: the client library breaks off when
    /// it meets headers that are not text.
    Off,
    /// The client library's task is gone, and no reconnect will follow: it panics on some headers.
    ForGood,
    Otherwise(Trouble),
}

impl From<Trouble> for Broken {
    fn from(trouble: Trouble) -> Self {
        Self::Otherwise(trouble)
    }
}

pub(crate) async fn fetch(
    open: &Open,
    wanted: usize,
    deadline: Instant,
) -> Result<Vec<Delivery<JetStreamReceipt>>, Broken> {
    if !open.link.is_up() {
        return Err(Link::down().into());
    }
    let connects = open.link.connects();
    let wait = deadline.saturating_duration_since(Instant::now()).min(open.settings.wait_max);
    let mut give_up = Instant::now() + wait + LATE_MAX;
    // The last moment at which nothing waited in the client library: a message that is taken out now came later.
    let mut empty_at = Instant::now();
    let mut request = open.consumer.fetch().max_messages(wanted);
    if !wait.is_zero() {
        request = request.expires(wait);
    }
    let asked = timeout(ANSWER_MAX, request.messages()).await;
    let mut messages = match asked {
        Ok(Ok(messages)) => messages,
        // It is only handed to the library's task here, which fails if there is none.
        Ok(Err(_)) => return Err(Broken::ForGood),
        Err(_) => return Err(Broken::Off),
    };
    let mut got = Vec::new();
    loop {
        let look = (Instant::now() + LOOK_EVERY).min(give_up);
        match timeout_at(look, messages.next()).await {
            Ok(Some(Ok(message))) => {
                got.push(delivery(open, &message, empty_at)?);
                give_up = Instant::now() + MORE_MAX;
            }
            Ok(Some(Err(_))) if got.is_empty() => return Err(diagnose(open).await.into()),
            // What the server complains of will be met by the next request.
            Ok(Some(Err(_)) | None) => break,
            Err(_) => {
                empty_at = Instant::now();
                // A request from before a reconnect is forgotten by the server.
                if empty_at >= give_up || !open.link.is_up() || open.link.connects() != connects {
                    break;
                }
            }
        }
    }
    if got.is_empty() && (!open.link.is_up() || open.link.connects() != connects) {
        return Err(Broken::Off);
    }
    Ok(got)
}

fn delivery(open: &Open, message: &Message, empty_at: Instant) -> Result<Delivery<JetStreamReceipt>, Trouble> {
    let reply = message.reply.clone().unwrap_or_else(|| "".into());
    let Some(place) = Place::read(&reply) else {
        return Err(Trouble::setting("a message came that JetStream did not send; look who else publishes to inboxes"));
    };
    let content = headers::read(message.headers.as_ref(), message.payload.clone(), &message.subject, place.time());
    let (coordinate, count) = (place.coordinate(), place.count());
    let until = lease_end(empty_at, open.settings.lease);
    let receipt = JetStreamReceipt::new(reply.clone(), until, Arc::clone(&open.room));
    let mut delivery = Delivery::new(content, receipt);
    open.room.take(delivery.receipt());
    delivery.coordinate = Some(coordinate);
    delivery.count = Some(count);
    Ok(delivery)
}

/// The server refused to deliver: is the consumer gone, or is it only changing its leader?
async fn diagnose(open: &Open) -> Trouble {
    let mut consumer = open.consumer.clone();
    match consumer.info().await {
        Ok(_) => Trouble::later("the server broke off the delivery; it goes on with the next request"),
        Err(error) => error::consumer(&error.kind()),
    }
}
