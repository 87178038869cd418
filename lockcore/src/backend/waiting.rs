//! The waiting loop, for servers that refuse a claim and notify it later.

use std::future::Future;
use std::time::Duration;

use super::KEEP_EVERY;
use crate::{Claim, Error, ErrorKind, Grant, Result, Wait};

/// The answer to a request for a lock.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClaimReply {
    /// The claim holds the lock.
    Granted(Grant),
    /// Another claim holds the lock, or comes first. Request the lock again after a notification, and after
    /// `recheck` at the latest. That is, for instance, the end of the holder's lease, since a holder that
    /// died sends no notification.
    Refused {
        /// How long to wait for a notification.
        recheck: Duration,
    },
    /// There was no decision: the votes were split, for instance. Request the lock again after the pause,
    /// with or without a notification.
    Undecided {
        /// How long to wait.
        pause: Duration,
    },
    /// Too few servers answer, or may vote, for a decision. Request the lock again after the pause. If the
    /// wait ends before that, the acquire fails with this error, since it is unknown whether the lock is
    /// held.
    Unavailable {
        /// The reason.
        error: Error,
        /// How long to wait.
        pause: Duration,
    },
}

/// How a claim requests its lock, and how it keeps its place in a queue at the server. [`wait_for_turn`] does
/// the rest.
pub trait Queue: Sync {
    /// A place in the queue, from entering the queue until the value is dropped. It receives the
    /// notifications.
    type Place: Send + Sync;

    /// Requests the lock once. If a request without a place is refused, it must leave nothing behind.
    fn ask(
        &self,
        claim: &Claim,
        place: Option<&Self::Place>,
    ) -> impl Future<Output = Result<ClaimReply>> + Send;

    /// Subscribes to notifications. This is called before each request that queues, so that no notification
    /// is missed. It ends at the end of the claim's wait at the latest. Without a subscription, waiters
    /// depend on the timer.
    fn subscribe(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Whether others have waited for this lock a moment ago, so that the claim will probably wait, too: see
    /// [`Hot`](super::Hot). It then enters the queue before its first request.
    fn is_contended(&self, claim: &Claim) -> bool {
        let _: &Claim = claim;
        false
    }

    /// A claim without a place was refused, and will wait.
    fn note_contended(&self, claim: &Claim) {
        let _: &Claim = claim;
    }

    /// Takes a place at the end of the queue.
    fn enter(&self, claim: &Claim) -> impl Future<Output = Result<Self::Place>> + Send;

    /// Resolves when the place is notified; at once if a notification came before the call.
    fn notified(&self, place: &Self::Place) -> impl Future<Output = ()> + Send;

    /// A grant that a release has made for the place, if it is valid without another request. This is called
    /// after each notification. Backends without such grants need not implement it.
    fn taken(&self, claim: &Claim, place: &Self::Place) -> Option<Grant> {
        let _: (&Claim, &Self::Place) = (claim, place);
        None
    }

    /// Sends a heartbeat of the waiter; false if the place is gone. If each request for the lock is a
    /// heartbeat, a backend need not implement this.
    fn keep(&self, claim: &Claim, place: &Self::Place) -> impl Future<Output = Result<bool>> + Send {
        let _: (&Claim, &Self::Place) = (claim, place);
        std::future::ready(Ok(true))
    }

    /// The claim was granted, and does not need its place any more.
    fn granted(&self, place: Self::Place) {
        drop(place);
    }
}

/// Requests a lock, and waits for its turn as long as the claim allows. `None`: the wait ended, or the claim
/// was cancelled.
///
/// The order of the steps makes sure that no notification is missed: the place in the queue exists before the
/// lock is requested again, so a later release finds it. A timer is the fallback for a lost notification.
/// After a cancellation no request is sent that queues: the claim is checked before each such request.
pub async fn wait_for_turn<Q: Queue>(queue: &Q, claim: &Claim) -> Result<Option<Grant>> {
    let clock = claim.clock();
    let mut kept = clock.now();
    let may_wait = claim.wait() != Wait::No && !claim.is_wait_over();
    let mut place = None;
    if may_wait && queue.is_contended(claim) {
        place = Some(enter(queue, claim).await?);
    }
    let mut unavailable: Option<Error> = None;
    loop {
        // With a place, asking queues.
        if place.is_some() && !is_subscribed(queue, claim).await {
            return unavailable.map_or(Ok(None), Err);
        }
        let asked = claim.within_wait(queue.ask(claim, place.as_ref())).await;
        claim.note_obstacle(match &asked {
            Ok(ClaimReply::Unavailable { error, .. }) => Some(error),
            _ => None,
        });
        let obstacle = unavailable.take();
        let pause = match asked {
            Ok(ClaimReply::Granted(grant)) => {
                if let Some(place) = place {
                    queue.granted(place);
                }
                return Ok(Some(grant));
            }
            Ok(ClaimReply::Refused { recheck }) => recheck,
            Ok(ClaimReply::Undecided { pause }) => {
                if clock.timeout(pause, claim.wait_over()).await.is_some() {
                    return Ok(None);
                }
                continue;
            }
            Ok(ClaimReply::Unavailable { error, pause }) => {
                if clock.timeout(pause, claim.wait_over()).await.is_some() {
                    return Err(error);
                }
                unavailable = Some(error);
                continue;
            }
            // The wait ended while it was asked again.
            Err(error) if error.kind() == ErrorKind::TimedOut => return Err(obstacle.unwrap_or(error)),
            Err(error) => return Err(error),
        };
        // For a claim that does not wait, this was all.
        if claim.wait() == Wait::No {
            return Ok(None);
        }
        // From this answer on the wait ends when its time has passed.
        claim.note_waiting();
        if claim.is_wait_over() {
            return Ok(None);
        }
        let Some(waiting) = &place else {
            if !is_subscribed(queue, claim).await {
                return Ok(None);
            }
            queue.note_contended(claim);
            place = Some(enter(queue, claim).await?);
            kept = clock.now();
            continue;
        };
        tokio::select! {
            biased;
            () = claim.wait_over() => return Ok(None),
            () = queue.notified(waiting) => {
                if let Some(grant) = queue.taken(claim, waiting) {
                    if let Some(place) = place {
                        queue.granted(place);
                    }
                    return Ok(Some(grant));
                }
            }
            () = clock.sleep(pause) => (),
        }
        if clock.has_passed(kept.after(KEEP_EVERY)) {
            let asked = clock.now();
            if !claim.within_wait(queue.keep(claim, waiting)).await? {
                // We were away for longer than a place is kept, and start again at the end.
                if claim.is_wait_over() {
                    return Ok(None);
                }
                place = Some(enter(queue, claim).await?);
            }
            kept = asked;
        }
    }
}

/// Subscribes; false if the wait of the claim is over.
async fn is_subscribed<Q: Queue>(queue: &Q, claim: &Claim) -> bool {
    tokio::select! {
        biased;
        () = claim.wait_over() => false,
        () = queue.subscribe() => true,
    }
}

async fn enter<Q: Queue>(queue: &Q, claim: &Claim) -> Result<Q::Place> {
    claim.note_queued();
    claim.within_wait(queue.enter(claim)).await
}

#[cfg(test)]
#[path = "waiting_tests.rs"]
mod tests;
