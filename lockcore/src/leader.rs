//! Leader election: a lock whose holder leads.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;

use crate::request::{LockRequest, One};
use crate::{Error, FencingToken, Held, LockGuard, Loss, Operation, Result};

/// A campaign for leadership: what [`Locks::campaign`](crate::Locks::campaign) asks for.
///
/// A campaign is a lock like any other, and its name one of the lock names: who leads holds the lock, and the
/// candidates stand in its queue. So a leader has a fencing token, and two leaders at a time are what two holders are.
#[derive(Debug)]
pub struct Campaign(One);

impl Campaign {
    pub(crate) fn request(request: LockRequest<One>) -> LockRequest<Self> {
        let LockRequest { shared, mut choices, what } = request;
        // Candidates stand at the server, each for itself: what observers see there is who leads, and by which token.
        choices.local = None;
        LockRequest { shared, choices, what: Self(what) }
    }
}

/// The pauses after a campaign that failed in a way that may pass.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

impl LockRequest<Campaign> {
    fn into_lock(self) -> LockRequest<One> {
        let Self { shared, choices, what: Campaign(what) } = self;
        LockRequest { shared, choices, what }
    }

    /// Leads if nobody else does now; `None` if somebody does.
    ///
    /// # Cancel safety
    /// Safe, as for the request.
    pub async fn try_now(self) -> Result<Option<Leadership>> {
        Ok(self.into_lock().try_now().await?.map(Leadership))
    }

    /// Campaigns for as long as it takes, and runs `work` while leading. When leadership is lost, the future of `work`
    /// is dropped at its next await, and the campaign begins anew; so `work` is called once for each term. When it comes
    /// to its end while leading, leadership is resigned, and its value returned.
    ///
    /// A campaign that fails in a way that may pass, as when the server cannot be reached, is repeated after a pause
    /// of up to five seconds. Other errors are returned. Work whose end comes after the loss of leadership is work
    /// of a former leader, and is done again.
    ///
    /// # Cancel safety
    /// Dropping this future drops that of `work`, and leadership is resigned in the background.
    pub async fn run_as_leader<F, W, T>(self, mut work: F) -> Result<T>
    where
        F: FnMut(Held) -> W,
        W: Future<Output = T>,
    {
        let lock = self.into_lock().wait_forever();
        let checked = lock.checked(crate::request::Choices::until)?;
        let mut pause = PAUSES.0;
        loop {
            let error = match checked.begin().await {
                Ok(Some(guard)) => {
                    pause = PAUSES.0;
                    // An error says that leadership was lost.
                    if let Ok(value) = guard.run(&checked.shared, &mut work).await {
                        return Ok(value);
                    }
                    continue;
                }
                // A wait without an end ends by being cancelled only.
                Ok(None) => continue,
                Err(error) => error,
            };
            if !error.is_retryable() {
                return Err(error);
            }
            tracing::info!(lock = %checked.name, error = format!("{error:#}"), "the campaign is repeated");
            tokio::time::sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
            pause = (pause * 2).min(PAUSES.1);
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

    /// A view that can be cloned and handed to tasks. It does not keep leadership.
    pub fn held(&self) -> Held {
        self.0.held()
    }

    /// The lock behind it.
    pub fn guard(&self) -> &LockGuard {
        &self.0
    }

    /// Makes way for the next candidate, and waits for the server's answer. See [`LockGuard::release`].
    ///
    /// # Cancel safety
    /// The resignation goes on in the background when this future is dropped; only the answer is lost.
    pub async fn resign(self) -> Result<()> {
        self.0.release().await.map_err(|error: Error| error.during(Operation::Release))
    }
}
