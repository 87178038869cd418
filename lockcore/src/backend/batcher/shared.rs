//! What the callers of a batcher and its senders share.

use tokio::runtime::Handle;

use super::queues::Queues;
use super::service::{Bounds, Service};
use crate::Clock;
use crate::backend::batcher_sync::{Mutex, is_present};

pub(super) struct Shared<S: Service> {
    pub(super) service: S,
    pub(super) bounds: Bounds,
    pub(super) clock: Clock,
    /// That of the connection behind the service: what is sent is sent there.
    pub(super) runtime: Option<Handle>,
    pub(super) queues: Mutex<Queues<S>>,
}

impl<S: Service> Shared<S> {
    /// Whether what is polled here may be what a task of the batcher does.
    pub(super) fn is_at_home(&self) -> bool {
        is_present(self.runtime.as_ref())
    }
}
