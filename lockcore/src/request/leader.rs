//! Leader election: a lock whose holder leads.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;

use crate::backend::Backoff;
use crate::request::one::{Checked, timed_out};
use crate::request::{Choices, LockRequest, One, running};
use crate::{Error, ErrorKind, FencingToken, LockGuard, LockHandle, Loss, Operation, Result, Wait};

/// A campaign for leadership: what [`Locks::campaign`](crate::Locks::campaign) asks for.
///
/// A campaign is a lock like any other, and its name one of the lock names: who leads holds the lock, and the
/// candidates stand in its queue. So a leader has a fencing token, and two leaders at a time are what two holders are.
#[derive(Debug)]
pub struct Campaign(One);

impl Campaign {
    pub(crate) fn request(request: LockRequest<One>) -> LockRequest<Self> {
        let LockRequest { background, mut choices, what } = request;
        // Each candidate has its own claim at the server, so that observers see there who leads, and with which token.
        choices.local = None;
        LockRequest { background, choices, what: Self(what) }
    }
}

/// The pauses after a campaign that failed with a retryable error.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

impl LockRequest<Campaign> {
    fn into_lock(self) -> LockRequest<One> {
        let Self { background, choices, what: Campaign(what) } = self;
        LockRequest { background, choices, what }
    }

    /// Leads if nobody else does now; `None` if somebody does.
    ///
    /// # Cancel safety
    /// Safe, as for the request.
    pub async fn try_now(self) -> Result<Option<Leadership>> {
        Ok(self.into_lock().try_now().await?.map(Leadership))
    }

    /// Campaigns, and runs `work` while leading. When leadership is lost, the future of `work` is dropped at its next
    /// await, and the campaign begins anew; so `work` is called once for each term. When it comes to its end while
    /// leading, leadership is resigned, and its value returned.
    ///
    /// A campaign goes on for as long as it takes, whatever the configuration says, unless this request says
    /// [`wait`](LockRequest::wait): one that has no success within that time ends with an error of kind
    /// [`TimedOut`](ErrorKind::TimedOut). A campaign that fails with a retryable error, as when the server cannot be
    /// reached, is repeated after a pause of up to five seconds. Other errors are returned. Work whose end comes after
    /// the loss of leadership does not count, and is done again.
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
            if let Ok(value) = running::run(&checked.background, guard.handle(), guard, &mut work).await {
                return Ok(value);
            }
            checked.wait_anew()?;
        }
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
                    let backend = self.background.capabilities.backend;
                    return Err(timed_out(self.choices.wait, backend, Some(&self.name)));
                }
                Err(error) => error,
            };
            let is_over = matches!(self.wait, Wait::Until(end) if self.background.clock.has_passed(end));
            if is_over || !error.is_retryable() || error.kind() == ErrorKind::TimedOut {
                return Err(error);
            }
            tracing::info!(lock = %self.name, error = format!("{error:#}"), "the campaign is repeated");
            backoff.pause().await;
        }
    }
}

impl IntoFuture for LockRequest<Campaign> {
    type Output = Result<Leadership>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { Ok(Leadership(self.into_lock().await?)) })
    }
}

/// A term of leadership. Dropping it resigns, as dropping a [`LockGuard`] releases.
#[derive(Debug)]
#[must_use = "if unused leadership is resigned immediately"]
#[clippy::has_significant_drop]
pub struct Leadership(LockGuard);

impl Leadership {
    /// The fencing token: higher than that of every earlier leader. Send it along with whatever a leader orders.
    pub fn token(&self) -> FencingToken {
        self.0.token()
    }

    /// Whether this process leads now, by the clock. See [`LockGuard::is_held`].
    pub fn is_leader(&self) -> bool {
        self.0.is_held()
    }

    /// Resolves when leadership is lost: at the deadline at the latest, whatever the network does.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost.
    pub async fn lost(&self) -> Loss {
        self.0.lost().await
    }

    /// A handle that can be cloned and given to tasks. It does not keep leadership.
    pub fn handle(&self) -> LockHandle {
        self.0.handle()
    }

    /// The lock behind it.
    pub fn guard(&self) -> &LockGuard {
        &self.0
    }

    /// Resigns, and waits for the server's answer. See [`LockGuard::release`].
    ///
    /// # Cancel safety
    /// The resignation goes on in the background when this future is dropped; only the answer is lost.
    pub async fn resign(self) -> Result<()> {
        self.0.release().await.map_err(|error: Error| error.during(Operation::Release))
    }
}
