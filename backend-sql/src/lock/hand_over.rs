//! Waiting in a queue whose places the client numbers. A release grants the lock to the waiter. The client
//! gives heartbeats for all its waiters.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use lockwell_core::backend::{ClaimReply, Heartbeat, KEEP_EVERY, Queue, Waiters, wait_for_turn};
use lockwell_core::{Claim, ErrorKind, Grant, Moment, Result};

use crate::client::Client;
use crate::client::batch::{pick, reap_stale, renew_members, replace};
use crate::dialect::hints::Hint;
use crate::dialect::places::{HandOverPlace, PolledQueue, WaiterStatus};
use crate::dialect::queued::HandOverQueue;
use crate::dialect::requests::{Answer, Request, Route, other_answer};
use crate::lock::turn::BLOCKED;
use crate::words::{NO_TICKET, QueuedClaim, TakeRequest, TryAcquire};

/// How many looks for unheard notifications pass after the server said that it is a waiter's turn: the waiter looks
/// for itself within [`KEEP_EVERY`].
const TURN_LOOKS: i32 = 10;
/// For how many of these looks a waiter may ask for its lock. No request takes longer.
const ASKING_LOOKS: i32 = 50;

struct HandOvers<D: HandOverQueue>(Arc<Client<D>>);

pub(crate) fn acquire<D: HandOverQueue>(
    client: Arc<Client<D>>,
    claim: &Claim,
) -> BoxFuture<'_, Result<Option<Grant>>> {
    Box::pin(async move { wait_for_turn(&HandOvers(client), claim).await })
}

impl<D: HandOverQueue> HandOvers<D> {
    /// Asks whose turn it is, and gives a heartbeat. A poll that another waiter has sent since this time
    /// serves as well.
    async fn poll_waiters(&self, since: Moment) -> Result<Arc<PolledQueue>> {
        let places = &self.0.places;
        if let Some(polled) = places.last(since) {
            return Ok(polled);
        }
        match self.0.ask(Route::Main, Request::Poll(Arc::clone(places))).await?.0 {
            Answer::Polled(polled) => Ok(polled),
            _ => Err(other_answer()),
        }
    }
}

impl<D: HandOverQueue> Queue for HandOvers<D> {
    type Place = HandOverPlace;

    async fn subscribe(&self) {
        self.0.notifier.ready().await;
    }

    /// A claim that has asked before, and was not notified since, asks only if a poll says so. One poll
    /// serves all waiters.
    async fn ask(&self, claim: &Claim, place: Option<&HandOverPlace>) -> Result<ClaimReply> {
        let Self(client) = self;
        let Some(place) = place else {
            let took = client.take(Route::Main, Request::Take(TakeRequest::new(claim, NO_TICKET))).await?;
            return self.0.answer(claim, took, None);
        };
        let _asking = place.waiter.asking(ASKING_LOOKS);
        if let Some(asked) = place.last_asked_unnotified() {
            let poll = match self.poll_waiters(asked).await {
                Ok(poll) => poll,
                // A transaction has locked rows or tables of the queue: nothing was found out, and nothing is
                // lost.
                Err(error) if error.kind() == ErrorKind::Held => {
                    return Ok(ClaimReply::Unavailable { error, pause: BLOCKED });
                }
                Err(error) => return Err(error),
            };
            match poll.status_of(place.waiter.ticket()) {
                WaiterStatus::Unchanged(recheck) => return Ok(ClaimReply::Refused { recheck }),
                WaiterStatus::Missing => place.note_missing(),
                WaiterStatus::MayAsk => (),
            }
            if claim.is_wait_over() {
                return Ok(ClaimReply::Refused { recheck: KEEP_EVERY });
            }
        }
        place.note_asked();
        let route = if place.is_blocked() { Route::BlockedRows } else { Route::Main };
        let queued = QueuedClaim { claim: claim.clone(), row: place.row(claim, client.notifier.receives()) };
        let mut unanswered = Unanswered((route == Route::BlockedRows).then_some(claim));
        let took = client.take(route, Request::Claim(queued)).await?;
        unanswered.0 = None;
        place.note_answer(
            matches!(took.0, TryAcquire::Busy(..) | TryAcquire::Stale),
            took.0 == TryAcquire::Blocked,
        );
        self.0.answer(claim, took, Some(client.places.next_heartbeat()))
    }

    fn is_contended(&self, claim: &Claim) -> bool {
        self.0.dialect.hints().has(Hint::Waited, claim.name()) && self.0.notifier.receives()
    }

    fn note_contended(&self, claim: &Claim) {
        self.0.dialect.hints().note(Hint::Waited, claim.name());
    }

    async fn enter(&self, claim: &Claim) -> Result<HandOverPlace> {
        Ok(self.0.places.take(claim, &self.0.waiters))
    }

    async fn notified(&self, place: &HandOverPlace) {
        place.notified().await;
    }

    fn taken(&self, claim: &Claim, place: &HandOverPlace) -> Option<Grant> {
        let (granted, sent, deadline) = place.waiter.granted(Moment::now())?;
        claim.note_left_queue();
        Some(self.0.grant(claim, granted.token(), sent).provisional(deadline))
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

/// Carries out claims, or polls, as [`carry_out`](crate::client::batch::carry_out).
pub(crate) async fn carry_out<D: HandOverQueue>(
    dialect: &D,
    conn: &mut D::Conn,
    waiters: &Waiters,
    batch: &[Arc<Request<D>>],
) -> sqlx_core::Result<Vec<Answer>> {
    // Each try of a request is a heartbeat with another number, so an answer belongs to the try with its number.
    let (number, sent) = (waiters.next_heartbeat(), Moment::now());
    let sign = number.cast_signed();
    if let Request::Poll(places) = &*batch[0] {
        let polled = dialect.poll_waiters(conn, &places.all(), sign).await?;
        waiters.note_heartbeat(Heartbeat::new(number, sent, polled.clock));
        // One that nobody polls is to give up its place.
        polled.turns.iter().for_each(|number| waiters.note_turn(*number, TURN_LOOKS));
        let polled = places.note(polled, sent);
        return Ok(batch.iter().map(|_| Answer::Polled(Arc::clone(&polled))).collect());
    }
    let entry = |one: &Arc<Request<D>>| match &**one {
        Request::Claim(entry) => Some(entry.clone()),
        _ => None,
    };
    let entries: Vec<_> = batch.iter().filter_map(entry).collect();
    let claims: Vec<_> = entries.iter().map(|entry| entry.claim.clone()).collect();
    let (mut answers, clock) = dialect.claim(conn, &entries, sign).await?;
    let stale = reap_stale(dialect, waiters, conn, &claims, &answers).await?;
    if !stale.is_empty() {
        let (again, _) = dialect.claim(conn, &pick(&entries, &stale), sign).await?;
        replace(&mut answers, stale, again);
    }
    renew_members(dialect, conn, &claims, &mut answers).await?;
    if let Some(clock) = clock {
        waiters.note_heartbeat(Heartbeat::new(number, sent, clock));
    }
    Ok(answers.into_iter().map(Answer::Took).collect())
}
