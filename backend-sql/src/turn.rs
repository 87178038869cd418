//! How a claim asks for its lock, and waits for its turn.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockcore::backend::{Answer, KEEP_EVERY, Queue, Waiter};
use lockcore::{Claim, Grant, Mode, Moment, Result};

use crate::client::Client;
use crate::dialect::{Ask, Dialect, Hold, NO_TICKET, Took};
use crate::requests::Context;

/// A release that was already under way when a claim queued may have missed its place. The looks at growing distances
/// are for that one.
const EARLY_LOOKS: [Duration; 3] =
    [Duration::from_millis(4), Duration::from_millis(25), Duration::from_millis(150)];

/// Whoever has the row has the lock, for us. It is asked again soon.
const BLOCKED: Duration = Duration::from_millis(20);

/// The asking side of a lock.
pub(crate) struct Turn<'a, D: Dialect> {
    pub(crate) client: Arc<Client<D>>,
    pub(crate) record: &'a Arc<dyn Any + Send + Sync>,
}

/// A place in the queue.
pub(crate) struct Place {
    waiter: Waiter,
    looks: AtomicUsize,
    /// Whether it must be given up when the lock is granted.
    tidy: bool,
}

impl<D: Dialect> Turn<'_, D> {
    /// What the answer of the database comes to.
    pub(crate) fn answer(
        &self,
        claim: &Claim,
        (took, sent): (Took, Moment),
        place: Option<&Place>,
    ) -> Result<Answer> {
        let free_in = match took {
            Took::Granted(token) => {
                if place.is_some() {
                    claim.note_left_queue();
                }
                let grant = Grant::new(claim, token, sent).with_record(Arc::clone(self.record));
                return Ok(Answer::Granted(grant));
            }
            Took::Clash(in_use) => return Err(Mode::clash(in_use, claim.mode())),
            Took::Busy(free_in) => free_in,
            Took::Blocked => {
                // Nobody knows, so it is to be cleaned up like a place in the queue.
                claim.note_queued();
                Some(BLOCKED)
            }
            Took::Member(_) | Took::Stale => None,
        };
        let looks = place.map_or(0, |place| place.looks.fetch_add(1, Ordering::Relaxed));
        let look = EARLY_LOOKS.get(looks).copied().unwrap_or(KEEP_EVERY);
        Ok(Answer::Refused { recheck: look.min(lease_end(free_in)) })
    }
}

impl<D: Dialect> Queue for Turn<'_, D> {
    type Place = Place;

    async fn subscribe(&self) {
        self.client.wake.ready().await;
    }

    async fn ask(&self, claim: &Claim, place: Option<&Place>) -> Result<Answer> {
        let ticket = place.map_or(NO_TICKET, |place| place.waiter.ticket());
        let took = self.client.take(Ask { claim: claim.clone(), ticket }).await?;
        self.answer(claim, took, place)
    }

    async fn enter(&self, claim: &Claim) -> Result<Place> {
        let queueing = claim.clone();
        let enrolled = self.client.queue(claim, move |Context { dialect, waiters, conn }| {
            let (claim, client) = (queueing.clone(), waiters.client());
            Box::pin(async move { dialect.enroll(conn, &claim, client).await })
        });
        let ticket = enrolled.await?;
        Ok(Place {
            waiter: self.client.waiters.register(claim.name(), ticket),
            looks: AtomicUsize::new(0),
            tidy: Hold::of(claim) == Hold::Alone && !D::TIDIES_UP,
        })
    }

    async fn notified(&self, place: &Place) {
        place.waiter.notified().await;
    }

    async fn keep(&self, claim: &Claim, place: &Place) -> Result<bool> {
        self.client.stay(claim, place.waiter.ticket()).await
    }

    async fn leave(&self, claim: &Claim) -> Result<()> {
        self.client.leave(claim).await.map(drop)
    }

    /// The place is of no use any more. Until it is gone, it is passed over, being the holder's.
    fn granted(&self, place: Place) {
        if place.tidy {
            self.client.tidy(place.waiter.ticket());
        }
    }
}

/// When the lease of the holder ends, and a little later, so that waiters of several processes do not meet.
fn lease_end(free_in: Option<Duration>) -> Duration {
    let jitter = Duration::from_millis(1).mul_f64(1.0 + 9.0 * rand::random::<f64>());
    free_in.map_or(KEEP_EVERY, |left| left.saturating_add(jitter))
}
