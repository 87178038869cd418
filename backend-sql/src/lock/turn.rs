//! How a claim asks for its lock, and waits for its turn: what all databases have in common.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use lockwell_core::backend::{ClaimReply, KEEP_EVERY, closed_for, valid_until};
use lockwell_core::{Claim, Error, ErrorKind, FencingToken, Grant, Moment, Result};

use crate::client::Client;
use crate::client::service::Answered;
use crate::dialect::Dialect;
use crate::words::TryAcquire;

/// When to ask again if another client is changing the mark of the server.
const MARK_CHANGES: Duration = Duration::from_millis(5);

/// When to ask again if a transaction has locked the row.
pub(super) const BLOCKED: Duration = Duration::from_millis(20);

/// How a claim takes its lock, or waits for it in the queue of its database.
pub(crate) type Acquire<D> = fn(Arc<Client<D>>, &Claim) -> BoxFuture<'_, Result<Option<Grant>>>;

impl<D: Dialect> Client<D> {
    /// Turns the answer of the database into one for the waiting loop. `recheck`: when a claim with a place
    /// asks again. `None`: it has no place.
    pub(crate) fn answer(
        &self,
        claim: &Claim,
        (took, sent): Answered<TryAcquire>,
        recheck: Option<Duration>,
    ) -> Result<ClaimReply> {
        let note_left = || {
            if recheck.is_some() {
                claim.note_left_queue();
            }
        };
        let free_in = match took {
            TryAcquire::Granted(token) => {
                note_left();
                return Ok(ClaimReply::Granted(self.grant(claim, token, sent)));
            }
            TryAcquire::HandedOver(token, left) => {
                note_left();
                let grant = self.grant(claim, token, sent).provisional(valid_until(sent, left));
                return Ok(ClaimReply::Granted(grant));
            }
            TryAcquire::Busy(free_in, in_use) => {
                claim.note_in_use(in_use)?;
                free_in
            }
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
        Ok(ClaimReply::Refused { recheck: recheck.unwrap_or(KEEP_EVERY).min(lease_end(free_in)) })
    }

    pub(crate) fn grant(&self, claim: &Claim, token: FencingToken, sent: Moment) -> Grant {
        Grant::new(claim, token, sent).with_record(Arc::clone(&self.record))
    }
}

/// A little after the end of the holder's lease, at a random time, so that waiters of several processes do
/// not ask together.
fn lease_end(free_in: Option<Duration>) -> Duration {
    let jitter = Duration::from_millis(1).mul_f64(1.0 + 9.0 * rand::random::<f64>());
    free_in.map_or(KEEP_EVERY, |left| left.saturating_add(jitter))
}
