//! The scripts' calls on one connection.
//!
//! Every script is idempotent for its owner, so calls are repeated after a failure. All calls travel on one connection,
//! and a call that is made when another has ended is carried out after it: a release comes after the acquire that it
//! cleans up. Calls that are under way at the same time keep no order. An acquire that was repeated on a second
//! connection can be met by its own copy from the first one even after its release: such a claim is noted as
//! [in doubt](Claim::note_in_doubt), and is released again.

use std::sync::Arc;
use std::time::Duration;

use lockcore::backend::{Attempt, Batcher, Bounds, Call, Outcome, Reply, Service};
use lockcore::{Claim, Error, Moment, Result};
use redis::{RedisError, RedisResult, Value};

use crate::error::{Verdict, fatal, no_answer, no_link, verdict};
use crate::script::Script;
use crate::wire::{Link, Wire};

/// How many calls of a script are on their way at a time: enough to fill the time of a round trip, few enough that
/// requests meet. And the most items in one call: enough to share its cost, few enough not to hold the server up.
const BOUNDS: Bounds = Bounds { under_way: 2, batch: 128, waiting: 65_536 };

/// One item of a script call. Its first keys and arguments may concern the whole call (see
/// [`Script::lead`]).
pub(crate) struct Item {
    pub(crate) script: &'static Script,
    pub(crate) slot: u16,
    pub(crate) keys: Arc<Vec<String>>,
    pub(crate) args: Arc<Vec<String>>,
    /// The claim that may have the lock by it.
    pub(crate) takes: Option<Claim>,
}

/// The arguments name owners, which are secret.
impl std::fmt::Debug for Item {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Item").field("slot", &self.slot).finish_non_exhaustive()
    }
}

/// What a script answered to one item.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) value: Value,
    /// When the call that brought the answer was sent.
    pub(crate) sent: Moment,
    /// Whether an earlier try may have been carried out without our hearing of it.
    pub(crate) in_doubt: bool,
    /// The connection that it came over.
    pub(crate) generation: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Calls {
    batcher: Batcher<Scripts>,
    timeout: Duration,
}

impl Calls {
    pub(crate) fn new(wire: Arc<Wire>, timeout: Duration) -> Self {
        let one_try = (timeout / 3).max(Duration::from_millis(50));
        Self { batcher: Batcher::new(Scripts { wire, one_try }, BOUNDS), timeout }
    }

    pub(crate) fn wire(&self) -> &Arc<Wire> {
        &self.batcher.service().wire
    }

    /// Calls a script and waits for its answer, at most for the calls's timeout.
    pub(crate) fn call(&self, item: Item) -> impl Future<Output = Result<Answer>> + use<> {
        self.call_within(item, self.timeout)
    }

    /// Calls a script, which is given up after `limit`. The item is in the queue when this returns: items that are put
    /// there before the first of them is polled share a call.
    pub(crate) fn call_within(
        &self,
        item: Item,
        limit: Duration,
    ) -> impl Future<Output = Result<Answer>> + use<> {
        let key = Key { slot: item.slot, script: std::ptr::from_ref(item.script).addr() };
        let call: Call<Scripts> = self.batcher.call(key, item, limit.min(self.timeout));
        async move {
            let Reply { answer, in_doubt } = call.await?;
            Ok(Answer { in_doubt, ..answer })
        }
    }
}

/// What may share a call, and what does not wait for what: the items of a script in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    slot: u16,
    /// Scripts are statics, so their places tell them apart.
    script: usize,
}

/// Calls scripts on a wire.
#[derive(Debug)]
pub(crate) struct Scripts {
    wire: Arc<Wire>,
    /// How long one try may take before another connection is tried.
    one_try: Duration,
}

impl Service for Scripts {
    type Key = Key;
    type Request = Item;
    type Answer = Answer;

    fn shares(&self, first: &Item, _: &Item) -> bool {
        first.script.lead.is_some()
    }

    fn is_wanted(&self, item: &Item) -> bool {
        item.takes.as_ref().is_none_or(|claim| !claim.is_cancelled())
    }

    fn note_in_doubt(&self, item: &Item) {
        if let Some(claim) = &item.takes {
            claim.note_in_doubt();
        }
    }

    async fn prepare(&self, _: &Key, attempt: Attempt) -> Result<()> {
        if self.wire.ready().is_some() {
            return Ok(());
        }
        // Boxed, since it is rare, and would make every call's future large.
        match Box::pin(tokio::time::timeout(attempt.until.remaining(), self.wire.link())).await {
            Ok(linked) => linked.map(drop).map_err(|error| no_link(&error)),
            Err(_) => Err(no_answer(None)),
        }
    }

    async fn call(&self, _: &Key, batch: &[&Item], attempt: Attempt) -> Vec<Outcome<Answer>> {
        let of_all = |outcome: &dyn Fn() -> Outcome<Answer>| batch.iter().map(|_| outcome()).collect();
        let Some((mut link, generation)) = self.wire.ready() else {
            return of_all(&|| Outcome::Unavailable(no_answer(None)));
        };
        let script = batch[0].script;
        let sent = Moment::now();
        let limit = attempt.until.remaining().min(self.one_try);
        let mut silence = Silence { wire: &self.wire, generation, sent, over: false };
        let called = tokio::time::timeout(limit, self.invoke(&mut link, script, batch)).await;
        silence.over = called.is_ok();
        if silence.over {
            self.wire.note_answer();
        }
        let answer = |value| Outcome::Answered(Answer { value, sent, in_doubt: false, generation });
        match called {
            Ok(Ok(value)) if script.lead.is_none() => vec![answer(value)],
            // The shortest scripts answer to one item as it is.
            Ok(Ok(value @ (Value::Int(_) | Value::BulkString(_)))) if batch.len() == 1 => vec![answer(value)],
            Ok(Ok(Value::Array(values))) if values.len() == batch.len() => {
                values.into_iter().map(answer).collect()
            }
            Ok(Ok(_)) => of_all(&|| Outcome::Failed(unexpected())),
            Ok(Err(error)) => match verdict(&error, self.wire.address.can_move()) {
                Verdict::Again => of_all(&|| Outcome::Unavailable(no_answer(Some(&error)))),
                Verdict::Broken => {
                    tracing::debug!(%error, "a connection failed and is replaced");
                    self.wire.hang_up(generation);
                    of_all(&|| Outcome::Unknown(no_answer(Some(&error))))
                }
                // The script is not known, and some of the batch is not wanted any more.
                Verdict::Unknown => of_all(&|| Outcome::Unavailable(no_answer(None))),
                Verdict::Fatal => of_all(&|| Outcome::Failed(fatal(&error, Some(script)))),
            },
            Err(_) => of_all(&|| Outcome::Unknown(no_answer(None))),
        }
    }
}

/// A call without an answer. Dropping it notes the silence: also when the callers' time is over before ours, and the
/// call is dropped with them.
struct Silence<'a> {
    wire: &'a Wire,
    generation: u64,
    sent: Moment,
    over: bool,
}

impl Drop for Silence<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.wire.note_silence(self.generation, Moment::now().since(self.sent));
        }
    }
}

impl Scripts {
    /// Calls a script by its hash; with its text if the server does not know it, as after a restart. That is sent only
    /// for those who still want it.
    async fn invoke(&self, link: &mut Link, script: &Script, items: &[&Item]) -> RedisResult<Value> {
        match link.query(&command(script, false, items)).await {
            Err(error) if is_unknown(&error) && items.iter().all(|item| self.is_wanted(item)) => {
                link.query(&command(script, true, items)).await
            }
            answer => answer,
        }
    }
}

fn is_unknown(error: &RedisError) -> bool {
    verdict(error, false) == Verdict::Unknown
}

fn command(script: &Script, by_text: bool, items: &[&Item]) -> redis::Cmd {
    let (lead_keys, lead_args) = script.lead.unwrap_or_default();
    let mut skip = 0;
    let keys = items.iter().map(|item| item.keys.len() - lead_keys).sum::<usize>() + lead_keys;
    let mut command = script.call(by_text, keys);
    for item in items {
        for key in item.keys.iter().skip(skip) {
            command.arg(key);
        }
        skip = lead_keys;
    }
    skip = 0;
    for item in items {
        for arg in item.args.iter().skip(skip) {
            command.arg(arg);
        }
        skip = lead_args;
    }
    command
}

pub(crate) fn unexpected() -> Error {
    Error::new(lockcore::ErrorKind::Internal, "a script answered in an unexpected form")
}
