//! Where frames begin and end in what the broker sends.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Kept, Lost, Unread, methods, properties};

const METHOD: u8 = 1;
const CONTENT_HEADER: u8 = 2;

/// Type, channel and size.
const HEAD: usize = 7;
/// The octet after the payload.
const END: usize = 1;

/// A frame that claims to be larger is left to the client, with all that follows. Brokers send up to 128 KiB unless told
/// otherwise.
const HELD_MAX: usize = 16 << 20;

/// The client's least: it agrees to no smaller one.
const FRAME_MAX_LEAST: u32 = 4096;

/// Lets frames pass. Methods and content headers are held until they are complete.
#[derive(Debug)]
pub(super) struct Frames {
    unread: Arc<Unread>,
    step: Step,
    /// Of the methods whose message's content header comes next, by channel.
    said: BTreeMap<[u8; 2], Said>,
    /// The largest frame that our side asks for; 0 for any.
    asked: u32,
    /// What the client ends the connection over when a frame's payload is longer. Brokers keep to it in bodies only: a
    /// content header is as long as its publisher made it, and longer where the broker adds to it.
    payload_bytes_max: usize,
}

/// What a method said of the message that it announced.
#[derive(Debug, Default)]
struct Said {
    lost: Lost,
    /// It comes back to us, who published it: what it says is known, and is not asked for.
    is_return: bool,
}

#[derive(Debug)]
enum Step {
    /// The beginning of a frame, as far as it came.
    Head(Vec<u8>),
    /// So many bytes are none of our business.
    Pass(usize),
    /// A frame as far as it came, and its length.
    Hold(Vec<u8>, usize),
    /// Not the protocol that we know.
    Blind,
}

impl Frames {
    /// `asked`: the largest frame that the client asks for, 0 for any.
    pub(super) fn new(unread: Arc<Unread>, asked: u32) -> Self {
        let mut frames = Self {
            unread,
            step: Step::Head(Vec::with_capacity(HEAD)),
            said: BTreeMap::new(),
            asked,
            payload_bytes_max: usize::MAX,
        };
        frames.agree(0);
        frames
    }

    /// Comes to the same agreement as the client, with a broker that offers frames of up to so many bytes; 0 for any.
    fn agree(&mut self, offered: u32) {
        let agreed = match (self.asked, offered) {
            (asked, 0) => asked,
            (0, offered) => offered.max(FRAME_MAX_LEAST),
            (asked, offered) => asked.min(offered.max(FRAME_MAX_LEAST)),
        };
        self.payload_bytes_max = if agreed == 0 { usize::MAX } else { (agreed as usize).saturating_sub(HEAD + END) };
    }

    /// Adds to `fit` what may be read of `bytes` and of what was held before.
    pub(super) fn feed(&mut self, mut bytes: &[u8], fit: &mut Vec<u8>) {
        while !bytes.is_empty() {
            let mut whole = None;
            let next = match &mut self.step {
                Step::Blind => {
                    fit.extend_from_slice(bytes);
                    return;
                }
                Step::Pass(left) => {
                    let now = (*left).min(bytes.len());
                    fit.extend_from_slice(&bytes[..now]);
                    bytes = &bytes[now..];
                    *left -= now;
                    (*left == 0).then(|| Step::Head(Vec::with_capacity(HEAD)))
                }
                Step::Head(head) => {
                    bytes = fill(head, HEAD, bytes);
                    match head[..] {
                        [kind, _, _, a, b, c, d] => {
                            let rest = (u32::from_be_bytes([a, b, c, d]) as usize).saturating_add(END);
                            if matches!(kind, METHOD | CONTENT_HEADER) && rest <= HELD_MAX {
                                Some(Step::Hold(std::mem::take(head), HEAD + rest))
                            } else {
                                fit.append(head);
                                Some(if matches!(kind, METHOD..=3 | 8) { Step::Pass(rest) } else { Step::Blind })
                            }
                        }
                        _ => None,
                    }
                }
                Step::Hold(frame, length) => {
                    bytes = fill(frame, *length, bytes);
                    (frame.len() == *length).then(|| {
                        whole = Some(std::mem::take(frame));
                        Step::Head(Vec::with_capacity(HEAD))
                    })
                }
            };
            if let Some(frame) = whole {
                self.release(frame, fit);
            }
            if let Some(next) = next {
                self.step = next;
            }
        }
    }

    /// A whole method or content header, as it came or as much of it as can be read.
    fn release(&mut self, mut frame: Vec<u8>, fit: &mut Vec<u8>) {
        let channel = [frame[1], frame[2]];
        let payload = HEAD..frame.len() - END;
        if frame[0] == METHOD {
            if let Some(offered) = methods::offered(&frame[payload.clone()]) {
                self.agree(offered);
            }
            let is_return = methods::is_return(&frame[payload.clone()]);
            let lost = methods::fit(&mut frame[payload]);
            if !lost.is_empty() || is_return {
                self.said.insert(channel, Said { lost, is_return });
            }
            return fit.append(&mut frame);
        }
        let Said { lost, is_return } = self.said.remove(&channel).unwrap_or_default();
        let keep = |kept: Kept| if is_return { 0 } else { self.unread.keep(kept) };
        let Some(fitted) = properties::fit(&frame[payload], lost, self.payload_bytes_max, keep) else {
            return fit.append(&mut frame);
        };
        // It is no longer than the frame was, or short.
        let size = u32::try_from(fitted.len()).unwrap_or(u32::MAX);
        fit.extend_from_slice(&frame[..3]);
        fit.extend_from_slice(&size.to_be_bytes());
        fit.extend_from_slice(&fitted);
        fit.extend_from_slice(&frame[frame.len() - END..]);
    }
}

/// Moves bytes over until there are `length`; answers the rest.
fn fill<'b>(into: &mut Vec<u8>, length: usize, bytes: &'b [u8]) -> &'b [u8] {
    let (now, rest) = bytes.split_at(bytes.len().min(length - into.len()));
    into.extend_from_slice(now);
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![kind, 0, 1];
        frame.extend((payload.len() as u32).to_be_bytes());
        frame.extend(payload);
        frame.push(0xce);
        frame
    }

    fn header(flags: u16, list: &[u8]) -> Vec<u8> {
        let mut payload = vec![0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3];
        payload.extend(flags.to_be_bytes());
        payload.extend(list);
        payload
    }

    fn through(bytes: &[u8], step: usize) -> (Vec<u8>, Arc<Unread>) {
        let unread = Arc::new(Unread::default());
        let mut frames = Frames::new(Arc::clone(&unread), 0);
        let mut fit = Vec::new();
        bytes.chunks(step).for_each(|chunk| frames.feed(chunk, &mut fit));
        (fit, unread)
    }

    fn lost(unread: &Unread) -> Lost {
        unread.0.lock().unwrap().kept.remove(&1).unwrap().lost
    }

    #[test]
    fn what_can_be_read_passes_as_it_is_however_it_is_cut() {
        let mut bytes = frame(1, b"method");
        bytes.extend(frame(1, b""));
        bytes.extend(frame(2, &header(1 << 7, b"\x02id")));
        bytes.extend(frame(3, &[2; 300]));
        bytes.extend(frame(8, b""));
        for step in [1, 3, 7, 100, 10_000] {
            assert_eq!(through(&bytes, step).0, bytes, "{step}");
        }
    }

    #[test]
    fn another_protocol_passes_as_it_is() {
        let bytes = b"AMQP\x00\x00\x09\x01 and whatever \x02 follows".repeat(3);
        assert_eq!(through(&bytes, 5).0, bytes);
    }

    #[test]
    fn what_a_delivery_says_goes_with_its_message() {
        let deliver = |key: &[u8]| {
            let tag = 7_u64.to_be_bytes();
            frame(1, &[b"\0\x3c\0\x3c\x01c", &tag[..], b"\0\0", &[key.len() as u8], key].concat())
        };
        let mut bytes = deliver(b"k\xff");
        bytes.extend(frame(2, &header(1 << 7, b"\x02id")));
        bytes.extend(deliver(b"k"));
        bytes.extend(frame(2, &header(1 << 7, b"\x02id")));
        let (fit, unread) = through(&bytes, 10);
        assert!(fit.starts_with(&deliver(b"k?")));
        assert!(fit.ends_with(&frame(2, &header(1 << 7, b"\x02id"))), "the next is another message");
        let lost = lost(&unread);
        assert_eq!(lost, [("oncebox-unreadable-routing-key".to_owned(), b"k\xff".to_vec())]);
    }

    #[test]
    fn what_follows_a_frame_that_was_changed_is_found() {
        let mut bytes = frame(2, &header(1 << 7, b"\x02\xff\xfe"));
        bytes.extend(frame(3, b"body"));
        for step in [1, 10_000] {
            let (fit, unread) = through(&bytes, step);
            assert!(fit.ends_with(&frame(3, b"body")));
            let lost = lost(&unread);
            assert_eq!(lost, [("oncebox-unreadable-message-id".to_owned(), b"\xff\xfe".to_vec())]);
        }
    }

    fn tune(offered: u32) -> Vec<u8> {
        frame(1, &[&b"\0\x0a\0\x1e\x07\xff"[..], &offered.to_be_bytes(), b"\0\x3c"].concat())
    }

    #[test]
    fn the_frames_that_pass_are_those_that_the_client_agrees_to() {
        for (asked, offered, agreed) in
            [(0, 131_072, 131_072), (9_000, 131_072, 9_000), (131_072, 8_192, 8_192), (9_000, 0, 9_000), (0, 7, 4_096)]
        {
            let mut frames = Frames::new(Arc::default(), asked);
            frames.feed(&tune(offered), &mut Vec::new());
            assert_eq!(frames.payload_bytes_max, agreed - 8, "{asked} {offered}");
        }
        let mut frames = Frames::new(Arc::default(), 0);
        frames.feed(&tune(0), &mut Vec::new());
        assert_eq!(frames.payload_bytes_max, usize::MAX);
    }

    #[test]
    fn a_message_that_comes_back_leaves_nothing_behind() {
        let returned = frame(1, b"\0\x3c\0\x32\x01\x38\x08NO_ROUTE\x01e\x01k");
        let entry = [&b"\x05largeS"[..], &5_000_u32.to_be_bytes(), &[b'x'; 5_000]].concat();
        let list = [&(entry.len() as u32).to_be_bytes()[..], &entry].concat();
        let header = frame(2, &header(1 << 13, &list));
        let unread = Arc::new(Unread::default());
        let mut frames = Frames::new(Arc::clone(&unread), 4_096);
        let mut fit = Vec::new();
        frames.feed(&[tune(4_096), returned, header].concat(), &mut fit);
        assert!(fit.len() < 4_096);
        assert!(unread.0.lock().unwrap().kept.is_empty());
    }
}
