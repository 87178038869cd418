//! Leader election: the holder of a lock is the leader.

use std::future::{Future, IntoFuture};
use std::time::Duration;

use crate::backend::Backoff;
use crate::request::in_time::timed_out;
use crate::request::one::Checked;
use crate::request::{Acquire, Choices, LockRequest, One, running};
use crate::{Error, ErrorKind, LockGuard, LockHandle, Result, Wait};

/// A campaign for leadership: the kind of request of [`Locks::campaign`](crate::Locks::campaign).
///
/// A campaign uses a lock like any other, and its name is a lock name: the leader holds the lock, and the
/// candidates wait in its queue. So a leader has a fencing token, and the guarantees of locks hold for
/// leaders. A leader resigns when its [`LockGuard`] is released or dropped.
#[derive(Debug)]
pub struct Campaign(One);

impl Campaign {
    pub(crate) fn request(request: LockRequest<One>) -> LockRequest<Self> {
        let LockRequest { book, mut choices, what } = request;
        // Each candidate has its own claim at the server, so that observers see there who leads, and with
        // which token.
        choices.local = None;
        LockRequest { book, choices, what: Self(what) }
    }
}

/// The pauses after a campaign that failed with a retryable error.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

impl LockRequest<Campaign> {
    fn into_lock(self) -> LockRequest<One> {
        let Self { book, choices, what: Campaign(what) } = self;
        LockRequest { book, choices, what }
    }

    /// Becomes the leader if there is none now; `None` if there is one.
    ///
    /// # Cancel safety
    /// Safe, as for the request.
    #[doc(alias = "try_lock")]
    pub async fn try_now(self) -> Result<Option<LockGuard>> {
        self.into_lock().try_now().await
    }

    /// Campaigns, and runs `work` while leading. When leadership is lost, the future of `work` is dropped at
    /// its next await, and a new campaign begins. So `work` is called once for each term. When `work` ends
    /// while this process leads, leadership is resigned, and the value of `work` is returned.
    ///
    /// Campaigns have no time limit, whatever the configuration says, unless the request sets
    /// [`wait`](LockRequest::wait): a campaign without success within that time fails with
    /// [`TimedOut`](ErrorKind::TimedOut). After a retryable error, for example if the server cannot be
    /// reached, the campaign is repeated after a pause of up to five seconds. Other errors are returned. If
    /// `work` ends after the loss of leadership, its value is dropped, and it is called again in the next
    /// term.
    ///
    /// # Cancel safety
    /// Dropping this future drops that of `work`, and leadership is resigned in the background.
    pub async fn run_as_leader<F, W, T>(self, mut work: F) -> Result<T>
    where
        F: FnMut(LockHandle) -> W,
        W: Future<Output = T>,
    {
        let mut lock = self.into_lock();
        if !lock.choices.wait_is_chosen {
            lock.choices.wait = None;
        }
        let mut checked = lock.checked(Choices::until)?;
        loop {
            let guard = checked.campaign().await?;
            // An error says that leadership was lost.
            if let Ok(value) = running::run(&checked.book, guard.handle(), guard, &mut work).await {
                return Ok(value);
            }
            checked.wait_anew()?;
        }
    }

    /// As [`run_as_leader`](Self::run_as_leader), for work that can fail: one `?` is enough for both errors.
    /// An error of `work` ends the campaign, as its value does.
    ///
    /// ```
    /// # use lockwell_core as lockwell;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockwell::Result<()> {
    /// let locks = lockwell::Locks::in_memory();
    /// locks.campaign("scheduler").try_run_as_leader(async |held| held.check()).await
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// As [`run_as_leader`](Self::run_as_leader).
    pub async fn try_run_as_leader<F, W, T, E>(self, work: F) -> Result<T, E>
    where
        F: FnMut(LockHandle) -> W,
        W: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        self.run_as_leader(work).await?
    }
}

impl Checked {
    /// Campaigns until it leads, or its wait is over.
    async fn campaign(&self) -> Result<LockGuard> {
        let mut backoff = Backoff::new(PAUSES.0, PAUSES.1);
        loop {
            let error = match self.begin().await {
                Ok(Some(guard)) => return Ok(guard),
                Ok(None) => {
                    let backend = self.book.capabilities().backend();
                    return Err(timed_out(self.choices.wait, backend, Some(&self.name)));
                }
                Err(error) => error,
            };
            let is_over = match self.wait {
                Wait::No => true,
                Wait::Until(end) => self.book.clock.has_passed(end),
                Wait::Forever => false,
            };
            if is_over || !error.is_retryable() || error.kind() == ErrorKind::TimedOut {
                return Err(error);
            }
            tracing::info!(lock = %self.name, error = format!("{error:#}"), "the campaign is repeated");
            backoff.pause_by(&self.book.clock).await;
        }
    }
}

impl IntoFuture for LockRequest<Campaign> {
    type Output = Result<LockGuard>;
    type IntoFuture = Acquire;

    fn into_future(self) -> Acquire {
        self.into_lock().into_future()
    }
}
