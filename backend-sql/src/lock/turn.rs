//! How a claim asks for its lock, and waits for its turn.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockwell_core::backend::{ClaimReply, KEEP_EVERY, Queue, Waiter, closed_for, valid_until};
use lockwell_core::{Claim, Error, ErrorKind, FencingToken, Grant, Mode, Moment, Result, Wait};

use crate::client::Client;
use crate::client::places::{HandOverPlace, WaiterStatus};
use crate::client::requests::Route;
use crate::dialect::Dialect;
use crate::words::{Entered, Hold, NO_TICKET, QueuedClaim, TakeRequest, TryAcquire};

/// When to ask again if another client is changing the mark of the server.
const MARK_CHANGES: Duration = Duration::from_millis(5);

/// When to ask again if a transaction has locked the row.
const BLOCKED: Duration = Duration::from_millis(20);

/// The queue of a database, for [`wait_for_turn`](lockwell_core::backend::wait_for_turn).
pub(crate) struct LockQueue<'a, D: Dialect> {
    pub(crate) client: Arc<Client<D>>,
    pub(crate) record: &'a Arc<dyn Any + Send + Sync>,
}

/// A place in the queue.
pub(crate) enum QueuePlace {
    /// A release notifies the waiter, which asks again, or relies on what the release has granted to it, or
    /// reads that. The waiter gives its own heartbeats.
    Notified(NotifiedPlace),
    /// A release grants the lock to the waiter. Its client gives heartbeats for all its waiters.
    HandOver(HandOverPlace),
}

pub(crate) struct NotifiedPlace {
    waiter: Waiter,
    /// The refusal when the claim entered the queue. It is the answer to the first request with the place.
    refused: Mutex<Option<(TryAcquire, Moment)>>,
    /// The token of a grant that was announced, and could not be relied on without a request.
    announced: Mutex<Option<FencingToken>>,
    /// Whether the place must be deleted when the lock is granted.
    forget_place: AtomicBool,
}

impl<D: Dialect> LockQueue<'_, D> {
    /// A place for a claim that will probably wait, since somebody waited for this lock a moment ago. The
    /// claim enters the queue with its first request.
    pub(crate) fn place_at_once(&self, claim: &Claim) -> Option<QueuePlace> {
        let is_hot = self.client.dialect.hot()?.is_hot(claim.name());
        let queues = is_hot && claim.wait() != Wait::No && self.client.notifier.receives();
        queues.then(|| {
            claim.note_queued();
            self.place(claim)
        })
    }

    /// The same where the database numbers the places. The answer to the request for the place is that to the
    /// first request for the lock, too.
    pub(crate) async fn enter_at_once(&self, claim: &Claim) -> Result<Option<QueuePlace>> {
        let is_held = self.client.dialect.handed_on().is_some_and(|locks| locks.is_hot(claim.name()));
        let may_wait = claim.wait() != Wait::No && !claim.is_wait_over();
        if !is_held || !may_wait || !self.client.notifier.receives() {
            return Ok(None);
        }
        claim.note_queued();
        claim.within_wait(self.enter(claim)).await.map(Some)
    }

    /// Turns the answer of the database into one for the waiting loop.
    pub(crate) fn answer(
        &self,
        claim: &Claim,
        (took, sent): (TryAcquire, Moment),
        place: Option<&QueuePlace>,
    ) -> Result<ClaimReply> {
        let free_in = match took {
            TryAcquire::Granted(token) => {
                if place.is_some() {
                    claim.note_left_queue();
                }
                let grant = Grant::new(claim, token, sent).with_record(Arc::clone(self.record));
                return Ok(ClaimReply::Granted(grant));
            }
            TryAcquire::HandedOver(token, left) => {
                if let Some(QueuePlace::Notified(place)) = place {
                    // The release has deleted it.
                    place.forget_place.store(false, Ordering::Relaxed);
                    claim.note_left_queue();
                }
                let grant = Grant::new(claim, token, sent).with_record(Arc::clone(self.record));
                return Ok(ClaimReply::Granted(grant.provisional(valid_until(sent, left))));
            }
            TryAcquire::KindClash(in_use) => return Err(Mode::clash(in_use, claim.mode())),
            TryAcquire::Busy(free_in) => free_in,
            TryAcquire::Closed(left) => {
                let error = Error::new(ErrorKind::GracePeriod, closed_for(left));
                return Ok(ClaimReply::Unavailable { error, pause: left.clamp(MARK_CHANGES, KEEP_EVERY) });
            }
            TryAcquire::Blocked => {
                // The outcome is unknown, so it is cleaned up like a place in the queue.
                claim.note_queued();
                Some(BLOCKED)
            }
            TryAcquire::Member(_) | TryAcquire::Stale => None,
        };
        let recheck = match place {
            Some(QueuePlace::HandOver(_)) => self.client.places.next_heartbeat(),
            Some(QueuePlace::Notified(_)) | None => KEEP_EVERY,
        };
        Ok(ClaimReply::Refused { recheck: recheck.min(lease_end(free_in)) })
    }
}

impl<D: Dialect> Queue for LockQueue<'_, D> {
    type Place = QueuePlace;

    async fn subscribe(&self) {
        self.client.notifier.ready().await;
    }

    async fn ask(&self, claim: &Claim, place: Option<&QueuePlace>) -> Result<ClaimReply> {
        let request = match place {
            Some(whole @ QueuePlace::HandOver(entry)) => {
                return self.ask_for_hand_over(claim, whole, entry).await;
            }
            Some(QueuePlace::Notified(NotifiedPlace { waiter, refused, announced, .. })) => {
                let refused = refused.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(refused) = refused {
                    return self.answer(claim, refused, place);
                }
                let before = announced.lock().unwrap_or_else(PoisonError::into_inner).take();
                let announced = waiter.announced().map(|granted| granted.token()).or(before);
                TakeRequest { announced, ..TakeRequest::new(claim, waiter.ticket()) }
            }
            None => TakeRequest::new(claim, NO_TICKET),
        };
        let took = self.client.take(request).await?;
        self.answer(claim, took, place)
    }

    async fn enter(&self, claim: &Claim) -> Result<QueuePlace> {
        if let Some(hot) = self.client.dialect.hot() {
            hot.note(claim.name());
            return Ok(self.place(claim));
        }
        let (Entered { ticket, refused }, sent) = self.client.enter(claim).await?;
        Ok(QueuePlace::Notified(NotifiedPlace {
            waiter: self.client.waiters.register(claim.name(), ticket),
            refused: Mutex::new(refused.map(|refused| (refused, sent))),
            announced: Mutex::default(),
            forget_place: AtomicBool::new(Hold::of(claim) == Hold::Alone),
        }))
    }

    async fn notified(&self, place: &QueuePlace) {
        match place {
            QueuePlace::Notified(place) => place.waiter.notified().await,
            QueuePlace::HandOver(place) => place.notified().await,
        }
    }

    fn taken(&self, claim: &Claim, place: &QueuePlace) -> Option<Grant> {
        let (granted, sent, deadline) = match place {
            QueuePlace::HandOver(place) => place.waiter.granted(Moment::now())?,
            QueuePlace::Notified(place) => {
                let granted = place.waiter.announced()?;
                let Some((sent, deadline)) = self.client.accept(claim, &granted) else {
                    *place.announced.lock().unwrap_or_else(PoisonError::into_inner) = Some(granted.token());
                    return None;
                };
                // The release has deleted it.
                place.forget_place.store(false, Ordering::Relaxed);
                (granted, sent, deadline)
            }
        };
        claim.note_left_queue();
        let grant = Grant::new(claim, granted.token(), sent).with_record(Arc::clone(self.record));
        Some(grant.provisional(deadline))
    }

    async fn keep(&self, claim: &Claim, place: &QueuePlace) -> Result<bool> {
        match place {
            QueuePlace::Notified(place) => self.client.keep_place(claim, place.waiter.ticket()).await,
            // A poll is a heartbeat, and is sent before this is due.
            QueuePlace::HandOver(_) => Ok(true),
        }
    }

    async fn leave(&self, claim: &Claim) -> Result<()> {
        self.client.leave(claim).await.map(drop)
    }

    /// Deletes the place. Until it is deleted, others ignore it, since its owner holds the lock.
    fn granted(&self, place: QueuePlace) {
        if let QueuePlace::Notified(NotifiedPlace { waiter, forget_place, .. }) = place
            && forget_place.into_inner()
        {
            self.client.forget_place(waiter.ticket());
        }
    }
}

impl<D: Dialect> LockQueue<'_, D> {
    /// Asks for a lock on databases where a release grants it to a waiter. A claim that has asked before, and
    /// was not notified since, asks only if a poll says so. One poll serves all waiters.
    async fn ask_for_hand_over(
        &self,
        claim: &Claim,
        place: &QueuePlace,
        entry: &HandOverPlace,
    ) -> Result<ClaimReply> {
        if let Some(asked) = entry.last_asked_unnotified() {
            let poll = match self.client.poll_waiters(asked).await {
                Ok(poll) => poll,
                // A transaction has locked rows or tables of the queue: nothing was found out, and nothing is
                // lost.
                Err(error) if error.kind() == ErrorKind::Held => {
                    return Ok(ClaimReply::Unavailable { error, pause: BLOCKED });
                }
                Err(error) => return Err(error),
            };
            match poll.status_of(entry.waiter.ticket()) {
                WaiterStatus::Unchanged(recheck) => return Ok(ClaimReply::Refused { recheck }),
                WaiterStatus::Missing => entry.note_missing(),
                WaiterStatus::MayAsk => (),
            }
            if claim.is_wait_over() {
                return Ok(ClaimReply::Refused { recheck: KEEP_EVERY });
            }
        }
        entry.note_asked();
        let route = if entry.is_blocked() { Route::BlockedRows } else { Route::Main };
        let queued =
            QueuedClaim { claim: claim.clone(), row: entry.row(claim, self.client.notifier.receives()) };
        let mut unanswered = Unanswered((route == Route::BlockedRows).then_some(claim));
        let took = self.client.claim(route, queued).await?;
        unanswered.0 = None;
        entry.note_answer(
            matches!(took.0, TryAcquire::Busy(_) | TryAcquire::Stale),
            took.0 == TryAcquire::Blocked,
        );
        self.answer(claim, took, Some(place))
    }

    fn place(&self, claim: &Claim) -> QueuePlace {
        QueuePlace::HandOver(self.client.places.take(claim, &self.client.waiters))
    }
}

/// A request on another connection than that of the release. If nobody waits for its answer any more, it may
/// go on after the release: it then takes a place again that the release has deleted, or the lock.
struct Unanswered<'a>(Option<&'a Claim>);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(claim) = self.0 {
            claim.note_in_doubt();
        }
    }
}

/// A little after the end of the holder's lease, at a random time, so that waiters of several processes do
/// not ask together.
fn lease_end(free_in: Option<Duration>) -> Duration {
    let jitter = Duration::from_millis(1).mul_f64(1.0 + 9.0 * rand::random::<f64>());
    free_in.map_or(KEEP_EVERY, |left| left.saturating_add(jitter))
}
