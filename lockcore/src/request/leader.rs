//! Leader election: the holder of a lock is the leader.

use std::future::{Future, IntoFuture};

use crate::request::in_time::InTime;
use crate::request::{Acquire, Choices, LockRequest, One, running};
use crate::{Error, LockGuard, LockHandle, Result};

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
    /// [`TimedOut`](crate::ErrorKind::TimedOut). A server that is away is waited for, see
    /// [`wait_forever`](LockRequest::wait_forever). If `work` ends after the loss of leadership, its value is
    /// dropped, and it is called again in the next term.
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
            lock = lock.wait_forever();
        }
        let mut checked = lock.checked(Choices::until)?;
        loop {
            let guard = {
                let mut campaign = InTime::new(checked.clone());
                (&mut campaign).await?.ok_or_else(|| campaign.timed_out())?
            };
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

impl IntoFuture for LockRequest<Campaign> {
    type Output = Result<LockGuard>;
    type IntoFuture = Acquire;

    fn into_future(self) -> Acquire {
        self.into_lock().into_future()
    }
}
