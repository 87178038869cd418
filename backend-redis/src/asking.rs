//! The calls of one runtime at a server, a master or a cluster: taking locks and giving them up.

use std::sync::Arc;

use lockcore::backend::{SignOfLife, Waiter};
use lockcore::{Claim, Moment, Result};

use crate::answers::{self, Acquired, Let, Told, Took};
use crate::calls::{Answer, Item};
use crate::lock::Client;
use crate::requests::{Requests, is_simple};
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
        let exact = !self.shared.settings.address.is_cluster();
        Requests { keys: &self.shared.keys, channel: &self.subscriber.channel, exact }
    }

    /// Asks for a lock once, and leaves no trace if it is refused. The item is in the queue when this returns.
    pub(crate) fn acquire(&self, claim: &Claim) -> impl Future<Output = Result<(Took, Answered)>> {
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
                Acquired::Granted(token) => Ok((Took::Granted(token), answered(answer))),
                Acquired::Held => Ok((Took::HELD, answered(answer))),
                Acquired::Unclear => self.claim(claim, None).await,
            }
        }
    }

    /// One call of the script that knows all cases: with a place it queues, and gives a sign of life. The item is in the
    /// queue when this returns.
    pub(crate) fn claim(
        &self,
        claim: &Claim,
        place: Option<&Waiter>,
    ) -> impl Future<Output = Result<(Took, Answered)>> {
        let place = place.map(|waiter| (waiter, waiter.next_sign()));
        let call = self.calls.call(self.requests().claim(claim, place));
        let mode = claim.mode();
        async move {
            let answer = call.await?;
            let (took, clock) = answers::claimed(&answer.value, mode)?;
            // Of a request that was repeated, nobody knows which copy the server has seen last.
            if let (Some((waiter, number)), Took::Busy(_), false) = (place, &took, answer.in_doubt) {
                let Answer { sent, generation, .. } = answer;
                waiter.note_sign(SignOfLife { sent, clock, number, generation });
            }
            Ok((took, answered(answer)))
        }
    }

    /// Gives up what a claim holds, and its place.
    pub(crate) async fn give_up(&self, claim: &Claim, queued: bool) -> Result<bool> {
        let mut in_doubt = false;
        if !queued && is_simple(claim) && !self.hot.is_hot(claim.name()) {
            let answer = self.calls.call(self.requests().release(claim)).await?;
            in_doubt = answer.in_doubt;
            match answers::let_go(&answer.value)? {
                Let::Go => return Ok(true),
                // An earlier try, whose answer was lost, may have done it.
                Let::NotHeld => return Ok(in_doubt),
                Let::Unclear => self.hot.note(claim.name()),
            }
        }
        let answer = self.calls.call(self.requests().give_up(claim, queued, "")).await?;
        let (released, told) = answers::given_up(&answer.value, answer.generation)?;
        self.tell(told);
        Ok(released || in_doubt || answer.in_doubt)
    }

    /// Tells waiters of this client what a script has answered for them.
    fn tell(&self, told: Vec<Told>) {
        for told in told {
            self.subscriber.tell(told);
        }
    }

    /// Calls a script for one lock that frees something. Says how many were freed; an earlier try may have done it.
    pub(crate) async fn free(&self, item: Item) -> Result<(usize, Answer)> {
        let answer = self.calls.call(item).await?;
        let (freed, told) = answers::freed_all(&answer.value, answer.generation)?;
        self.tell(told);
        Ok((freed, answer))
    }
}
