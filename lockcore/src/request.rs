//! A request for a lock, with its choices.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::client::{Defaults, Shared};
use crate::lease::Limits;
use crate::local::LocalQueues;
use crate::operation::UnderWay;
use crate::{Claim, Error, ErrorKind, Held, LockGuard, LockName, Mode, Moment, Operation, Result, Wait};

type Acquiring = UnderWay<Result<Option<LockGuard>>>;

/// The longest label, in bytes.
const MAX_LABEL: usize = 255;

/// A request for a lock: what [`Locks::lock`](crate::Locks::lock) and its siblings return.
///
/// Await it to wait for the lock's turn, or end it with [`try_now`](Self::try_now) or [`run`](Self::run). Nothing is
/// sent before that. Every bad choice, a name or a duration that is not allowed, is an error of the end, before any
/// request is sent.
///
/// # Cancel safety
///
/// Dropping the future at any point is safe: the claim leaves its queue, and a grant that arrives for a caller who has
/// gone is released at once, both in the background. What is lost is the place in the queue.
#[must_use = "nothing happens until the request is awaited"]
#[derive(Debug)]
pub struct LockRequest {
    shared: Arc<Shared>,
    name: Result<LockName>,
    mode: Result<Mode>,
    ttl: Duration,
    wait: Option<Duration>,
    label: Arc<str>,
    rest: Duration,
    limits: Limits,
    /// The queue of this process, where the client has one.
    local: Option<Arc<LocalQueues>>,
}

impl LockRequest {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        defaults: &Defaults,
        name: Result<LockName>,
        mode: Result<Mode>,
    ) -> Self {
        let Defaults { ttl, wait, label, local } = defaults;
        Self {
            shared: Arc::clone(shared),
            name,
            mode,
            ttl: *ttl,
            wait: *wait,
            label: Arc::clone(label),
            rest: Duration::ZERO,
            limits: Limits::default(),
            local: local.clone(),
        }
    }

    /// How long the lock outlives a holder that has died or lost its connection. The keeper renews the lease every
    /// third of it.
    ///
    /// Short leases free the locks of the dead soon, and cost renewals; long leases survive long pauses and outages.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long to wait for the lock at most. After that the error is of kind
    /// [`TimedOut`](ErrorKind::TimedOut).
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Waits for as long as it takes, whatever the configuration says.
    pub fn wait_forever(mut self) -> Self {
        self.wait = None;
        self
    }

    /// A text for people that says who holds the lock. The default is host and process.
    pub fn label(mut self, label: impl AsRef<str>) -> Self {
        self.label = label.as_ref().into();
        self
    }

    /// The longest hold: after it the lock is [lost](crate::Loss::HeldTooLong) and given up, even if the holder is
    /// alive and the server well.
    pub fn max_hold(mut self, longest: Duration) -> Self {
        self.limits.max_hold = Some(longest);
        self
    }

    /// Keeps the lock only while the application reports [progress](LockGuard::progress) at least this often. Without
    /// it the lock is [lost](crate::Loss::NoProgress) and given up: a worker that is stuck does not keep its lock for
    /// ever just because the process lives.
    pub fn progress(mut self, at_least_every: Duration) -> Self {
        self.limits.progress = Some(at_least_every);
        self
    }

    /// The lock delay: after a holder that died or lost its lock, the lock rests for this long before another gets it.
    /// Requests of the dead that are still on their way have time to arrive, or to fail. A release frees the lock
    /// at once.
    ///
    /// It makes failures dearer and proves nothing; where the resource can compare [tokens](crate::FencingToken), let
    /// it. (The idea is that of Chubby and Consul.)
    pub fn lock_delay(mut self, rest: Duration) -> Self {
        self.rest = rest;
        self
    }

    /// Takes the lock if it is free now; `None` if it is held by another.
    ///
    /// # Cancel safety
    /// Safe, as for the request: a grant that arrives for a caller who has gone is released at once.
    pub async fn try_now(self) -> Result<Option<LockGuard>> {
        self.begin(|_| Ok(Wait::No))?.await
    }

    /// Waits for the lock and runs `work` while it is held; the lock is released at the end.
    ///
    /// `work` gets a [`Held`] to look at. If the lock is lost, the future of `work` is dropped at its next await, and
    /// the error is of kind [`Lost`](ErrorKind::Lost). Work that never awaits cannot be stopped; let it look at
    /// [`Held::is_held`].
    ///
    /// # Cancel safety
    /// Dropping this future drops that of `work`, and the lock is released in the background.
    pub async fn run<F, W, T>(self, work: F) -> Result<T>
    where
        F: FnOnce(Held) -> W,
        W: Future<Output = T>,
    {
        let shared = Arc::clone(&self.shared);
        let guard = self.await?;
        let held = guard.held();
        let lost = |name: &LockName| {
            let error = Error::new(ErrorKind::Lost, "the lock was lost while the work was going on");
            shared.decorate(error, Operation::Acquire, Some(name))
        };
        let value = tokio::select! {
            // Finished work counts even if the loss is noticed in the same moment: the deadline decides below.
            biased;
            value = work(held.clone()) => value,
            _ = held.lost() => return Err(lost(held.name())),
        };
        if !held.is_held() {
            return Err(lost(held.name()));
        }
        match guard.release().await {
            Err(error) if error.kind() == ErrorKind::Lost => Err(error),
            // The work was done under the lock. What became of the release is the keeper's business.
            _ => Ok(value),
        }
    }

    /// Checks everything, makes the claim, and begins to acquire.
    fn begin(self, wait: impl FnOnce(Option<Duration>) -> Result<Wait>) -> Result<Acquiring> {
        let shared = self.shared;
        let bad = |error, name| shared.decorate(error, Operation::Acquire, name);
        let name = self.name.map_err(|error| bad(error, None))?;
        let checked = self.mode.and_then(|mode| {
            shared.capabilities.check(mode, self.ttl)?;
            shared.capabilities.check_rest(self.ttl, self.rest)?;
            check_limits(self.limits)?;
            check_label(&self.label)?;
            Ok((mode, wait(self.wait)?))
        });
        let (mode, wait) = checked.map_err(|error| bad(error, Some(&name)))?;
        // Readers and permits come in together; a queue in front of the server's would only keep them apart.
        let local = self.local.filter(|_| mode == Mode::Exclusive);
        let mut claim = Claim::new(name, mode, self.ttl, wait, self.label).resting(self.rest);
        if let Some(hand_over) = local.as_ref().and_then(|local| local.hand_over())
            && shared.capabilities.token_blocks
        {
            claim = claim.reserving(NonZeroU32::MIN.saturating_add(hand_over.max));
        }
        Ok(crate::operation::acquire(shared, claim, self.limits, local))
    }
}

fn wait_of(wait: Option<Duration>) -> Result<Wait> {
    let Some(wait) = wait else { return Ok(Wait::Forever) };
    match Moment::now().after(wait) {
        Moment::NEVER => Err(Error::new(
            ErrorKind::InvalidInput,
            "this wait is longer than the clock can count; leave it out to wait for as long as it takes",
        )),
        end => Ok(Wait::Until(end)),
    }
}

fn check_limits(limits: Limits) -> Result<()> {
    if [limits.max_hold, limits.progress].contains(&Some(Duration::ZERO)) {
        let message = "a longest hold, and a time between reports of progress, must be longer than nothing";
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    Ok(())
}

fn check_label(label: &str) -> Result<()> {
    if label.len() > MAX_LABEL || label.chars().any(char::is_control) {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!("a label has at most {MAX_LABEL} bytes and no control characters"),
        ));
    }
    Ok(())
}

impl IntoFuture for LockRequest {
    type Output = Result<LockGuard>;
    type IntoFuture = Acquire;

    fn into_future(self) -> Acquire {
        Acquire(State::New(Some(self)))
    }
}

/// The future of a [`LockRequest`]: waits for the lock's turn. The wait begins when it is first polled.
///
/// # Cancel safety
/// See [`LockRequest`].
#[must_use = "futures do nothing unless awaited"]
pub struct Acquire(State);

enum State {
    New(Option<LockRequest>),
    UnderWay {
        work: Acquiring,
        backend: &'static str,
        wait: Option<Duration>,
        /// Fires a little after the end of the wait, in case that the backend does not.
        end: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    },
}

/// How long after the end of the wait the backend's own answer is waited for. It knows more than "timed out": that the
/// server cannot be reached, for one.
const GRACE: Duration = Duration::from_millis(20);

impl Future for Acquire {
    type Output = Result<LockGuard>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<LockGuard>> {
        if let State::New(request) = &mut self.0 {
            let request = request.take().expect("not polled after its end");
            let wait = request.wait;
            let backend = request.shared.capabilities.backend;
            let work = request.begin(wait_of)?;
            self.0 = State::UnderWay { work, backend, wait, end: None };
        }
        let State::UnderWay { work, backend, wait, end } = &mut self.0 else { unreachable!("set above") };
        let outcome = match Pin::new(&mut *work).poll(cx) {
            Poll::Ready(Ok(Some(guard))) => Ok(guard),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Ready(Ok(None)) => Err(timed_out(*wait, backend, work.claim())),
            Poll::Pending => {
                let Some(Wait::Until(until)) = work.claim().map(Claim::wait) else { return Poll::Pending };
                let end = end.get_or_insert_with(|| Box::pin(until.after(GRACE).sleep()));
                std::task::ready!(end.as_mut().poll(cx));
                Err(timed_out(*wait, backend, work.claim()))
            }
        };
        // Whatever is still under way goes on in the background.
        self.0 = State::New(None);
        Poll::Ready(outcome)
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire").finish_non_exhaustive()
    }
}

fn timed_out(wait: Option<Duration>, backend: &'static str, claim: Option<&Claim>) -> Error {
    let waited = humantime::format_duration(wait.unwrap_or_default());
    let error = Error::new(ErrorKind::TimedOut, format!("still held by another after a wait of {waited}"));
    let error = error.during(Operation::Acquire).on_backend(backend);
    match claim {
        Some(claim) => error.for_lock(claim.name()),
        None => error,
    }
}
