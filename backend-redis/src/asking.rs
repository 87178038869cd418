//! The calls of one runtime to a server, a master or a cluster: taking and releasing locks.

use std::sync::Arc;

use lockcore::backend::Heartbeat;
use lockcore::{Claim, Moment, Released, Result};

use crate::answers::{self, AcquireAnswer, ClaimAnswer, Notification, ReleaseAnswer, Tokens};
use crate::calls::{Answer, Item};
use crate::lock::Client;
use crate::requests::{Requests, is_simple};
use crate::waiting::Place;
use crate::wire::Wire;

/// When the call that brought an answer was sent, and on which connection.
pub(crate) struct Answered {
    pub(crate) sent: Moment,
    pub(crate) wire: Arc<Wire>,
    pub(crate) generation: u64,
}

fn answered(answer: Answer) -> Answered {
    Answered { sent: answer.sent, wire: answer.wire, generation: answer.generation }
}

impl Client {
    pub(crate) fn requests(&self) -> Requests<'_> {
        let exact = !self.common.settings.address.is_cluster();
        Requests { keys: &self.common.keys, channel: &self.subscriber.channel, exact }
    }

    /// Asks for a lock once, and leaves no trace if it is refused. The item is in the queue when this returns.
    pub(crate) fn acquire(&self, claim: &Claim) -> impl Future<Output = Result<(ClaimAnswer, Answered)>> {
        let simple = is_simple(claim) && !self.hot.is_hot(claim.name());
        let first = simple.then(|| self.calls.call(self.requests().acquire(claim)));
        let second = (!simple).then(|| self.claim(claim, None));
        async move {
            if let Some(second) = second {
                return second.await;
            }
            let Some(first) = first else { unreachable!("one of the two") };
            let answer = first.await?;
            match answers::acquired(&answer.value)? {
                AcquireAnswer::Granted(token) => {
                    Ok((ClaimAnswer::Granted(Tokens::one(token)), answered(answer)))
                }
                AcquireAnswer::Held => Ok((ClaimAnswer::HELD, answered(answer))),
                AcquireAnswer::Unclear => self.claim(claim, None).await,
            }
        }
    }

    /// One call of the script that knows all cases: with a place it queues, and gives a heartbeat. The item is in the
    /// queue when this returns.
    pub(crate) fn claim(
        &self,
        claim: &Claim,
        place: Option<&Place>,
    ) -> impl Future<Output = Result<(ClaimAnswer, Answered)>> {
        let place = place.map(|place| (place, place.waiter.next_heartbeat()));
        let listens = self.calls.route().is_listening(self.slot(claim));
        let call = self.calls.call(self.requests().claim(claim, place, listens));
        let mode = claim.mode();
        async move {
            let answer = call.await?;
            let (claimed, clock) = answers::claimed(&answer.value, mode)?;
            if let (Some((place, number)), ClaimAnswer::Busy(busy)) = (place, &claimed) {
                let Answer { sent, generation, .. } = answer;
                place.note_kept(busy.place, sent);
                // After a request was repeated, it is unknown which copy the server has seen last.
                if !answer.in_doubt {
                    place.waiter.note_heartbeat(Heartbeat::new(number, sent, clock).over(generation));
                }
            }
            Ok((claimed, answered(answer)))
        }
    }

    /// Releases what a claim holds, and its place in the queue.
    pub(crate) async fn release_claim(&self, claim: &Claim, queued: bool) -> Result<Released> {
        let mut in_doubt = false;
        if !queued && is_simple(claim) && !self.hot.is_hot(claim.name()) {
            let answer = self.calls.call(self.requests().release(claim)).await?;
            in_doubt = answer.in_doubt;
            match answers::released(&answer.value)? {
                ReleaseAnswer::Released => return Ok(Released::Released),
                ReleaseAnswer::NotHeld => return Ok(Released::from_answer(false, in_doubt)),
                ReleaseAnswer::Unclear => self.hot.note(claim.name()),
            }
        }
        let answer = self.calls.call(self.requests().release_claim(claim, queued, "")).await?;
        let (released, notifications) = answers::claim_released(&answer.value, answer.generation)?;
        self.deliver(notifications);
        Ok(Released::from_answer(released, in_doubt || answer.in_doubt))
    }

    /// Delivers the notifications for waiters of this client in a script's answer.
    fn deliver(&self, notifications: Vec<Notification>) {
        for notification in notifications {
            self.subscriber.deliver(notification);
        }
    }

    /// Calls a script for one lock that frees something. Returns how many holders were freed; an earlier try may have
    /// done it.
    pub(crate) async fn free(&self, item: Item) -> Result<(usize, Answer)> {
        let answer = self.calls.call(item).await?;
        let (freed, notifications) = answers::freed_all(&answer.value, answer.generation)?;
        self.deliver(notifications);
        Ok((freed, answer))
    }
}
