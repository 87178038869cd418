//! Waits for the turn of a claim at a server, a master or a cluster.

use std::sync::atomic::Ordering;
use std::time::Duration;

use lockwell_core::backend::{ClaimReply, Queue};
use lockwell_core::{Claim, Error, ErrorKind, Grant, Moment, Result, Wait};

use crate::calls::items::recheck;
use crate::calls::place::Place;
use crate::server::client::Client;
use crate::wire::route::Route;
use crate::words::answers::ClaimAnswer;
use crate::words::error::SLOT_MOVES;

/// How often a claim asks again while the server grants nothing.
const GRACE_PAUSE: Duration = Duration::from_millis(200);

/// A claim queues by the same script call that asks for the lock, and each call is a heartbeat.
impl Queue for Client {
    type Place = Place;

    async fn subscribe(&self) {
        // In a cluster that depends on the claim.
        if let Route::One(wire) = self.calls.route() {
            wire.listen().await;
        }
    }

    async fn ask(&self, claim: &Claim, place: Option<&Place>) -> Result<ClaimReply> {
        if place.is_some() && !self.calls.route().is_listening(self.slot(claim)) {
            Box::pin(self.calls.route().listen(self.slot(claim))).await;
        }
        let call = async {
            match place {
                None => self.acquire(claim).await,
                Some(_) => self.claim(claim, place).await,
            }
        };
        let answer = match self.calls.route() {
            Route::One(_) => call.await,
            Route::Cluster(_) => Box::pin(self.within_wait(claim, call)).await,
        };
        match answer {
            Ok((ClaimAnswer::Granted(tokens), call)) => {
                claim.note_left_queue();
                Ok(match self.granted(claim, tokens, call).await? {
                    Some(grant) => ClaimReply::Granted(grant),
                    None => ClaimReply::Undecided { pause: Duration::ZERO },
                })
            }
            Ok((ClaimAnswer::Busy(busy), _)) => Ok(ClaimReply::Refused { recheck: recheck(&busy) }),
            // Nothing is granted until then, but the order counts from now on.
            Err(error) if claim.wait() != Wait::No && error.kind() == ErrorKind::GracePeriod => {
                Ok(match place {
                    Some(_) => ClaimReply::Unavailable { error, pause: GRACE_PAUSE },
                    None => ClaimReply::Refused { recheck: GRACE_PAUSE },
                })
            }
            // It will be at its new node in a moment, and nothing was done meanwhile.
            Err(error) if claim.wait() != Wait::No && error.is_retryable() && self.is_moving(claim) => {
                let error = self.explained(claim, error);
                Ok(ClaimReply::Unavailable { error, pause: Duration::from_millis(20) })
            }
            Err(error) => Err(error),
        }
    }

    fn is_contended(&self, claim: &Claim) -> bool {
        self.hot.is_hot(claim.name()) && self.calls.route().is_listening(self.slot(claim))
    }

    fn note_contended(&self, claim: &Claim) {
        self.hot.note(claim.name());
    }

    async fn enter(&self, claim: &Claim) -> Result<Place> {
        let waiter = self.waiters.register(claim.name(), self.tickets.fetch_add(1, Ordering::Relaxed));
        Ok(Place::new(waiter))
    }

    /// If a grant counts only when it is confirmed, the claim asks the server, which extends the lease.
    fn taken(&self, claim: &Claim, place: &Place) -> Option<Grant> {
        if self.common.settings.confirms() {
            return None;
        }
        let (granted, sent, deadline) = place.waiter.granted(Moment::now())?;
        claim.note_left_queue();
        Some(Grant::new(claim, granted.token(), sent).provisional(deadline))
    }

    async fn notified(&self, place: &Place) {
        place.waiter.notified().await;
    }
}

impl Client {
    /// Whether a call found lately that the slot of a lock is being moved to another node.
    fn is_moving(&self, claim: &Claim) -> bool {
        self.calls.route().is_moving(self.slot(claim))
    }

    /// Ends a wait for a slot that is being moved to another node early enough for an error that says so.
    async fn within_wait<T>(&self, claim: &Claim, call: impl Future<Output = Result<T>>) -> Result<T> {
        if claim.wait() == Wait::No {
            return call.await;
        }
        let mut call = std::pin::pin!(call);
        tokio::select! {
            biased;
            answer = &mut call => return answer,
            () = claim.wait_over() => (),
        }
        if self.is_moving(claim) { Err(Error::new(ErrorKind::Unreachable, SLOT_MOVES)) } else { call.await }
    }

    /// Adds to the error of a wait that the slot of its lock was being moved at its end.
    pub(crate) fn explained(&self, claim: &Claim, error: Error) -> Error {
        let vague = matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::Unreachable);
        if vague && self.is_moving(claim) { Error::new(ErrorKind::Unreachable, SLOT_MOVES) } else { error }
    }
}
