//! What the callers of a batcher and its senders share.

use tokio::runtime::Handle;

use super::queues::Queues;
use super::service::{Bounds, Service};
use super::sync::Mutex;
use crate::Clock;

pub(super) struct Shared<S: Service> {
    pub(super) service: S,
    pub(super) bounds: Bounds,
    pub(super) clock: Clock,
    /// That of the connection behind the service: what is sent is sent there.
    #[cfg_attr(all(test, lockwell_loom), allow(dead_code))]
    pub(super) runtime: Option<Handle>,
    pub(super) queues: Mutex<Queues<S>>,
}

impl<S: Service> Shared<S> {
    /// Whether what is polled here may be what a task of the batcher does.
    pub(super) fn is_at_home(&self) -> bool {
        #[cfg(all(test, lockwell_loom))]
        return true;
        #[cfg(not(all(test, lockwell_loom)))]
        match (&self.runtime, Handle::try_current()) {
            (Some(home), Ok(here)) => home.id() == here.id(),
            _ => false,
        }
    }
}
