//! What a proxy does to the connections that it carries.

use std::collections::VecDeque;
use std::time::Duration;

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// What the client says.
    ToServer,
    /// What the server answers.
    ToClient,
}

/// Where a connection is cut around a PostgreSQL `COMMIT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitCut {
    /// It never reaches the server: certainly rolled back.
    BeforeForwarding,
    /// The server has answered it, and the client gets no byte of the answer: certainly done.
    AfterForwarding,
    /// The client is cut off first and the server gets it a moment later, unless somebody ended its session by then:
    /// either.
    Late,
    /// It never reaches the server, and neither does the news that the client is gone: the session stays open with all
    /// its locks until somebody ends it.
    Orphaned,
}

/// What goes wrong, for all connections of a proxy.
#[derive(Default)]
pub(super) struct Plan {
    /// Bytes that may still pass, over all connections; the connection that uses them up is cut.
    to_server_left: Option<usize>,
    to_client_left: Option<usize>,
    pub(super) delay: Duration,
    pub(super) black_hole: bool,
    pub(super) half_open: bool,
    /// What happens to the next commits; `None` lets one pass.
    pub(super) commits: VecDeque<Option<CommitCut>>,
}

impl Plan {
    pub(super) fn left(&mut self, way: Way) -> &mut Option<usize> {
        match way {
            Way::ToServer => &mut self.to_server_left,
            Way::ToClient => &mut self.to_client_left,
        }
    }

    pub(super) fn holds(&self, way: Way) -> bool {
        self.black_hole || (self.half_open && way == Way::ToClient)
    }

    /// What happens to the commit that comes now.
    pub(super) fn next_commit(&mut self) -> Option<CommitCut> {
        self.commits.pop_front().flatten()
    }

    /// How much of `wanted` may pass before the connection is cut; `None` if all of it may.
    pub(super) fn allowance(&mut self, way: Way, wanted: usize) -> Option<usize> {
        let left = self.left(way);
        let before = (*left)?;
        *left = before.checked_sub(wanted);
        left.is_none().then_some(before)
    }
}
