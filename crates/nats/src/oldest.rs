//! How long the first message waits that a consumer has not acknowledged.

use async_nats::jetstream::consumer::Info;
use oncebox_core::{Clock as _, SystemClock};

use crate::link::Link;

/// A consumer that reads more subjects than this is not looked after: each one is a question.
const SUBJECTS_MAX: usize = 8;

/// Whole seconds since the first message was stored that is not acknowledged; `None` if there is none, or the server does
/// not say, for instance because this user may not read messages by their number.
pub(crate) async fn waits(link: &Link, info: &Info) -> Option<u64> {
    if info.num_pending == 0 && info.num_ack_pending == 0 {
        return None;
    }
    let config = &info.config;
    let subjects: Vec<&str> = match (config.filter_subject.as_str(), config.filter_subjects.as_slice()) {
        ("", []) => vec![">"],
        ("", many) if many.len() <= SUBJECTS_MAX => many.iter().map(String::as_str).collect(),
        ("", _) => return None,
        (one, _) => vec![one],
    };
    // Everything up to here is acknowledged. What comes next may have been deleted, or be of a subject that it does not
    // read: then the one after that.
    let from = info.ack_floor.stream_sequence.saturating_add(1);
    let stream = link.context.get_stream_no_info(&info.stream_name).await.ok()?;
    let mut first: Option<(u64, i128)> = None;
    for subject in subjects {
        let Ok(found) = stream.get_first_raw_message_by_subject(subject, from).await else { continue };
        let found = (found.sequence, found.time.unix_timestamp_nanos());
        first = Some(first.map_or(found, |first| first.min(found)));
    }
    let (_, stored) = first?;
    // A clock that is behind the server's makes it no older.
    u64::try_from((SystemClock.now().as_nanosecond() - stored) / 1_000_000_000).ok().or(Some(0))
}
