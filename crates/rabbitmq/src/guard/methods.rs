//! The methods that announce a message: what they say of it in text, as far as it can be read. And the one that says how
//! large frames may be.

use super::Lost;
use super::properties::{Reader, UNREADABLE};

const TUNE: [u8; 4] = [0, 10, 0, 30];
const BASIC: [u8; 2] = [0, 60];
const RETURN: [u8; 2] = [0, 50];
const DELIVER: [u8; 2] = [0, 60];
const GET_OK: [u8; 2] = [0, 71];

/// A delivery tag, and whether it was delivered before.
const TAG: usize = 9;
const REPLY_CODE: usize = 2;

/// Replaces what is not UTF-8 in the exchange and the routing key, and answers what they were.
pub(super) fn fit(payload: &mut [u8]) -> Lost {
    let mut lost = Lost::new();
    for (name, range) in texts(payload).into_iter().flatten() {
        let text = &mut payload[range];
        if std::str::from_utf8(text).is_err() {
            lost.push((format!("{UNREADABLE}{name}"), text.to_vec()));
            text.iter_mut().filter(|byte| !byte.is_ascii()).for_each(|byte| *byte = b'?');
        }
    }
    lost
}

/// The largest frame that the broker offers, in bytes; 0 for any. `None` if the method is another.
pub(super) fn offered(payload: &[u8]) -> Option<u32> {
    let mut reader = Reader(payload);
    let is_tune = reader.take(TUNE.len())? == TUNE;
    // The number of channels comes first.
    reader.take(2)?;
    let [a, b, c, d] = *reader.take(4)? else { return None };
    is_tune.then(|| u32::from_be_bytes([a, b, c, d]))
}

/// Whether it announces a message that comes back to its publisher.
pub(super) fn is_return(payload: &[u8]) -> bool {
    payload.starts_with(&[BASIC, RETURN].concat())
}

type Text = (&'static str, std::ops::Range<usize>);

/// Where exchange and routing key are; `None` if it announces no message.
fn texts(payload: &[u8]) -> Option<[Text; 2]> {
    let mut reader = Reader(payload);
    let (class, method) = (reader.take(2)?, reader.take(2)?);
    if class != BASIC {
        return None;
    }
    if method == DELIVER {
        reader.short()?;
        reader.take(TAG)?;
    } else if method == GET_OK {
        reader.take(TAG)?;
    } else if method == RETURN {
        reader.take(REPLY_CODE)?;
        reader.short()?;
    } else {
        return None;
    }
    let mut next = || {
        let text = reader.short()?;
        let end = payload.len() - reader.0.len();
        Some(end - text.len()..end)
    };
    Some([("exchange", next()?), ("routing-key", next()?)])
}
