//! The place of a claim in a queue.

use std::sync::{Mutex, MutexGuard};

use lockwell_core::Moment;
use lockwell_core::backend::{PLACE_TTL, Waiter, lock};

/// A place in the queue at the server.
pub(crate) struct Place {
    pub(crate) waiter: Waiter,
    kept: Mutex<Option<Kept>>,
}

/// What the last answers said of a place.
#[derive(Clone, Copy)]
struct Kept {
    place: u64,
    /// When the last heartbeat that was answered was sent.
    sent: Moment,
}

impl Place {
    pub(crate) fn new(waiter: Waiter) -> Self {
        Self { waiter, kept: Mutex::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Option<Kept>> {
        lock(&self.kept)
    }

    /// Notes the answer to a heartbeat, and where the place is if it is new.
    pub(crate) fn note_kept(&self, new: Option<u64>, sent: Moment) {
        let mut kept = self.kept();
        let place = new.or(kept.map(|kept| kept.place));
        *kept = place.map(|place| Kept { place, sent });
    }

    /// Where the place is or was, for a server that does not have it any more. A waiter that was silent for
    /// as long as a place is kept begins again at the end.
    pub(crate) fn last(&self) -> Option<u64> {
        self.kept().filter(|kept| !kept.sent.after(PLACE_TTL).has_passed()).map(|kept| kept.place)
    }
}
