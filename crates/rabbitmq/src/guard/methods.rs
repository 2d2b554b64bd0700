//! Methods that hold text of others, as far as it can be read: those that announce a message, and those that say why
//! something ended. And the one that says how large frames may be.

use super::Lost;
use super::properties::{Reader, UNREADABLE};

const TUNE: [u8; 4] = [0, 10, 0, 30];
const CONNECTION_CLOSE: [u8; 4] = [0, 10, 0, 50];
const CHANNEL_CLOSE: [u8; 4] = [0, 20, 0, 40];
const BASIC: [u8; 2] = [0, 60];
const RETURN: [u8; 2] = [0, 50];
const DELIVER: [u8; 2] = [0, 60];
const GET_OK: [u8; 2] = [0, 71];

/// A delivery tag, and whether it was delivered before.
const TAG: usize = 9;
const REPLY_CODE: usize = 2;

/// Replaces what is not UTF-8 in the exchange and the routing key, and answers what they were. In a reason, too: the broker
/// cuts those to a length, wherever that is in a character.
pub(super) fn fit(payload: &mut [u8]) -> Lost {
    let mut lost = Lost::new();
    for (name, range) in texts(payload).into_iter().flatten() {
        let text = &mut payload[range];
        if std::str::from_utf8(text).is_err() {
            lost.push((format!("{UNREADABLE}{name}"), text.to_vec()));
            mend(text);
        }
    }
    if let Some(reason) = reason(payload) {
        mend(&mut payload[reason]);
    }
    lost
}

/// Puts a `?` for each byte that belongs to no character. The length stays, and what is read is not.
fn mend(text: &mut [u8]) {
    let mut at = 0;
    while let Err(error) = std::str::from_utf8(&text[at..]) {
        at += error.valid_up_to();
        text[at] = b'?';
    }
}

/// Where it says why a channel or the connection ends.
fn reason(payload: &[u8]) -> Option<std::ops::Range<usize>> {
    let mut reader = Reader(payload);
    let method = reader.take(CHANNEL_CLOSE.len())?;
    if method != CHANNEL_CLOSE && method != CONNECTION_CLOSE {
        return None;
    }
    reader.take(REPLY_CODE)?;
    let text = reader.short()?;
    let end = payload.len() - reader.0.len();
    Some(end - text.len()..end)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_that_was_cut_in_a_character_can_be_read() {
        for method in [CHANNEL_CLOSE, CONNECTION_CLOSE] {
            let close = |reason: &[u8]| [&method[..], &[1, 0x94, reason.len() as u8], reason, &[0, 40, 0, 10]].concat();
            for (reason, mended) in [(&b"no '\xc3\xbc\xc3"[..], &b"no '\xc3\xbc?"[..]), (b"\xff\xfex", b"??x")] {
                let mut payload = close(reason);
                assert_eq!(fit(&mut payload), []);
                assert_eq!(payload, close(mended));
            }
            for short in 0..close(b"\xff").len() {
                fit(&mut close(b"\xff")[..short]);
            }
        }
    }
}
