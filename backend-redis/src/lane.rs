//! The scripts' calls on one connection.
//!
//! Calls that meet share a script call: while [`UNDER_WAY`] of them are on their way, what arrives is collected and goes
//! into the next (natural batching). Nobody waits for company: a call that finds the lane idle is sent at once, by the
//! caller itself, without a task between.
//!
//! A connection that failed or did not answer in time is dropped and replaced, and the calls are repeated: every script
//! is idempotent for its owner, so that a lost reply does no harm. All calls travel on one connection, and a call that is
//! made when another has ended is carried out after it: a release comes after the acquire that it cleans up. Calls that
//! are under way at the same time keep no order. An acquire that was repeated on a second connection can be met by its
//! own copy from the first one even after its release; what such a copy takes is never renewed, and ends with its lease.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use lockcore::{Error, Moment, Result};
use redis::{RedisError, RedisResult, Value};
use tokio::sync::oneshot;

use crate::error::{Verdict, fatal, no_answer, verdict};
use crate::script::Script;
use crate::wire::{Link, Wire};

/// How many script calls are on their way at a time, unless there are several slots: enough to fill the time of a round
/// trip, few enough that calls meet.
const UNDER_WAY: usize = 2;
/// The most items in one script call: enough to share its cost, few enough not to hold the server up.
const BATCH: usize = 128;

/// One item of a script call. Its first keys and arguments may concern the whole call (see
/// [`Script::lead`]).
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) script: &'static Script,
    pub(crate) slot: u16,
    pub(crate) keys: Arc<Vec<String>>,
    pub(crate) args: Arc<Vec<String>>,
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

struct Job {
    item: Item,
    give_up: Moment,
    reply: oneshot::Sender<Result<Answer>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Lane(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    wire: Arc<Wire>,
    timeout: Duration,
    /// How long one try may take before another connection is tried.
    patience: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: Vec<Job>,
    under_way: usize,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("under_way", &self.under_way).finish_non_exhaustive()
    }
}

impl Lane {
    pub(crate) fn new(wire: Arc<Wire>, timeout: Duration) -> Self {
        let patience = (timeout / 3).max(Duration::from_millis(50));
        Self(Arc::new(Inner { wire, timeout, patience, state: Mutex::default() }))
    }

    pub(crate) fn wire(&self) -> &Arc<Wire> {
        &self.0.wire
    }

    /// Until this is dropped, calls are collected; then they go out together.
    pub(crate) fn gather(&self) -> Gathering<'_> {
        self.0.state().under_way += UNDER_WAY;
        Gathering(&self.0)
    }

    /// Calls a script and waits for its answer, at most for the lane's timeout.
    pub(crate) async fn call(&self, item: Item) -> Result<Answer> {
        self.call_within(item, self.0.timeout).await
    }

    /// Calls a script, which is given up after `limit`.
    pub(crate) async fn call_within(&self, item: Item, limit: Duration) -> Result<Answer> {
        let give_up = Moment::now().after(limit.min(self.0.timeout));
        let waiting = {
            let mut state = self.0.state();
            // Nobody overtakes those who wait: they may have to come first.
            if state.under_way < UNDER_WAY && state.waiting.is_empty() {
                state.under_way += 1;
                Err(item)
            } else {
                let (reply, answer) = oneshot::channel();
                state.waiting.push(Job { item, give_up, reply });
                Ok(answer)
            }
        };
        match waiting {
            // The calls before it may have more time than this one.
            Ok(answer) => match tokio::time::timeout(give_up.remaining(), answer).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) | Err(_) => Err(no_answer(None)),
            },
            Err(item) => {
                let turn = Turn(&self.0);
                let answers = self.0.run(item.script, vec![item], give_up).await;
                drop(turn);
                answers.map(|mut answers| answers.swap_remove(0))
            }
        }
    }
}

/// Stands for as many calls as may be under way, so that no other begins.
pub(crate) struct Gathering<'a>(&'a Arc<Inner>);

impl Drop for Gathering<'_> {
    fn drop(&mut self) {
        self.0.state().under_way -= UNDER_WAY - 1;
        drop(Turn(self.0));
    }
}

/// One of the calls that may be under way. Ending it lets those go who have come meanwhile.
struct Turn<'a>(&'a Arc<Inner>);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.under_way -= 1;
        if state.waiting.is_empty() {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            // The runtime is being shut down, and those who wait with it: dropping their replies tells them.
            state.waiting.clear();
            return;
        };
        state.under_way += 1;
        drop(state);
        let inner = Arc::clone(self.0);
        drop(runtime.spawn(async move { serve(inner).await }));
    }
}

/// Serves what has come together for as long as there is any.
async fn serve(inner: Arc<Inner>) {
    let _turn = Turn(&inner);
    loop {
        let jobs = {
            let mut state = inner.state();
            // Whoever was not sent and is not waited for any more need not be sent.
            state.waiting.retain(|job| !job.reply.is_closed());
            if state.waiting.is_empty() {
                return;
            }
            std::mem::take(&mut state.waiting)
        };
        join_all(group(jobs).into_iter().map(|jobs| inner.serve(jobs))).await;
        // Those who were just answered often ask again at once: let them meet in the next call.
        tokio::task::yield_now().await;
    }
}

/// Puts together what can share a script call. The calls go out in the order in which their first items came.
fn group(jobs: Vec<Job>) -> Vec<Vec<Job>> {
    let mut groups: Vec<Vec<Job>> = Vec::new();
    for job in jobs {
        let fits = |group: &&mut Vec<Job>| {
            job.item.script.lead.is_some()
                && group.len() < BATCH
                && group.first().is_some_and(|first| {
                    std::ptr::eq(first.item.script, job.item.script) && first.item.slot == job.item.slot
                })
        };
        match groups.iter_mut().find(fits) {
            Some(group) => group.push(job),
            None => groups.push(vec![job]),
        }
    }
    groups
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn serve(&self, jobs: Vec<Job>) {
        let (mut items, mut replies, mut give_up) = (Vec::new(), Vec::new(), Moment::now());
        for job in jobs {
            items.push(job.item);
            replies.push(job.reply);
            give_up = give_up.max(job.give_up);
        }
        let Some(script) = items.first().map(|item| item.script) else { return };
        match self.run(script, items, give_up).await {
            Ok(answers) => {
                for (answer, reply) in answers.into_iter().zip(replies) {
                    // A caller that has gone away does not read its answer.
                    drop(reply.send(Ok(answer)));
                }
            }
            Err(error) => {
                for reply in replies {
                    drop(reply.send(Err(error.duplicate())));
                }
            }
        }
    }

    /// Calls a script for all these items, again and again until it answers or the time is over.
    async fn run(&self, script: &Script, items: Vec<Item>, give_up: Moment) -> Result<Vec<Answer>> {
        let (mut by_text, mut in_doubt, mut tries, mut last) = (false, false, 0, None);
        loop {
            let left = give_up.remaining();
            if left.is_zero() {
                return Err(no_answer(last.as_ref()));
            }
            // The rare steps are boxed: they would make every call's future large.
            let (mut link, generation) = match self.wire.ready() {
                Some(ready) => ready,
                None => match Box::pin(tokio::time::timeout(left, self.wire.link())).await {
                    Ok(Ok(link)) => link,
                    Ok(Err(error)) => {
                        last = Some(bear(error, script)?);
                        tries += 1;
                        Box::pin(pause(tries, give_up)).await;
                        continue;
                    }
                    Err(_) => continue,
                },
            };
            let sent = Moment::now();
            let patience = left.min(self.patience);
            let called = tokio::time::timeout(patience, invoke(&mut link, script, by_text, &items)).await;
            if called.is_ok() {
                self.wire.note_answer();
            }
            let answer = |value| Answer { value, sent, in_doubt, generation };
            match called {
                Ok(Ok(value)) if script.lead.is_none() => return Ok(vec![answer(value)]),
                Ok(Ok(Value::Array(values))) if values.len() == items.len() => {
                    return Ok(values.into_iter().map(answer).collect());
                }
                Ok(Ok(_)) => return Err(unexpected()),
                Ok(Err(error)) => match verdict(&error, self.wire.address.can_move()) {
                    // After SCRIPT FLUSH or a restart. Not carried out; the text brings the script back.
                    Verdict::Unknown if !by_text => by_text = true,
                    Verdict::Again => {
                        last = Some(error);
                        tries += 1;
                        Box::pin(pause(tries, give_up)).await;
                    }
                    Verdict::Broken => {
                        tracing::debug!(%error, "a connection failed and is replaced");
                        self.wire.hang_up(generation);
                        in_doubt = true;
                        last = Some(error);
                        tries += 1;
                        Box::pin(pause(tries, give_up)).await;
                    }
                    Verdict::Unknown | Verdict::Fatal => return Err(fatal(&error, Some(script))),
                },
                Err(_) => {
                    self.wire.note_silence(generation, patience);
                    in_doubt = true;
                }
            }
        }
    }
}

/// Whether a connection that could not be made is worth another try.
fn bear(error: RedisError, script: &Script) -> Result<RedisError> {
    match verdict(&error, true) {
        Verdict::Again | Verdict::Broken => Ok(error),
        Verdict::Unknown | Verdict::Fatal => Err(fatal(&error, Some(script))),
    }
}

async fn invoke(link: &mut Link, script: &Script, by_text: bool, items: &[Item]) -> RedisResult<Value> {
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
    link.query(&command).await
}

pub(crate) fn unexpected() -> Error {
    Error::new(lockcore::ErrorKind::Internal, "a script answered in an unexpected form")
}

/// Backs off, with jitter so that those who collided do not meet again.
async fn pause(times: u32, end: Moment) {
    let most = Duration::from_millis(2 << times.min(7));
    let nap = most.mul_f64(0.25 + 0.75 * rand::random::<f64>());
    tokio::time::sleep(nap.min(end.remaining())).await;
}
