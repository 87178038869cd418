//! Calls of scripts.
//!
//! Every script is idempotent for its owner, so calls are repeated after a failure. All calls for a slot are
//! sent over one connection, and a call that is made when another has ended is carried out after it: a
//! release comes after the acquire that it cleans up. Calls that are under way at the same time keep no
//! order. An acquire that was repeated on a second connection may still be carried out a second time, from
//! the first connection, after its release: such a claim is noted as [in doubt](Claim::note_in_doubt), and is
//! released again.

pub(crate) mod fenced;
pub(crate) mod grace;
pub(crate) mod item;
pub(crate) mod items;
mod marks;
pub(crate) mod place;
pub(crate) mod requests;
mod sending;

use std::sync::Arc;
use std::time::Duration;

use lockwell_core::backend::{Attempt, Batcher, Bounds, Call, CallOutcome, Service};
use lockwell_core::{Moment, Result};
use redis::Value;

use crate::calls::grace::GraceGate;
use crate::calls::item::{Item, ItemReply};
use crate::calls::sending::{CallPath, Scripts, SendOutcome};
use crate::wire::Wire;
use crate::wire::route::Route;
use crate::words::error::unexpected;
use crate::words::error::{fatal, no_answer};
use crate::words::script::{RENEW, Script};

/// How often a call is sent to another node of a cluster before it pauses.
const REDIRECTS: usize = 5;

/// How many calls of a script are under way at a time: enough to fill the time of a round trip, few enough
/// that requests share calls. The most items in one call: see [`Sharing`](crate::words::script::Sharing).
const BOUNDS: Bounds = Bounds::new().under_way(2);

#[derive(Clone, Debug)]
pub(crate) struct Calls {
    batcher: Batcher<Scripts>,
    timeout: Duration,
}

impl Calls {
    pub(crate) fn new(route: Route, grace: Option<Arc<GraceGate>>, timeout: Duration) -> Self {
        let one_try = (timeout / 3).max(Duration::from_millis(50));
        Self { batcher: Batcher::new(Scripts { route, grace, one_try }, BOUNDS), timeout }
    }

    pub(crate) fn route(&self) -> &Route {
        &self.batcher.service().route
    }

    /// Calls a script and waits for its answer, at most for the timeout of the calls.
    pub(crate) fn call(&self, item: Item) -> impl Future<Output = Result<ItemReply>> + use<> {
        self.call_within(item, self.timeout)
    }

    /// Calls a script, with an answer within `limit`. The item is in the queue when this returns: items that
    /// are put there before the first of them is polled share a call.
    pub(crate) fn call_within(
        &self,
        item: Item,
        limit: Duration,
    ) -> impl Future<Output = Result<ItemReply>> + use<> {
        let key = Key { slot: item.slot, script: std::ptr::from_ref(item.script).addr() };
        let call: Call<Scripts> = self.batcher.call(key, item, limit.min(self.timeout));
        async move {
            let (answer, in_doubt) = call.await?.into_parts();
            Ok(ItemReply { in_doubt, ..answer })
        }
    }
}

/// The calls to one server, which is no cluster.
#[derive(Clone, Debug)]
pub(crate) struct OneServer {
    calls: Calls,
    wire: Arc<Wire>,
}

impl OneServer {
    pub(crate) fn new(wire: Arc<Wire>, timeout: Duration) -> Self {
        Self { calls: Calls::new(Route::One(Arc::clone(&wire)), None, timeout), wire }
    }

    pub(crate) fn wire(&self) -> &Arc<Wire> {
        &self.wire
    }
}

impl std::ops::Deref for OneServer {
    type Target = Calls;

    fn deref(&self) -> &Calls {
        &self.calls
    }
}

/// The key of the batcher: items of one script in one slot can share a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    slot: u16,
    /// Scripts are statics, so their addresses identify them.
    script: usize,
}

impl Service for Scripts {
    type Key = Key;
    type Request = Item;
    type Answer = ItemReply;

    fn shares(&self, first: &Item, _: &Item) -> bool {
        first.script.sharing.is_some()
    }

    fn most(&self, first: &Item) -> usize {
        first.script.sharing.map_or(1, |sharing| sharing.most)
    }

    fn is_wanted(&self, item: &Item) -> bool {
        item.takes.as_ref().is_none_or(|claim| !claim.is_cancelled())
    }

    /// Where there is a connection, a call waits for the answer to one command. A caller that is left
    /// meanwhile keeps nothing from others. Where there are grace periods, the server is asked before that
    /// who it is, and what it says counts for a moment only.
    fn is_light(&self, key: &Key, _: &Item) -> bool {
        self.route.wire(key.slot).is_some_and(|wire| wire.is_connected() && self.gate(&wire).is_none())
    }

    fn note_in_doubt(&self, item: &Item) {
        if let Some(claim) = &item.takes {
            claim.note_in_doubt();
        }
    }

    async fn prepare(&self, key: &Key, attempt: Attempt) -> Result<()> {
        if self.route.wire(key.slot).is_some_and(|wire| wire.is_connected()) {
            return Ok(());
        }
        // Boxed, since it is rare, and would make every call's future large.
        Box::pin(self.connect(key.slot, attempt)).await
    }

    async fn call(&self, key: &Key, batch: &[&Item], attempt: Attempt) -> Vec<CallOutcome<ItemReply>> {
        let of_all = |outcome: &dyn Fn() -> CallOutcome<ItemReply>| batch.iter().map(|_| outcome()).collect();
        let Some((wire, (link, generation))) =
            self.route.wire(key.slot).and_then(|wire| wire.ready().map(|ready| (wire, ready)))
        else {
            return of_all(&|| CallOutcome::Unavailable(no_answer(None)));
        };
        let script = batch[0].script;
        let end = Moment::now().after(attempt.until().remaining().min(self.one_try));
        let mut path = CallPath { wire, link, generation, asking: false, closed_for: None, is_sent: false };
        let (mut called, mut sent) = self.call_at(&mut path, batch, end).await;
        for _ in 0..REDIRECTS {
            let SendOutcome::Elsewhere(error) = &called else { break };
            // An answer that was looked at late does not say who has the slot now.
            if end.has_passed() {
                break;
            }
            let Some(next) = Box::pin(self.follow(key.slot, error, &path, end)).await else { break };
            // Items that are not wanted any more are not sent again: their releases may be on their way.
            if !self.are_wanted(batch) {
                break;
            }
            path = next;
            (called, sent) = self.call_at(&mut path, batch, end).await;
        }
        let answer = |value| {
            let CallPath { generation, closed_for, .. } = path;
            let wire = Arc::clone(&path.wire);
            CallOutcome::Answered(ItemReply { value, sent, in_doubt: false, wire, generation, closed_for })
        };
        match called {
            SendOutcome::Answered(value) if script.sharing.is_none() => vec![answer(value)],
            // The shortest scripts answer to one item as it is.
            SendOutcome::Answered(value @ (Value::Int(_) | Value::BulkString(_))) if batch.len() == 1 => {
                vec![answer(value)]
            }
            SendOutcome::Answered(Value::Array(values)) if values.len() == batch.len() => {
                values.into_iter().map(answer).collect()
            }
            SendOutcome::Answered(_) => of_all(&|| CallOutcome::Failed(unexpected())),
            SendOutcome::Failed(error) => of_all(&|| CallOutcome::Refused(fatal(&error, Some(script)))),
            SendOutcome::NotDone(error) | SendOutcome::Elsewhere(error) => {
                of_all(&|| CallOutcome::Unavailable(no_answer(Some(&error))))
            }
            // Each of these locks can be renewed by itself.
            SendOutcome::Torn(error) if batch.iter().all(|item| renews_several(item)) => {
                of_all(&|| CallOutcome::Failed(no_answer(Some(&error))))
            }
            SendOutcome::Torn(error) => of_all(&|| CallOutcome::Unavailable(no_answer(Some(&error)))),
            // The script is not known, and some of the batch is not wanted any more.
            SendOutcome::Unwanted => of_all(&|| CallOutcome::Unavailable(no_answer(None))),
            SendOutcome::Unknown(error) => of_all(&|| CallOutcome::Unknown(no_answer(error.as_ref()))),
        }
    }
}

/// Whether the item renews several locks: one has three arguments, or four if a group may hold it.
fn renews_several(item: &Item) -> bool {
    let renew: &Script = &RENEW;
    std::ptr::eq(item.script, renew) && item.args.len() > 4
}
