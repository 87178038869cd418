//! What the backend of a client promises.

use once_cell::race::OnceBox;

use crate::{Capabilities, DistributedLock, Requirement};

/// What a backend promises. One that connects with its first request presumes it until then, and is asked
/// with each request until it knows.
#[derive(Debug)]
pub(super) struct Promises {
    presumed: Promised,
    known: OnceBox<Promised>,
}

#[derive(Debug)]
pub(super) struct Promised {
    pub(super) all: Capabilities,
    /// What is left of them for clients whose processes are served in turn.
    pub(super) in_turns: Capabilities,
}

impl Promised {
    fn new(all: Capabilities) -> Self {
        Self { in_turns: all.clone().without([Requirement::Fifo]), all }
    }
}

impl Promises {
    pub(super) fn new(first: Capabilities) -> Self {
        Self { presumed: Promised::new(first), known: OnceBox::new() }
    }

    /// A backend that has granted a lock is connected: so what is decided after a grant depends on what is
    /// known.
    pub(super) fn by(&self, backend: &dyn DistributedLock) -> &Promised {
        if !self.presumed.all.is_presumed() {
            return &self.presumed;
        }
        if let Some(known) = self.known.get() {
            return known;
        }
        let now = backend.capabilities();
        if now.is_presumed() {
            &self.presumed
        } else {
            self.known.get_or_init(|| Box::new(Promised::new(now)))
        }
    }
}
