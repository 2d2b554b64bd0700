//! Opening the source of a consumer, and waiting for a broker that is away.

use std::future::Future;
use std::pin::Pin;

use oncebox_core::{ConsumerStore, Source, SourceErrorKind};

use super::Engine;
use super::engine::RunError;
use super::outage::Pause;

/// Opens the source. Waits for a broker that is away, as the intake does later on; `false` if a shutdown came first, also in
/// the middle: nothing was received yet. What only a person can mend is an error.
pub(super) async fn open<S: ConsumerStore, Src: Source<S>>(
    engine: &Engine<S, Src>,
    mut shutdown: Pin<&mut impl Future<Output = ()>>,
) -> Result<bool, RunError> {
    let mut away: Option<Pause<'_>> = None;
    loop {
        let opened = tokio::select! {
            biased;
            () = &mut shutdown => return Ok(false),
            opened = engine.source.open(&engine.store) => opened,
        };
        match opened {
            Ok(()) => break,
            Err(error) if error.kind() == SourceErrorKind::Configuration => {
                return Err(RunError::Source { name: engine.name.to_string(), error });
            }
            Err(error) => {
                if away.is_none() {
                    tracing::warn!(code = %error.code(), consumer = %engine.name, "waiting for the source: {error}");
                }
                engine.stats.set_waiting_for(Some(error.to_string()));
            }
        }
        tokio::select! {
            biased;
            () = &mut shutdown => return Ok(false),
            () = away.get_or_insert_with(|| Pause::new(&*engine.clock, 0)).wait() => {}
        }
    }
    if away.is_some() {
        engine.stats.set_waiting_for(None);
    }
    engine.say_hello();
    Ok(true)
}
