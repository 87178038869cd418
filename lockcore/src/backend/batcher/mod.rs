//! Batching: requests that arrive at about the same time share a call.
//!
//! A request that finds no call under way is sent at once, alone; requests that arrive meanwhile go into the
//! next call. No request waits for others to come; but before a second call beside one that is under way, the
//! callers that are ready to run do so, and share it.
//!
//! A task of the runtime sends the requests of a key, batch after batch, and ends when none waits (if the
//! service allows it, the only caller of a key does that itself, until there is another one). So a caller
//! that is dropped, or is not polled any more, delays no other request, and no connection is left with a part
//! of an answer.
//!
//! A batcher belongs to one runtime, like the connection behind it ([`PerRuntime`](super::PerRuntime)).

mod call;
mod entry;
mod flight;
mod queues;
mod retry;
mod sender;
mod service;
mod shared;
mod tries;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use self::queues::Queues;
use self::shared::Shared;
use crate::Clock;
use crate::backend::batcher_sync::Mutex;

pub use self::call::Call;
#[cfg(test)]
#[allow(unused_imports)] // The models have no use for it.
pub(super) use self::service::no_answer;
pub use self::service::{Attempt, Bounds, CallOutcome, Reply, Service};

/// Batching: requests that arrive at about the same time share a call. Clones are handles to the same
/// batcher.
///
/// A request that finds no call under way is sent at once, alone; requests that arrive meanwhile go into the
/// next call. No request waits for others to come. Requests with different [keys](Service::Key) never wait
/// for each other.
///
/// A task sends the requests of a key, or the only caller itself if the service [allows](Service::is_light)
/// that. A caller that is dropped, or is not polled any more, delays no other request.
///
/// A batcher belongs to one runtime, like the connection behind it ([`PerRuntime`](super::PerRuntime)).
pub struct Batcher<S: Service>(Arc<Shared<S>>);

impl<S: Service> Batcher<S> {
    /// A batcher for this service. It sends on the runtime in which it was made, or else in which it is used.
    pub fn new(service: S, bounds: Bounds) -> Self {
        Self::with_clock(service, bounds, Clock::system())
    }

    /// As [`new`](Self::new), with the clock that its limits, its pauses and the times of an [`Attempt`] come
    /// from. A real server needs the system clock; another one is for a service in this process.
    pub fn with_clock(service: S, bounds: Bounds, clock: Clock) -> Self {
        let runtime = Handle::try_current().ok();
        Self(Arc::new(Shared { service, bounds, clock, runtime, queues: Mutex::new(Queues::new()) }))
    }

    /// The service.
    pub fn service(&self) -> &S {
        &self.0.service
    }

    /// Sends a request that must be answered within `limit`. When this returns, the request is in the queue.
    /// It is sent when the returned call is first polled, at the latest.
    ///
    /// # Errors of the call
    /// [`Overloaded`](crate::ErrorKind::Overloaded) if too many requests are waiting, or if requests come
    /// faster than they are answered: then one has waited for all of its time, which was a second at least,
    /// and the next ones are refused at once until the queue is shorter;
    /// [`Unreachable`](crate::ErrorKind::Unreachable) if there is no answer in time, and all errors of the
    /// service.
    ///
    /// # Cancel safety
    /// If the call is dropped, a request that was not sent leaves the queue. A request that was sent may be
    /// executed all the same.
    pub fn call(&self, key: S::Key, request: S::Request, limit: Duration) -> Call<S> {
        Call::new(&self.0, key, request, limit)
    }

    /// Sends several requests, each as by [`call`](Self::call). They are put into the queue in one step, also
    /// if a sender is running: so requests of one key that share a call go into one batch, as far as its
    /// bounds allow.
    pub fn call_each(
        &self,
        requests: impl IntoIterator<Item = (S::Key, S::Request)>,
        limit: Duration,
    ) -> Vec<Call<S>> {
        Call::new_each(&self.0, requests, limit)
    }

    /// How many keys have a queue.
    #[cfg(test)]
    pub(super) fn keys(&self) -> usize {
        crate::backend::batcher_sync::lock(&self.0.queues).keys()
    }

    /// Sends a request without waiting for its answer. It needs a runtime.
    pub fn send(&self, key: S::Key, request: S::Request, limit: Duration) {
        let call = self.call(key, request, limit);
        if let Ok(runtime) = Handle::try_current() {
            drop(runtime.spawn(async move { drop(call.await) }));
        }
    }
}

impl<S: Service> Clone for Batcher<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: Service> Debug for Batcher<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batcher").field("bounds", &self.0.bounds).finish_non_exhaustive()
    }
}
