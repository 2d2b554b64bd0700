//! A connection with one channel on it, and how it ends.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use lapin::{Channel, Connection, ConnectionProperties};
use tokio::time::timeout;

use crate::error::Trouble;
use crate::guard::{self, Unread};
use crate::rabbit::Rabbit;

/// How long a connection is given to end in good order.
const CLOSE: Duration = Duration::from_secs(2);

/// A connection with the channel that the work is done on. The client's own recovery is off: tags that silently change
/// their meaning are ours to see, so whatever fails, all of it is built anew.
pub(crate) struct Link {
    pub(crate) channel: Channel,
    pub(crate) connection: Arc<Connection>,
    /// What the client could not have read of messages that came on the connection.
    pub(crate) unread: Arc<Unread>,
}

impl Link {
    /// Connects and opens a channel, within the server's connect timeout.
    pub(crate) async fn connect(rabbit: &Rabbit) -> Result<Self, Trouble> {
        let uri = rabbit.uri()?;
        let properties = ConnectionProperties::default().with_connection_name(rabbit.name.as_str().into());
        within(rabbit, async {
            let (connection, unread) = guard::connect(uri, properties).await?;
            let channel = connection.create_channel().await?;
            Ok(Self { channel, connection: Arc::new(connection), unread })
        })
        .await
    }

    /// Opens another channel on a connection that is there, to publish on.
    pub(crate) async fn beside(rabbit: &Rabbit, connection: &Arc<Connection>) -> Result<Self, Trouble> {
        let channel = within(rabbit, connection.create_channel()).await?;
        Ok(Self { channel, connection: Arc::clone(connection), unread: Arc::default() })
    }

    /// Ends it in good order: the channel first, so that what is unacknowledged goes back in order, and then the connection.
    pub(crate) async fn close(self) {
        // What can't be closed is dropped, and the broker notices.
        let _ = timeout(CLOSE, self.channel.close(200, "OK".into())).await;
        let _ = timeout(CLOSE, self.connection.close(200, "OK".into())).await;
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Nothing can be awaited here, but polling once puts the frame on its way before a consumer that is dropped after
        // this sends its cancel: cancelled first, the deliveries that are out would come back behind newer ones.
        if self.channel.status().connected() {
            let _ = self.channel.close(200, "OK".into()).now_or_never();
        }
    }
}

/// A request to the broker, with the time that it may take.
pub(crate) async fn within<T>(
    rabbit: &Rabbit,
    request: impl Future<Output = Result<T, lapin::Error>>,
) -> Result<T, Trouble> {
    match timeout(rabbit.connect_timeout, request).await {
        Ok(answer) => answer.map_err(Trouble::from),
        Err(_) => Err(Trouble::unavailable(format!("{rabbit} did not answer within {:?}", rabbit.connect_timeout))),
    }
}
