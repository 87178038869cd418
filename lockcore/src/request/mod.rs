//! Requests for locks, and their options.

mod all;
mod choices;
mod in_time;
mod job;
mod job_steps;
mod leader;
mod once;
mod one;
mod operation;
mod owner;
mod patience;
mod running;
mod trace;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::background::Book;
use crate::{Error, ErrorKind, LockName, Mode, Result};

pub use all::All;
pub(crate) use choices::{Checked, Choices};
pub use job::{Job, JobState, Once};
pub use job_steps::JobSteps;
pub(crate) use job_steps::read_jobs;
pub use leader::Campaign;
pub use once::{Attempt, JobRun, Keyed};
pub use one::Acquire;
pub use owner::{Owner, Reentrant, ReentrantGuard};
pub(crate) use trace::Trace;

/// A request for a lock: what [`Locks::lock`](crate::Locks::lock) and its siblings return.
///
/// Await it to wait for the lock, or call `try_now` or `run`. Nothing is sent before that.
/// A bad name or option is an error of that call, before any request is sent.
///
/// `W` is the kind of request: for [`One`] lock, for [`All`] of several, for a [`Reentrant`] lock of an
/// owner, for leadership by a [`Campaign`](crate::Campaign), or for a job with a [key](Keyed).
///
/// # Cancel safety
///
/// Dropping the future at any point is safe: the claim leaves its queue, and a grant that arrives later is
/// released at once, both in the background. Only the place in the queue is lost.
#[must_use = "nothing happens until the request is awaited"]
#[derive(Debug)]
pub struct LockRequest<W = One> {
    pub(crate) book: Arc<Book>,
    pub(crate) choices: Choices,
    pub(crate) what: W,
}

/// One lock, and how it is to be held.
#[derive(Debug)]
pub struct One {
    pub(crate) name: Result<LockName>,
    pub(crate) mode: Result<Mode>,
}

impl LockRequest<One> {
    /// A request for one lock.
    pub(crate) fn one<N: TryInto<LockName, Error: Into<Error>>>(
        book: &Arc<Book>,
        defaults: &Choices,
        name: N,
        mode: Result<Mode>,
    ) -> Self {
        let one = One { name: name.try_into().map_err(Into::into), mode };
        Self::new(book, defaults, one)
    }
}

/// The mode of a semaphore with this number of permits.
pub(crate) fn permit(limit: u32) -> Result<Mode> {
    NonZeroU32::new(limit).map(|limit| Mode::Permit { limit }).ok_or_else(|| {
        Error::new(ErrorKind::InvalidInput, "a semaphore has at least one permit, this one has 0")
    })
}

impl<W> LockRequest<W> {
    pub(crate) fn new(book: &Arc<Book>, defaults: &Choices, what: W) -> Self {
        Self { book: Arc::clone(book), choices: defaults.clone(), what }
    }

    /// The lease: how long the lock stays taken after its holder has died or lost its connection. The keeper
    /// renews the lease after each third of this time. The default is the `ttl` of the configuration, or
    /// [`DEFAULT_TTL`](crate::DEFAULT_TTL) within the limits of the backend.
    ///
    /// With short leases, the locks of dead holders are free soon, but more renewals are needed. Long leases
    /// survive long pauses and outages.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.choices.ttl = ttl;
        self
    }

    /// How long to wait for the lock at most. After that the error is of kind
    /// [`TimedOut`](crate::ErrorKind::TimedOut). The default is the `wait` of the configuration, or no limit.
    ///
    /// A wait covers the first answer of the server: if it is shorter than a second and the server has not
    /// answered when it ends, it lasts until the answer, and for a second at most. A wait of zero is one
    /// complete try, like `try_now`.
    ///
    /// A wait covers a server that is away, too: after an error that may pass, such as
    /// [`Unreachable`](crate::ErrorKind::Unreachable), the lock is requested again until the wait ends. The
    /// claim keeps its place in the queue if the server does. If the server is still away at the end, the
    /// last error that says why is returned. See [`patience`](Self::patience).
    #[doc(alias = "timeout")]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.choices.wait = Some(wait);
        self.choices.wait_is_chosen = true;
        self
    }

    /// Waits without a limit, whatever the configuration says, also for a server that is away.
    ///
    /// A request that says nothing of a wait has no limit either, if the configuration has none. It fails if
    /// the server is away, since nobody would learn of that otherwise.
    pub fn wait_forever(mut self) -> Self {
        self.choices.wait = None;
        self.choices.wait_is_chosen = true;
        self
    }

    /// For how long the server may be away at a time, within the [wait](Self::wait). Without this option that
    /// is the whole wait. It is no time at all if neither the request nor the configuration says how long to
    /// wait; a client that has not reached a server yet (`connect_lazy`) then tries without a limit. `try_now`
    /// and a wait of zero never wait for the server.
    ///
    /// A request that would rather fail than wait for a server has a patience of [`Duration::ZERO`]. It then
    /// fails when a request to the server has had no answer for the `timeout` of the address.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.choices.patience = Some(patience);
        self
    }

    /// Lets `try_now` wait for the end of a grace period, in which the server grants nothing because it may
    /// have forgotten grants ([`GracePeriod`](crate::ErrorKind::GracePeriod)). Then it is known whether the
    /// lock is free. Without this option `try_now` fails with that error at once. A request that waits needs
    /// no option: it waits for the end of the grace period, as long as its wait lasts.
    ///
    /// A grace period is about as long as the longest lease. A server that crashes again and again has one
    /// after the other; dropping the future ends the wait.
    pub fn through_grace(mut self) -> Self {
        self.choices.through_grace = true;
        self
    }

    /// A human-readable text that names the holder: at most 255 bytes without control characters, otherwise
    /// the request fails with [`InvalidInput`](crate::ErrorKind::InvalidInput) before anything is sent. The
    /// default is the `label` of the configuration, or host and process.
    pub fn label(mut self, label: impl AsRef<str>) -> Self {
        self.choices.label = label.as_ref().into();
        self
    }

    /// The class of the request, such as `"orders"` for the locks `orders/42` and `orders/43`: a label of its
    /// metrics, and a field of its spans. Names are too many for that. A class has 1 to 64 ASCII letters,
    /// digits and characters of `._-/:`, otherwise the request fails with
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput). The default is the `class` of the configuration.
    ///
    /// A process tells its first 100 classes apart; all that come later are `other`. A lock that is passed on
    /// within the process counts for the request that gets it. All locks of an
    /// [`All`](crate::Locks::lock_all) have its class. A request of an [owner](crate::Owner) that
    /// holds the lock already is not counted. One that has waited for another of its owner is `cancelled`.
    pub fn class(mut self, class: impl AsRef<str>) -> Self {
        self.choices.class = self.book.telemetry.class(class.as_ref()).ok();
        self
    }

    /// What this request is a part of: the [traceparent](crate::TraceParent) of the caller, which
    /// [`inspect`](crate::Locks::inspect) shows beside the label. Any other text fails with
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) before anything is sent. It is stored within the label:
    /// beside one of more than 199 bytes it is left out. The default is that of
    /// [`Locks::traceparent_from`](crate::Locks::traceparent_from).
    pub fn traceparent(mut self, traceparent: impl AsRef<str>) -> Self {
        self.choices.trace = Trace::Said(traceparent.as_ref().into());
        self
    }

    /// The longest hold: after it the lock is [lost](crate::Loss::HeldTooLong) and released, even if the
    /// holder is alive and the server works.
    pub fn max_hold(mut self, longest: Duration) -> Self {
        self.choices.limits.max_hold = Some(longest);
        self
    }

    /// Keeps the lock only while the application reports [progress](crate::LockGuard::progress) at least this
    /// often. Otherwise the lock is [lost](crate::Loss::NoProgress) and released: a worker that is stuck does
    /// not keep its lock as long as the process lives.
    pub fn progress_within(mut self, at_least_every: Duration) -> Self {
        self.choices.limits.progress = Some(at_least_every);
        self
    }

    /// The lock delay: after a holder that died or lost its lock, the lock stays taken for this long before
    /// another gets it. Requests of that holder that are still on their way have time to arrive, or to fail.
    /// A release frees the lock at once.
    ///
    /// A lock delay makes failures more expensive and guarantees nothing. If the resource can compare
    /// [tokens](crate::FencingToken), use them instead. (Chubby and Consul have lock delays as well.)
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.choices.lock_delay = delay;
        self
    }
}
