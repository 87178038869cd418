//! Batching: requests that arrive at about the same time share a call.
//!
//! A request that finds no call under way is sent at once, alone; requests that arrive meanwhile go into the
//! next call. No request waits for others to come.
//!
//! A batcher has no task: *the callers poll the calls*. The caller that begins a call polls it; the other
//! callers of its batch wait for their answers. If the future of a caller is dropped, or is not polled any
//! more, another caller goes on with the same call. If no caller is left, a task finishes the call, so that
//! no connection is left with a part of an answer.
//!
//! A batcher belongs to one runtime, like the connection behind it ([`PerRuntime`](super::PerRuntime)).

mod call;
mod flight;
mod queues;
mod retry;
mod service;
mod shared;
mod sync;
mod tries;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use self::queues::Queues;
use self::shared::Shared;
use self::sync::Mutex;
use crate::Clock;

pub use self::call::Call;
pub use self::service::{Attempt, Bounds, CallOutcome, Reply, Service};

/// Batching: requests that arrive at about the same time share a call. Clones are handles to the same
/// batcher.
///
/// A request that finds no call under way is sent at once, alone; requests that arrive meanwhile go into the
/// next call. No request waits for others to come. Requests with different [keys](Service::Key) never wait
/// for each other.
///
/// A batcher has no task: the callers poll the calls. If the future of a caller is dropped, or is not polled
/// any more, another caller goes on with the same call.
///
/// A batcher belongs to one runtime, like the connection behind it ([`PerRuntime`](super::PerRuntime)).
pub struct Batcher<S: Service>(Arc<Shared<S>>);

impl<S: Service> Batcher<S> {
    /// A batcher for this service.
    pub fn new(service: S, bounds: Bounds) -> Self {
        Self::with_clock(service, bounds, Clock::system())
    }

    /// The same with the clock that its limits, its pauses and the times of an [`Attempt`] come from. A real
    /// server needs the system clock; another one is for a service in this process.
    pub fn with_clock(service: S, bounds: Bounds, clock: Clock) -> Self {
        Self(Arc::new(Shared { service, bounds, clock, queues: Mutex::new(Queues::new()) }))
    }

    /// The service.
    pub fn service(&self) -> &S {
        &self.0.service
    }

    /// Sends a request that must be answered within `limit`. When this returns, the request is in the queue.
    /// It is sent when the returned call is first polled, at the latest.
    ///
    /// # Errors of the call
    /// [`Overloaded`](ErrorKind::Overloaded) if too many requests are waiting,
    /// [`Unreachable`](ErrorKind::Unreachable) if there is no answer in time, and all errors of the service.
    ///
    /// # Cancel safety
    /// If the call is dropped, a request that was not sent leaves the queue. A request that was sent may be
    /// executed all the same.
    pub fn call(&self, key: S::Key, request: S::Request, limit: Duration) -> Call<S> {
        Call::new(&self.0, key, request, limit)
    }

    /// Sends a request without waiting for its answer. It needs a runtime.
    pub fn send(&self, key: S::Key, request: S::Request, limit: Duration) {
        let call = self.call(key, request, limit);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
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

#[cfg(all(test, lockwell_loom))]
mod loom_tests;
#[cfg(all(test, not(lockwell_loom)))]
mod tests;
