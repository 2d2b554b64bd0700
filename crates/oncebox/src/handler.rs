//! How functions become handlers.
//!
//! Any `async fn(Context<S>, T) -> oncebox::Result<Outcome>` with `T: DeserializeOwned` is a [`Handler`], and
//! any `async fn(Context<S>, Vec<T>) -> oncebox::Result<Outcomes>` is a [`BatchHandler`]. No boxing, no macro.

use std::any::type_name;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use oncebox_core::message::Shown;
use oncebox_core::{Failure, Message, Outcome, Store};
use serde::de::DeserializeOwned;

use crate::Result;
use crate::context::{BoxFuture, Context};

/// Handles one message within its transaction.
pub trait Handler<S: Store, T>: Send + Sync + 'static {
    /// Does the work. An error rolls back everything, the claim included.
    fn call(&self, ctx: Context<S>, message: T) -> impl Future<Output = Result<Outcome>> + Send + 'static;
}

impl<S, T, F, Fut> Handler<S, T> for F
where
    S: Store,
    F: Fn(Context<S>, T) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Outcome>> + Send + 'static,
{
    fn call(&self, ctx: Context<S>, message: T) -> impl Future<Output = Result<Outcome>> + Send + 'static {
        self(ctx, message)
    }
}

/// Handles several messages of one type within one transaction, for set-based SQL.
pub trait BatchHandler<S: Store, T>: Send + Sync + 'static {
    /// Does the work for all of them. An error rolls back all of them; they are then tried in halves.
    fn call(&self, ctx: Context<S>, messages: Vec<T>) -> impl Future<Output = Result<Outcomes>> + Send + 'static;
}

impl<S, T, F, Fut> BatchHandler<S, T> for F
where
    S: Store,
    F: Fn(Context<S>, Vec<T>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Outcomes>> + Send + 'static,
{
    fn call(&self, ctx: Context<S>, messages: Vec<T>) -> impl Future<Output = Result<Outcomes>> + Send + 'static {
        self(ctx, messages)
    }
}

/// How the messages of a batch ended.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Outcomes {
    /// All applied, with nothing to return.
    Applied,
    /// One for each message, in order.
    Each(Vec<Outcome>),
}

/// A handler with its message type forgotten: takes raw messages, decodes, and is ready to run.
pub(crate) trait Erased<S: Store>: Send + Sync {
    /// Decodes `messages` into a call. An `Err` names the message by its place.
    fn prepare(&self, messages: &[Arc<Message>]) -> Result<Call<S>, (usize, Failure)>;
}

/// A handler with its arguments, waiting for a transaction.
pub(crate) type Call<S> = Box<dyn FnOnce(Context<S>) -> BoxFuture<Result<Outcomes>> + Send>;

pub(crate) struct Each<H, T>(pub(crate) H, pub(crate) PhantomData<fn() -> T>);

impl<S: Store, T: DeserializeOwned + Send + 'static, H: Handler<S, T>> Erased<S> for Arc<Each<H, T>> {
    fn prepare(&self, messages: &[Arc<Message>]) -> Result<Call<S>, (usize, Failure)> {
        let value = decode::<T>(&messages[0]).map_err(|failure| (0, failure))?;
        let this = Arc::clone(self);
        Ok(Box::new(move |ctx| {
            let done = this.0.call(ctx, value);
            Box::pin(async move { done.await.map(|outcome| Outcomes::Each(vec![outcome])) })
        }))
    }
}

pub(crate) struct Raw<H>(pub(crate) H);

impl<S: Store, H: Handler<S, Message>> Erased<S> for Arc<Raw<H>> {
    fn prepare(&self, messages: &[Arc<Message>]) -> Result<Call<S>, (usize, Failure)> {
        let (this, message) = (Arc::clone(self), Message::clone(&messages[0]));
        Ok(Box::new(move |ctx| {
            let done = this.0.call(ctx, message);
            Box::pin(async move { done.await.map(|outcome| Outcomes::Each(vec![outcome])) })
        }))
    }
}

pub(crate) struct Batch<H, T>(pub(crate) H, pub(crate) PhantomData<fn() -> T>);

impl<S: Store, T: DeserializeOwned + Send + 'static, H: BatchHandler<S, T>> Erased<S> for Arc<Batch<H, T>> {
    fn prepare(&self, messages: &[Arc<Message>]) -> Result<Call<S>, (usize, Failure)> {
        let decoded = messages.iter().enumerate().map(|(place, m)| decode::<T>(m).map_err(|failure| (place, failure)));
        let values = decoded.collect::<Result<Vec<T>, _>>()?;
        let this = Arc::clone(self);
        Ok(Box::new(move |ctx| Box::pin(this.0.call(ctx, values))))
    }
}

/// Reads a payload as JSON. The error says where and what kind, and never quotes the payload.
fn decode<T: DeserializeOwned>(message: &Message) -> Result<T> {
    serde_json::from_slice(&message.payload).map_err(|error| {
        let kind = match error.classify() {
            serde_json::error::Category::Syntax => "it is not valid JSON",
            serde_json::error::Category::Eof => "its JSON ends too early",
            _ => "its JSON has another shape",
        };
        // serde's text quotes values of the wrong type; a missing field is named by our type, not by the payload.
        let text = error.to_string();
        let field = text.strip_prefix("missing field `").and_then(|rest| rest.split_once('`'));
        let field = field.map(|(name, _)| format!(" (field `{}` is missing)", Shown(name))).unwrap_or_default();
        let place = format!("line {} column {}", error.line(), error.column());
        Failure::permanent(format!("its payload does not decode as {}: {kind}{field} at {place}", short_name::<T>()))
    })
}

fn short_name<T>() -> &'static str {
    let name = type_name::<T>();
    if name.contains('<') { name } else { name.rsplit("::").next().unwrap_or(name) }
}

impl<H, T> fmt::Debug for Each<H, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Each")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[allow(dead_code, reason = "only decoded")]
    struct Payment {
        amount: u64,
    }

    fn error(payload: &str) -> String {
        decode::<Payment>(&Message::new("t").with_payload(payload.to_owned())).unwrap_err().to_string()
    }

    #[test]
    fn a_decoding_error_says_where_and_never_quotes_the_payload() {
        assert!(error(r#"{}"#).contains("does not decode as Payment"));
        assert!(error(r#"{}"#).contains("field `amount` is missing"));
        assert!(error(r#"{"amount""#).contains("ends too early"));
        let wrong_type = error(r#"{"amount":"CANARY"}"#);
        assert!(wrong_type.contains("another shape") && !wrong_type.contains("CANARY"), "{wrong_type}");
        assert!(!error("CANARY").contains("CANARY"));
    }
}
