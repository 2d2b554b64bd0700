//! Finds `COMMIT` in what a PostgreSQL client says.
//!
//! It is the last statement of a simple query: `'Q'`, the length, the text, a zero. Only a whole message counts, however it
//! is split over reads; the same bytes inside another message are somebody's data.

use super::CommitCut;

/// Longer queries pass unseen: a commit is short, whatever is sent along with it.
const QUERY_MAX: usize = 4096;

/// The head of a message: its kind and its length, which does not count the kind.
const HEAD: usize = 5;
/// The head of a message before the session is set up: its length and its code.
const SETUP_HEAD: usize = 8;
/// The upper half of the code with which a session begins, protocol version 3. Other codes ask for encryption, and more
/// such messages follow.
const STARTUP_VERSION: u16 = 3;

/// Follows the messages of one connection.
#[derive(Debug, Default)]
pub(super) struct Scanner {
    /// The session is set up, so messages have kinds.
    has_kinds: bool,
    /// The beginning of a message whose length is not known yet, or a query that is held back until it is whole.
    head: Vec<u8>,
    /// Bytes of the present message that are still to come.
    body_left: usize,
    /// The present message is a query.
    is_query: bool,
}

/// A commit that is to be cut, with its message.
pub(super) type Found = (CommitCut, Vec<u8>);

impl Scanner {
    /// Adds to `ready` what can be forwarded of `piece`; holds back what may be a `COMMIT`. Asks `next` at each one, and
    /// stops in front of the one that is to be cut.
    pub(super) fn scan(
        &mut self,
        piece: &[u8],
        ready: &mut Vec<u8>,
        mut next: impl FnMut() -> Option<CommitCut>,
    ) -> Option<Found> {
        for &byte in piece {
            if self.body_left == 0 {
                self.head.push(byte);
                let held = self.has_kinds && self.head[0] == b'Q';
                if !held {
                    ready.push(byte);
                }
                self.end_head(held, ready);
                continue;
            }
            self.body_left -= 1;
            if !self.is_query {
                ready.push(byte);
                continue;
            }
            self.head.push(byte);
            if self.body_left == 0 {
                let message = std::mem::take(&mut self.head);
                if commits(&message)
                    && let Some(cut) = next()
                {
                    return Some((cut, message));
                }
                ready.extend(message);
            }
        }
        None
    }

    /// Goes on with the body once the length is known.
    fn end_head(&mut self, held: bool, ready: &mut Vec<u8>) {
        let length = |bytes: &[u8]| bytes.iter().fold(0_usize, |length, byte| (length << 8) | usize::from(*byte));
        let whole = if self.has_kinds {
            if self.head.len() < HEAD {
                return;
            }
            1 + length(&self.head[1..HEAD])
        } else {
            if self.head.len() < SETUP_HEAD {
                return;
            }
            self.has_kinds = length(&self.head[4..6]) == usize::from(STARTUP_VERSION);
            length(&self.head[..4])
        };
        self.body_left = whole.saturating_sub(self.head.len());
        self.is_query = held && whole <= QUERY_MAX && self.body_left > 0;
        if !self.is_query {
            if held {
                ready.extend_from_slice(&self.head);
            }
            self.head.clear();
        }
    }
}

/// Whether the last statement of this query is `COMMIT`.
fn commits(query: &[u8]) -> bool {
    let text = &query[HEAD..];
    text == b"COMMIT\0" || text.ends_with(b"; COMMIT\0")
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &[u8] = b"Q\0\0\0\x0bCOMMIT\0";
    const SSL_REQUEST: &[u8] = b"\0\0\0\x08\x04\xd2\x16\x2f";
    const STARTUP: &[u8] = b"\0\0\0\x10\0\x03\0\0user\0x\0\0";

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
        [&[kind], &length[..], body].concat()
    }

    /// Scans `stream` in pieces of `size`: what was forwarded, and whether it ended in a cut.
    fn scan(stream: &[u8], size: usize, mut passes: usize) -> (Vec<u8>, bool) {
        let (mut scanner, mut ready) = (Scanner::default(), Vec::new());
        for piece in stream.chunks(size) {
            let next = || match passes.checked_sub(1) {
                Some(left) => {
                    passes = left;
                    None
                }
                None => Some(CommitCut::BeforeForwarding),
            };
            if let Some((_, message)) = scanner.scan(piece, &mut ready, next) {
                assert!(commits(&message));
                return (ready, true);
            }
        }
        (ready, false)
    }

    #[test]
    fn a_commit_is_found_however_it_is_split() {
        let before = [SSL_REQUEST, STARTUP, &message(b'Q', b"COMMIX\0"), &message(b'Q', b"COMMIT;\0")].concat();
        let stream = [&before, COMMIT, &message(b'Q', b"select 1\0"), COMMIT, b"more"].concat();
        let cut_at = stream.len() - COMMIT.len() - 4;
        for size in 1..=stream.len() {
            assert_eq!(scan(&stream, size, 0), (before.clone(), true), "the first, in pieces of {size}");
            assert_eq!(scan(&stream, size, 1), (stream[..cut_at].to_vec(), true), "the second, in pieces of {size}");
        }
    }

    #[test]
    fn a_commit_that_comes_with_its_seal_is_found() {
        let sealed = message(b'Q', b"SELECT 1; COMMIT\0");
        let stream = [STARTUP, &message(b'Q', b"select 'COMMIT'\0"), &sealed].concat();
        for size in 1..=stream.len() {
            let passed = stream[..stream.len() - sealed.len()].to_vec();
            assert_eq!(scan(&stream, size, 0), (passed, true), "in pieces of {size}");
            assert_eq!(scan(&stream, size, 1), (stream.clone(), false), "let through, in pieces of {size}");
        }
    }

    #[test]
    fn a_commit_inside_another_message_is_data() {
        let stream = [STARTUP, &message(b'd', COMMIT), &message(b'Q', b"COMMIX\0"), &message(b'B', COMMIT)].concat();
        for size in 1..=stream.len() {
            assert_eq!(scan(&stream, size, 0), (stream.clone(), false), "in pieces of {size}");
        }
    }

    #[test]
    fn what_is_no_postgres_passes_at_once() {
        assert_eq!(scan(b"ping", 1, 0), (b"ping".to_vec(), false));
        assert_eq!(scan(COMMIT, 1, 0), (COMMIT.to_vec(), false), "no session was set up");
    }
}
