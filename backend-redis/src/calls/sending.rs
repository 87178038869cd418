//! Sends one call to the server of its slot.

use std::sync::Arc;
use std::time::Duration;

use lockwell_core::backend::{Attempt, Service};
use lockwell_core::{Moment, Result};
use redis::{RedisError, RedisResult, ServerErrorKind, Value};

use crate::calls::grace::GraceGate;
use crate::calls::item::Item;
use crate::wire::Wire;
use crate::wire::link::Link;
use crate::wire::route::Route;
use crate::wire::slots::redirect;
use crate::words::error::{ErrorClass, classify, no_answer, no_link};
use crate::words::script::Script;

/// How long to wait for a connection to a node of a cluster before checking whether another node serves the
/// slot now.
const RECHECK: Duration = Duration::from_millis(250);

/// The connection that a call is sent over.
pub(crate) struct CallPath {
    pub(crate) wire: Arc<Wire>,
    pub(crate) link: Link,
    pub(crate) generation: u64,
    /// Whether the node is only receiving the slot, and answers only after `ASKING`.
    pub(crate) asking: bool,
    /// For how long the server grants nothing, if a call was to find out.
    pub(crate) closed_for: Option<Duration>,
    /// Whether the call itself was sent, and not only what comes before it.
    pub(crate) is_sent: bool,
}

/// The outcome of a call at one node.
pub(crate) enum SendOutcome {
    Answered(Value),
    Failed(RedisError),
    /// Not done; retry soon.
    NotDone(RedisError),
    /// Not done, since the keys are at two nodes.
    Torn(RedisError),
    /// Not done; another node has to do it.
    Elsewhere(RedisError),
    Unwanted,
    Unknown(Option<RedisError>),
}

/// A call that has not been answered yet. If dropped before an answer, it counts the call as unanswered: also
/// when the callers' time limit ends before ours, and the call is dropped with them.
struct Silence<'a> {
    route: &'a Route,
    wire: &'a Wire,
    generation: u64,
    sent: Moment,
    over: bool,
}

impl Drop for Silence<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.wire.note_silence(self.generation, Moment::now().since(self.sent));
            self.route.note_trouble();
        }
    }
}

/// Calls scripts at the servers of their slots.
#[derive(Debug)]
pub(crate) struct Scripts {
    pub(crate) route: Route,
    /// What is known about grace periods, if there are any.
    pub(super) grace: Option<Arc<GraceGate>>,
    /// How long one try may take before another connection is tried.
    pub(super) one_try: Duration,
}

impl Scripts {
    /// Finds the server of a slot, and connects to it.
    pub(crate) async fn connect(&self, slot: u16, attempt: Attempt) -> Result<()> {
        let left = attempt.until().remaining();
        let in_cluster = matches!(self.route, Route::Cluster(_));
        let limit = if in_cluster { left.min(RECHECK) } else { left };
        let linked = tokio::time::timeout(limit, async { self.route.find(slot).await?.link().await }).await;
        if matches!(linked, Ok(Ok(_))) {
            return Ok(());
        }
        self.route.note_trouble();
        match linked {
            Ok(linked) => linked.map(drop).map_err(|error| no_link(&error)),
            // The error of the last attempt says more than that this one takes long.
            Err(_) => Err(match self.route.wire(slot).and_then(|wire| wire.failure()) {
                Some(error) => no_link(&error),
                None => no_answer(None),
            }),
        }
    }

    /// Sends a call over a connection. Also returns when it was sent.
    pub(crate) async fn call_at(
        &self,
        path: &mut CallPath,
        batch: &[&Item],
        end: Moment,
    ) -> (SendOutcome, Moment) {
        let sent = Moment::now();
        let generation = path.generation;
        let wire = Arc::clone(&path.wire);
        wire.confirm_soon();
        let mut silence = Silence { route: &self.route, wire: &wire, generation, sent, over: false };
        let called = tokio::time::timeout(end.remaining(), self.invoke(path, batch, end)).await;
        silence.over = called.is_ok();
        if silence.over {
            wire.note_answer();
        }
        let error = match called {
            Ok(Ok(value)) => return (SendOutcome::Answered(value), sent),
            Ok(Err(error)) => error,
            Err(_) => return (SendOutcome::Unknown(None), sent),
        };
        let in_cluster = matches!(self.route, Route::Cluster(_));
        let class = classify(&error, self.route.can_move());
        if matches!(class, ErrorClass::Elsewhere | ErrorClass::Retry) {
            wire.doubt_identity(generation);
        }
        // The server was demoted, and its address may lead to another one by now. It goes on answering here.
        if error.kind() == redis::ErrorKind::Server(ServerErrorKind::ReadOnly) {
            wire.hang_up(generation);
        }
        let called = match class {
            ErrorClass::Elsewhere if in_cluster => SendOutcome::Elsewhere(error),
            ErrorClass::Torn => SendOutcome::Torn(error),
            ErrorClass::Retry => {
                self.route.note_trouble();
                SendOutcome::NotDone(error)
            }
            ErrorClass::Broken => {
                tracing::debug!(%error, "a connection failed and is replaced");
                wire.hang_up(generation);
                self.route.note_trouble();
                if path.is_sent { SendOutcome::Unknown(Some(error)) } else { SendOutcome::NotDone(error) }
            }
            ErrorClass::NoScript => SendOutcome::Unwanted,
            ErrorClass::Fatal | ErrorClass::Elsewhere => SendOutcome::Failed(error),
        };
        if let (SendOutcome::Torn(_), Route::Cluster(cluster)) = (&called, &self.route) {
            cluster.note_moving(batch[0].slot);
        }
        (called, sent)
    }

    /// The connection to the node that another one named.
    pub(crate) async fn follow(
        &self,
        slot: u16,
        error: &RedisError,
        from: &CallPath,
        end: Moment,
    ) -> Option<CallPath> {
        let Route::Cluster(cluster) = &self.route else { return None };
        let name = redirect(error, &from.wire.host())?;
        let asking = error.kind() == redis::ErrorKind::Server(ServerErrorKind::Ask);
        let wire = if asking {
            cluster.note_moving(slot);
            cluster.asked(&name)
        } else {
            cluster.moved(slot, &name)
        };
        let (link, generation) = tokio::time::timeout(end.remaining(), wire.link()).await.ok()?.ok()?;
        wire.doubt_identity(generation);
        Some(CallPath { wire, link, generation, asking, closed_for: None, is_sent: false })
    }

    /// What a call over this connection has to pass.
    pub(super) fn gate(&self, wire: &Wire) -> Option<&GraceGate> {
        self.grace.as_deref().filter(|gate| !gate.is_passed(wire))
    }

    pub(super) fn are_wanted(&self, items: &[&Item]) -> bool {
        items.iter().all(|item| self.is_wanted(item))
    }

    /// Calls a script by its hash; with its text if the server does not know it, as after a restart. That is
    /// sent only for those who still want it.
    async fn invoke(&self, path: &mut CallPath, items: &[&Item], end: Moment) -> RedisResult<Value> {
        let script = items[0].script;
        let gate = self.gate(&path.wire);
        let first = match gate {
            Some(gate) => {
                let CallPath { wire, link, generation, asking, .. } = path;
                let wire = (&*wire, *generation);
                let passed = Box::pin(gate.pass(&self.route, wire, link, (items, *asking))).await?;
                path.closed_for = passed.closed_for;
                passed.instead
            }
            None => None,
        };
        // Their releases may have been sent while the server was asked who it is.
        if gate.is_some() && !self.are_wanted(items) {
            let text = "the claim was cancelled before its request was sent";
            return Err((ServerErrorKind::NoScript.into(), text).into());
        }
        let changed: Vec<_>;
        let items = match &first {
            Some(first) => {
                changed = std::iter::once(first).chain(items[1..].iter().copied()).collect();
                &changed
            }
            None => items,
        };
        match path.query(&command(script, false, items)).await {
            Err(error) if is_unknown(&error) && !end.has_passed() && self.are_wanted(items) => {
                path.query(&command(script, true, items)).await
            }
            answer => answer,
        }
    }
}

impl CallPath {
    async fn query(&mut self, command: &redis::Cmd) -> RedisResult<Value> {
        self.is_sent = true;
        if self.asking { self.link.query_asking(command).await } else { self.link.query(command).await }
    }
}

fn is_unknown(error: &RedisError) -> bool {
    classify(error, false) == ErrorClass::NoScript
}

fn command(script: &Script, by_text: bool, items: &[&Item]) -> redis::Cmd {
    let (lead_keys, lead_args) = script.sharing.map_or((0, 0), |sharing| sharing.lead);
    // What concerns the whole call is taken from the first.
    let skip = |at: usize, lead: usize| if at == 0 { 0 } else { lead };
    let bytes = items.iter().filter_map(|item| item.value.as_deref());
    let items = items.iter().enumerate();
    let keys = items.clone().flat_map(|(at, item)| item.keys.iter().skip(skip(at, lead_keys)));
    let text = items.flat_map(|(at, item)| item.args.iter().skip(skip(at, lead_args)));
    let words = keys.clone().chain(text).map(String::as_bytes).chain(bytes);
    let room = words.clone().fold((0, 0), |(count, bytes), word| (count + 1, bytes + word.len()));
    let mut command = script.call(by_text, keys.count(), room);
    for word in words {
        command.arg(word);
    }
    command
}
