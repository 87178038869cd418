//! A request for one lock.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::client::Shared;
use crate::operation::Acquiring;
use crate::request::{Choices, LockRequest};
use crate::{Claim, Error, ErrorKind, Held, LockGuard, LockName, Mode, Operation, Result, Wait};

/// One lock, and how it is to be held.
#[derive(Debug)]
pub struct One {
    pub(crate) name: Result<LockName>,
    pub(crate) mode: Result<Mode>,
}

impl LockRequest<One> {
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
        guard.run(&shared, work).await
    }

    fn begin(self, wait: impl FnOnce(&Choices) -> Result<Wait>) -> Result<Acquiring> {
        Ok(self.checked(wait)?.begin())
    }

    /// Checks everything. Nothing has been sent.
    pub(crate) fn checked(self, wait: impl FnOnce(&Choices) -> Result<Wait>) -> Result<Checked> {
        let Self { shared, choices, what: One { name, mode } } = self;
        let bad = |error, name| shared.decorate(error, Operation::Acquire, name);
        let name = name.map_err(|error| bad(error, None))?;
        let checked = mode.and_then(|mode| {
            choices.check(&shared, mode)?;
            Ok((mode, wait(&choices)?))
        });
        let (mode, wait) = checked.map_err(|error| bad(error, Some(&name)))?;
        Ok(Checked { shared, choices, name, mode, wait })
    }
}

/// A request that is in order.
pub(crate) struct Checked {
    pub(crate) shared: Arc<Shared>,
    pub(super) choices: Choices,
    pub(crate) name: LockName,
    pub(super) mode: Mode,
    pub(super) wait: Wait,
}

impl Checked {
    pub(crate) fn begin(&self) -> Acquiring {
        self.choices.begin(&self.shared, self.name.clone(), self.mode, self.wait)
    }
}

impl IntoFuture for LockRequest<One> {
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
            let wait = request.choices.wait;
            let backend = request.shared.capabilities.backend;
            let work = request.begin(Choices::until)?;
            self.0 = State::UnderWay { work, backend, wait, end: None };
        }
        let State::UnderWay { work, backend, wait, end } = &mut self.0 else { unreachable!("set above") };
        let outcome = match Pin::new(&mut *work).poll(cx) {
            Poll::Ready(Ok(Some(guard))) => Ok(guard),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Ready(Ok(None)) => Err(timed_out(*wait, backend, work.claim().map(Claim::name))),
            Poll::Pending => {
                let Some(Wait::Until(until)) = work.claim().map(Claim::wait) else { return Poll::Pending };
                let end = end.get_or_insert_with(|| Box::pin(until.after(GRACE).sleep()));
                std::task::ready!(end.as_mut().poll(cx));
                Err(timed_out(*wait, backend, work.claim().map(Claim::name)))
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

/// Waits for work that does not know the end of this wait, but not for longer than that and a moment.
pub(super) async fn within<T>(
    wait: Wait,
    work: impl Future<Output = Result<Option<T>>>,
) -> Result<Option<T>> {
    let Wait::Until(end) = wait else { return work.await };
    tokio::select! {
        biased;
        answer = work => answer,
        () = end.after(GRACE).sleep() => Ok(None),
    }
}

pub(super) fn timed_out(wait: Option<Duration>, backend: &'static str, name: Option<&LockName>) -> Error {
    let waited = humantime::format_duration(wait.unwrap_or_default());
    let error = Error::new(ErrorKind::TimedOut, format!("still held by another after a wait of {waited}"));
    let error = error.during(Operation::Acquire).on_backend(backend);
    match name {
        Some(name) => error.for_lock(name),
        None => error,
    }
}
