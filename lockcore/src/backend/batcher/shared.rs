//! What the callers of a batcher share.

use super::queues::Queues;
use super::service::{Bounds, Service};
use super::sync::Mutex;
use crate::Clock;

pub(super) struct Shared<S: Service> {
    pub(super) service: S,
    pub(super) bounds: Bounds,
    pub(super) clock: Clock,
    pub(super) queues: Mutex<Queues<S>>,
}
