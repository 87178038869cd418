//! Which leases are renewed together, and one such batch.
//!
//! Leases without failures are renewed together, up to 500 of them. Leases whose renewal failed are renewed
//! apart, in batches of half the size. These are halved again at each failure while the server answers other
//! batches: so one lease that always fails is soon alone, and costs the others nothing. While the server
//! answers nobody, the reason is not in a batch, and many small batches would delay the renewals after the
//! outage: so their size stays.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt;

use super::book::Book;
use super::held_lock::HeldLock;
use crate::life::Event;
use crate::{Error, ErrorKind, Grant, Moment, Renewal};

/// A renewal with less time than this may have failed for the lack of it. It does not hide the reason of an
/// earlier one.
const TELLING: Duration = Duration::from_millis(100);
/// The most leases in one renewal: enough to make statements rare, few enough to keep each one short.
const BATCH: usize = 500;

/// Leases that are renewed by one call.
pub(super) type Batch = Vec<Arc<HeldLock>>;

/// Puts leases that are due into batches: those with the same limit of their batch, and with about the same
/// time for an answer, since the shortest time of a batch is the time of all.
pub(super) fn batches(mut due: Batch, now: Moment) -> Vec<Batch> {
    let class = |held: &Arc<HeldLock>| {
        let lease = held.lease();
        let timeout = lease.renewal_timeout(now).as_millis().max(1);
        (lease.batch_limit().min(BATCH), timeout.ilog2())
    };
    due.sort_by_cached_key(class);
    let alike = due.chunk_by(|one, other| class(one) == class(other));
    let sized = alike.flat_map(|some| some.chunks(some.first().map_or(1, |held| class(held).0)));
    sized.map(<[_]>::to_vec).collect()
}

impl Book {
    /// Renews a batch, and steps its leases by the answers.
    pub(super) async fn renew(&self, batch: Batch) {
        let in_doubt = batch.iter().any(|held| held.lease().failures() > 0);
        let turns = if in_doubt { &self.renewals.doubtful } else { &self.renewals.healthy };
        // Waiting for other calls is no failure of a lease. Each of them has its own bound.
        let _turn = turns.acquire().await;
        let sent = self.clock.now();
        let timeouts = batch.iter().map(|held| held.lease().renewal_timeout(sent));
        let limit = timeouts.min().unwrap_or_default();
        let answers = self.call(&batch, limit).await;
        if answers.iter().any(|answer| !matches!(answer, Renewal::Unknown(_))) {
            self.renewals.answered.fetch_max(sent.as_nanos(), Ordering::Relaxed);
        }
        let mut answers = answers.into_iter();
        // The two halves of what fails are tried again at different times.
        let spreads = [rand::random::<f64>(), rand::random::<f64>()];
        for (at, held) in batch.iter().enumerate() {
            let half = batch.len() / 2;
            let spread = spreads[usize::from(at >= half)];
            let valid_until = held.valid_until();
            let event = match answers.next() {
                Some(Renewal::Renewed(deadline)) => {
                    held.note_failure(None);
                    Event::Renewed(sent, deadline)
                }
                Some(Renewal::Lost) => Event::Gone,
                Some(Renewal::Unknown(error)) => {
                    self.narrow(held, batch.len(), sent);
                    self.doubt(held, spread, &format!("{error:#}"), limit)
                }
                None => {
                    self.narrow(held, batch.len(), sent);
                    self.doubt(held, spread, "no answer in time", limit)
                }
            };
            // The time now, and not that of the answer: a lease that was reported lost in between does not
            // come back.
            held.on(self.clock.now(), event);
            // Who sees a renewal in the statistics finds the lease renewed.
            match event {
                Event::Renewed(..) => self.telemetry.renewed(valid_until, &self.clock),
                Event::Gone => self.telemetry.renewal_denied(),
                _ => (),
            }
        }
    }

    /// Sets the size of the next batch of a lease whose batch of this size, sent then, has failed.
    fn narrow(&self, held: &HeldLock, size: usize, sent: Moment) {
        let answered = Moment::from_nanos(self.renewals.answered.load(Ordering::Relaxed));
        held.change(|lease| lease.narrow(size, sent, answered));
    }

    /// The answers of the backend; none if it does not return in time, or panics.
    async fn call(&self, batch: &[Arc<HeldLock>], limit: Duration) -> Vec<Renewal> {
        let grants: Vec<Grant> = batch.iter().map(|held| held.grant().clone()).collect();
        let until = self.clock.now().after(limit);
        self.telemetry.renewal_called();
        let called = AssertUnwindSafe(self.backend.renew(&grants, until)).catch_unwind();
        // A backend answers for each lease by `until`. A little later all of them count as unknown.
        match self.clock.timeout_at(until.after(limit / 8), called).await {
            Some(Ok(answers)) => answers,
            None => Vec::new(),
            Some(Err(_)) => {
                let panicked = Error::new(ErrorKind::Internal, "the backend has panicked");
                Renewal::all_unknown(&grants, &panicked)
            }
        }
    }

    /// A renewal that says nothing about the lock. It had this much time.
    pub(super) fn doubt(&self, held: &HeldLock, spread: f64, why: &str, limit: Duration) -> Event {
        self.telemetry.renewal_failed();
        if limit >= TELLING || held.failure().is_none() {
            held.note_failure(Some(why));
        }
        tracing::info!(lockwell.name = %held.grant().claim().name(), error = why, "renewal failed; it is tried again");
        Event::Unknown(held.lease().retry_pause(self.clock.now(), spread))
    }
}
