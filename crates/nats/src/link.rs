//! A connection, and whether it is one at the moment.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectOptions};
use tokio::time::timeout;

use crate::error::{self, Trouble};
use crate::server::{At, Server};

/// How long connecting may take, and how long a question to the server.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(5);

/// How long the last words may take when a link is closed.
const FLUSH_MAX: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) client: Client,
    pub(crate) context: Context,
}

impl Link {
    /// Connects. Once connected, the client library reconnects by itself, without end.
    pub(crate) async fn open(server: &Server) -> Result<Self, Trouble> {
        let client = match &server.0 {
            At::Client(client) => client.clone(),
            At::Address(text) => {
                let target = Server::target(text)
                    .map_err(|why| Trouble::setting(format!("the address cannot be read: {why}")))?;
                let options = ConnectOptions::new()
                    .name("oncebox")
                    .connection_timeout(ANSWER_MAX)
                    .request_timeout(Some(ANSWER_MAX));
                let options = target.credentials.apply(options);
                options.connect(target.servers).await.map_err(|error| error::connect(&error))?
            }
        };
        let mut context = jetstream::new(client.clone());
        context.set_timeout(ANSWER_MAX);
        Ok(Self { client, context })
    }

    /// Nothing is sent while this is false: the client library would keep it and send it after the reconnect, when it
    /// may have become wrong.
    pub(crate) fn is_up(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// Grows with each reconnect. What was asked of the server before one is not answered after it.
    pub(crate) fn connects(&self) -> u64 {
        self.client.statistics().connects.load(Relaxed)
    }

    pub(crate) fn down() -> Trouble {
        Trouble::later("the connection to the server is lost; reconnecting goes on by itself")
    }

    pub(crate) async fn close(self) {
        // If it can't be flushed, what was not confirmed was not counted on.
        let _ = timeout(FLUSH_MAX, self.client.flush()).await;
    }
}
