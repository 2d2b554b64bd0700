//! What the client's errors mean for us.

use lapin::protocol::{AMQPError, AMQPErrorKind, AMQPHardError, AMQPSoftError};
use lapin::{Error, ErrorKind};
use oncebox_core::message::Shown;
use oncebox_core::{SinkError, SinkErrorKind, SourceError, SourceErrorKind};

/// Something went wrong between us and the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) kind: TroubleKind,
    /// Why, without secrets.
    pub(crate) reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TroubleKind {
    /// Trying again later may help.
    Unavailable,
    /// A person must act.
    Configuration,
}

impl Trouble {
    pub(crate) fn configuration(reason: impl Into<String>) -> Self {
        Self { kind: TroubleKind::Configuration, reason: reason.into() }
    }

    pub(crate) fn unavailable(reason: impl Into<String>) -> Self {
        Self { kind: TroubleKind::Unavailable, reason: reason.into() }
    }

    /// `attempted` completes "cannot …".
    pub(crate) fn of_source(self, attempted: impl Into<String>) -> SourceError {
        let kind = match self.kind {
            TroubleKind::Unavailable => SourceErrorKind::Unavailable,
            TroubleKind::Configuration => SourceErrorKind::Configuration,
        };
        SourceError::new(kind, attempted, self.reason)
    }

    /// `attempted` completes "cannot …".
    pub(crate) fn of_sink(self, attempted: impl Into<String>) -> SinkError {
        let kind = match self.kind {
            TroubleKind::Unavailable => SinkErrorKind::Unavailable,
            TroubleKind::Configuration => SinkErrorKind::Configuration,
        };
        SinkError::new(kind, attempted, self.reason)
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        let said = match error.kind() {
            ErrorKind::ProtocolError(said) => said,
            // The client gives up on the whole connection then.
            ErrorKind::ParsingError(_) => {
                return Self::unavailable(
                    "what the broker sent cannot be read; if this goes on, see that it is RabbitMQ that answers at this \
                     address",
                );
            }
            ErrorKind::IOError(error) => {
                return Self::unavailable(format!("{error}; check the address, and that the broker runs"));
            }
            // Heartbeats, a channel or connection that is gone already: all pass.
            _ => return Self::unavailable(error.to_string()),
        };
        let text = said.get_message().as_str();
        // A queue's home node or a virtual host that is down answers with the code of one that does not exist.
        let is_away = text.contains("is down");
        let kind = match said.kind() {
            _ if is_away => TroubleKind::Unavailable,
            AMQPErrorKind::Soft(
                AMQPSoftError::ACCESSREFUSED
                | AMQPSoftError::NOTFOUND
                | AMQPSoftError::PRECONDITIONFAILED
                | AMQPSoftError::RESOURCELOCKED,
            )
            | AMQPErrorKind::Hard(
                AMQPHardError::INVALIDPATH | AMQPHardError::NOTALLOWED | AMQPHardError::NOTIMPLEMENTED,
            ) => TroubleKind::Configuration,
            _ => TroubleKind::Unavailable,
        };
        let advice = match said.kind() {
            AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) if text.contains("Login was refused") => {
                "; check the user name and the password in the URL"
            }
            AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) => "; give the user of the URL that permission",
            AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED) => {
                "; check the virtual host in the URL, and the user's rights"
            }
            AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND) if !is_away => {
                "; create it first, or ask for it with declare()"
            }
            _ => "",
        };
        Self { kind, reason: format!("the broker answered {}{advice}", Shown(text)) }
    }
}

/// What the broker said when it closed a channel, if it was that.
pub(crate) fn soft(error: &Error) -> Option<&AMQPError> {
    match error.kind() {
        ErrorKind::ProtocolError(said) if matches!(said.kind(), AMQPErrorKind::Soft(_)) => Some(said),
        _ => None,
    }
}

/// Whether the broker said that what was asked for does not exist. (What is down has the same code.)
pub(crate) fn is_missing(error: &Error) -> bool {
    soft(error).is_some_and(|said| {
        matches!(said.kind(), AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND))
            && !said.get_message().as_str().contains("is down")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trouble(kind: impl Into<AMQPErrorKind>, text: &str) -> Trouble {
        Error::from(ErrorKind::ProtocolError(AMQPError::new(kind.into(), text.into()))).into()
    }

    #[test]
    fn what_is_away_is_told_apart_from_what_is_not_there() {
        let missing = trouble(AMQPSoftError::NOTFOUND, "NOT_FOUND - no queue 'q' in vhost '/'");
        assert_eq!(missing.kind, TroubleKind::Configuration);
        let away = "NOT_FOUND - home node 'a@b' of durable queue 'q' in vhost '/' is down or inaccessible";
        assert_eq!(trouble(AMQPSoftError::NOTFOUND, away).kind, TroubleKind::Unavailable);
        let stopping = "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'";
        assert_eq!(trouble(AMQPHardError::CONNECTIONFORCED, stopping).kind, TroubleKind::Unavailable);
        let denied = trouble(AMQPSoftError::ACCESSREFUSED, "ACCESS_REFUSED - Login was refused");
        assert_eq!(denied.kind, TroubleKind::Configuration);
    }
}
