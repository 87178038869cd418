//! How a claim asks for its lock, and waits for its turn.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockcore::backend::{Answer, KEEP_EVERY, Queue, Waiter};
use lockcore::{Claim, Grant, Mode, Moment, Result, Wait};

use crate::client::Client;
use crate::dialect::{Ask, Dialect, Entry, Hold, NO_TICKET, Took};
use crate::places::{self, Due};
use crate::requests::{Context, Route};

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
pub(crate) enum Place {
    /// A release wakes it, and it gives signs of life itself.
    Woken(Woken),
    /// A release grants the lock to it, and its client gives signs of life.
    Handed(places::Place),
}

pub(crate) struct Woken {
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
        let look = match place {
            Some(Place::Handed(_)) => self.client.places.next_sign(),
            Some(Place::Woken(place)) => {
                let looks = place.looks.fetch_add(1, Ordering::Relaxed);
                EARLY_LOOKS.get(looks).copied().unwrap_or(KEEP_EVERY)
            }
            None => EARLY_LOOKS[0],
        };
        Ok(Answer::Refused { recheck: look.min(lease_end(free_in)) })
    }

    /// A place for a claim that is likely to wait, since somebody waited for this lock a moment ago: it queues with its
    /// first question.
    pub(crate) fn place_at_once(&self, claim: &Claim) -> Option<Place> {
        let is_hot = self.client.dialect.hot()?.is_hot(claim.name());
        let queues = is_hot && claim.wait() != Wait::No && self.client.wake.hears();
        queues.then(|| {
            claim.note_queued();
            self.place(claim)
        })
    }

    fn place(&self, claim: &Claim) -> Place {
        Place::Handed(self.client.places.take(claim, &self.client.waiters))
    }

    /// Asks where releases hand locks over. A claim that has asked before, and was not notified since, asks only if a look
    /// says that it should: that is one statement for all who wait.
    async fn ask_in_line(&self, claim: &Claim, place: &Place, seat: &places::Place) -> Result<Answer> {
        if let Some(asked) = seat.looks_since() {
            match self.client.look(asked).await?.due(seat.waiter.ticket()) {
                Due::Nothing(recheck) => return Ok(Answer::Refused { recheck }),
                Due::Missing => seat.note_missing(),
                Due::Asks => (),
            }
            if claim.is_wait_over() {
                return Ok(Answer::Refused { recheck: KEEP_EVERY });
            }
        }
        seat.note_asked();
        let route = if seat.is_blocked() { Route::BlockedRows } else { Route::Main };
        let entry = Entry { claim: claim.clone(), seat: seat.seat(claim, self.client.wake.hears()) };
        let took = self.client.claim(route, entry).await?;
        seat.note_answer(matches!(took.0, Took::Busy(_) | Took::Stale), took.0 == Took::Blocked);
        self.answer(claim, took, Some(place))
    }
}

impl<D: Dialect> Queue for Turn<'_, D> {
    type Place = Place;

    async fn subscribe(&self) {
        self.client.wake.ready().await;
    }

    async fn ask(&self, claim: &Claim, place: Option<&Place>) -> Result<Answer> {
        let ticket = match place {
            Some(whole @ Place::Handed(seat)) => return self.ask_in_line(claim, whole, seat).await,
            Some(Place::Woken(place)) => place.waiter.ticket(),
            None => NO_TICKET,
        };
        let took = self.client.take(Ask { claim: claim.clone(), ticket }).await?;
        self.answer(claim, took, place)
    }

    async fn enter(&self, claim: &Claim) -> Result<Place> {
        if let Some(hot) = self.client.dialect.hot() {
            hot.note(claim.name());
            return Ok(self.place(claim));
        }
        let queueing = claim.clone();
        let enrolled = self.client.queue(claim, move |Context { dialect, waiters, conn }| {
            let (claim, client) = (queueing.clone(), waiters.client());
            Box::pin(async move { dialect.enroll(conn, &claim, client).await })
        });
        let ticket = enrolled.await?;
        Ok(Place::Woken(Woken {
            waiter: self.client.waiters.register(claim.name(), ticket),
            looks: AtomicUsize::new(0),
            tidy: Hold::of(claim) == Hold::Alone,
        }))
    }

    async fn notified(&self, place: &Place) {
        match place {
            Place::Woken(place) => place.waiter.notified().await,
            Place::Handed(place) => place.notified().await,
        }
    }

    fn taken(&self, claim: &Claim, place: &Place) -> Option<Grant> {
        let Place::Handed(place) = place else { return None };
        let (granted, sent, deadline) = place.waiter.granted(Moment::now())?;
        claim.note_left_queue();
        let grant = Grant::new(claim, granted.token(), sent).with_record(Arc::clone(self.record));
        Some(grant.provisional(deadline))
    }

    async fn keep(&self, claim: &Claim, place: &Place) -> Result<bool> {
        match place {
            Place::Woken(place) => self.client.stay(claim, place.waiter.ticket()).await,
            // A look is a sign of life, and it comes before this is due.
            Place::Handed(_) => Ok(true),
        }
    }

    async fn leave(&self, claim: &Claim) -> Result<()> {
        self.client.leave(claim).await.map(drop)
    }

    /// The place is of no use any more. Until it is gone, it is passed over, being the holder's.
    fn granted(&self, place: Place) {
        if let Place::Woken(Woken { waiter, tidy: true, .. }) = place {
            self.client.tidy(waiter.ticket());
        }
    }
}

/// When the lease of the holder ends, and a little later, so that waiters of several processes do not meet.
fn lease_end(free_in: Option<Duration>) -> Duration {
    let jitter = Duration::from_millis(1).mul_f64(1.0 + 9.0 * rand::random::<f64>());
    free_in.map_or(KEEP_EVERY, |left| left.saturating_add(jitter))
}
