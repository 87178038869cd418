//! How much room for claims a session has.
//!
//! At the end of a session the server writes one transaction with the paths of all its nodes. No server reads
//! one that is longer than its `jute.maxbuffer` and the extra for that, 2 MiB by default: in an ensemble
//! the followers leave their leader, and no server starts again, since the transaction is in its log. So a
//! session takes claims up to a bound, an eighth of that, and the pool opens another session for the next
//! ones. The servers do not report `jute.maxbuffer`, so the bound is fixed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::session::Session;

/// The bytes of paths of one session, as the server counts them.
const MOST: usize = 256 * 1024;

/// The place of one node among those that its session may have. It is taken before the node is requested,
/// and given back when the node is gone.
#[derive(Debug)]
pub(crate) struct Room {
    session: Arc<Session>,
    bytes: usize,
}

impl Room {
    /// Room for a path that takes this many bytes. `None`: the session is full. An empty session takes any.
    pub(crate) fn in_session(session: &Arc<Session>, bytes: usize) -> Option<Self> {
        let add = |used: usize| has_room(used, bytes).then(|| used.saturating_add(bytes));
        session.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(Self { session: Arc::clone(session), bytes })
    }

    /// Room for a node that exists already, and so must be counted.
    pub(crate) fn of_existing(session: &Arc<Session>, bytes: usize) -> Self {
        session.bytes.fetch_add(bytes, Ordering::Relaxed);
        Self { session: Arc::clone(session), bytes }
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }
}

/// Room for another node of the same claim in the same session. The first one is nearly gone.
impl Clone for Room {
    fn clone(&self) -> Self {
        Self::of_existing(&self.session, self.bytes)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.session.note_use();
        self.session.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Whether a session with paths of `used` bytes takes another one. A request without a node has no bytes.
fn has_room(used: usize, bytes: usize) -> bool {
    bytes == 0 || used == 0 || used.saturating_add(bytes) <= MOST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_full_at_its_bound() {
        for (used, bytes, fits) in [
            (0, MOST * 2, true),
            (MOST - 100, 100, true),
            (MOST - 100, 101, false),
            (1, usize::MAX, false),
            (MOST * 2, 1, false),
            (MOST * 2, 0, true),
        ] {
            assert_eq!(has_room(used, bytes), fits, "{bytes} after {used}");
        }
    }
}
