//! One node of a Redlock, and whether it has a vote.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use lockwell_core::backend::{SharedTask, lock};
use lockwell_core::{Error, ErrorKind, Moment, Result};
use redis::Value;

use super::items::Ballot;
use super::note::{Note, is_rewriting, remembers};
use super::settings::Settings;
use crate::calls::OneServer;
use crate::calls::item::Item;
use crate::checks;
use crate::wire::Wire;
use crate::wire::link::Subscriber;
use crate::words::address::Address;
use crate::words::answers::{self, AcquireAnswer, ClaimAnswer, Tokens};
use crate::words::error::{no_answer, no_link};
use crate::words::info::{Info, config, setting_is};
use crate::words::script::{MARK, READ_COUNTERS};

/// How often a node that looks dead is probed.
const PROBE: Duration = Duration::from_millis(250);
/// How long it may take to note a run.
const NOTE: Duration = Duration::from_secs(2);
/// How often the repair of a node is tried.
const REPAIR: Duration = Duration::from_millis(500);

pub(crate) struct Node {
    pub(crate) calls: OneServer,
    /// The key under which the run of the server is noted that has all its counters.
    whole_note: String,
    /// Whether to note it there.
    notes: bool,
    state: Mutex<NodeState>,
    /// The examination for a connection.
    examining: SharedTask<NodeState>,
    /// When the node may be probed again.
    probe_at: Mutex<Moment>,
    /// When its repair may be tried again.
    repair_at: Mutex<Moment>,
}

/// What is known of a node's memory.
#[derive(Clone, Debug)]
pub(crate) struct NodeState {
    /// The connection on which the node was asked.
    asked_on: u64,
    /// Which run of the server it was.
    pub(crate) run_id: Arc<str>,
    /// From when on its votes count.
    pub(crate) votes_from: Moment,
    /// Whether it has all its token counters.
    whole: bool,
    /// How many times its repair was tried and has failed, for nodes that do not answer.
    failed_repairs: u32,
    /// Whether it answers only after its change is on the disk, as far as it may be asked.
    pub(crate) keeps: bool,
    /// Whether the note of this run may say so.
    kept: bool,
    /// A note that says so, and is not true any more. It is corrected before an answer of the node counts.
    overstated: Option<Note>,
}

/// The answer of a node that was asked for a vote.
pub(crate) enum Vote {
    Answered(ClaimAnswer),
    /// It may have voted.
    Unknown(Error),
    /// It was not asked, so that it has nothing of this round.
    NotAsked(Error),
    /// It was not asked either: it may have forgotten grants, and has no vote until this moment, and until its
    /// counters are repaired.
    NotYet(Moment),
}

impl Vote {
    /// Whether the node may have set the lock to the claim.
    pub(crate) fn may_hold(&self) -> bool {
        matches!(self, Self::Answered(ClaimAnswer::Granted(_)) | Self::Unknown(_))
    }
}

/// A run of a server whose counters are to be repaired.
pub(crate) struct Run {
    pub(crate) id: Arc<str>,
    pub(crate) generation: u64,
    /// What is noted when it has them.
    pub(super) note: Note,
}

impl NodeState {
    fn has_vote(&self) -> bool {
        self.whole && self.votes_from.has_passed()
    }
}

impl Node {
    pub(crate) fn new(
        address: Address,
        subscriber: Subscriber,
        whole_note: String,
        settings: &Settings,
    ) -> Self {
        let wire = Wire::new(address, Some(subscriber)).of("redlock");
        let state = NodeState {
            asked_on: 0,
            run_id: "".into(),
            votes_from: Moment::NEVER,
            whole: false,
            failed_repairs: 0,
            keeps: false,
            kept: false,
            overstated: None,
        };
        let calls = OneServer::new(Arc::new(wire), settings.options.timeout);
        Self {
            calls,
            whole_note,
            notes: settings.create,
            state: Mutex::new(state),
            examining: SharedTask::new(),
            probe_at: Mutex::new(Moment::now()),
            repair_at: Mutex::new(Moment::now()),
        }
    }

    fn state(&self) -> MutexGuard<'_, NodeState> {
        lock(&self.state)
    }

    /// The error with the address of this node.
    pub(super) fn blamed_for(&self, error: Error) -> Error {
        error.at(self.calls.wire().address.topology.to_string())
    }

    /// The reason not to wait for the node, if it looks dead. It is then probed in the background.
    pub(crate) fn looks_dead(&self) -> Option<Error> {
        let wire = self.calls.wire();
        if !wire.looks_dead() {
            return None;
        }
        self.probe();
        Some(wire.failure().map_or_else(|| no_answer(None), |error| no_link(&error)))
    }

    fn probe(&self) {
        if due(&self.probe_at, PROBE) {
            let wire = Arc::clone(self.calls.wire());
            drop(tokio::spawn(async move { wire.probe().await }));
        }
    }

    /// Asks for a vote, if the node has one.
    ///
    /// The delayed restart of the Redlock description, kept by the client: a node that came back a short
    /// while ago and does not write every change to its disk has forgotten locks that are still held. It has
    /// no vote until the longest lease that it can have granted is over, and its counters are repaired. A
    /// restart ends the connection, so asking once for each is enough. It is asked *before* the vote, which
    /// counts only if it came over the same connection. A vote that did not count leaves a record of its
    /// round there, which no later round counts.
    pub(super) async fn vote(
        self: &Arc<Self>,
        ballot: &Ballot,
        index: usize,
        limit: Duration,
        longest_ttl: Duration,
    ) -> Vote {
        let state = async {
            let generation = self.generation(limit).await?;
            Ok((generation, self.state_on(generation, limit, longest_ttl).await?))
        };
        // The connection and three requests, each within the limit. A silent node would delay all rounds that
        // ask it, one after another.
        let generation = match tokio::time::timeout(4 * limit, state).await {
            Ok(Ok((generation, state))) if state.has_vote() => generation,
            // The grace period is over, and nobody knows when the other nodes are back.
            Ok(Ok((_, state))) if state.failed_repairs > 0 => {
                let text = "it may have forgotten grants, and too few of the other nodes answer to repair it";
                return Vote::NotAsked(Error::new(ErrorKind::Unreachable, text));
            }
            Ok(Ok((_, state))) => return Vote::NotYet(state.votes_from),
            Ok(Err(error)) => return Vote::NotAsked(error),
            Err(_) => return Vote::NotAsked(no_answer(None)),
        };
        let end = Moment::now().after(limit);
        let answer = async {
            if let Some(item) = ballot.short() {
                match answers::acquired(&self.call_on(generation, item, limit).await?)? {
                    AcquireAnswer::Granted(vote) => return Ok(ClaimAnswer::Granted(Tokens::one(vote))),
                    AcquireAnswer::Held => return Ok(ClaimAnswer::HELD),
                    AcquireAnswer::Unclear => (),
                }
            }
            let answer = self
                .call_on(generation, ballot.full(index, self.calls.wire().is_listening()), end.remaining())
                .await?;
            Ok(answers::claimed(&answer)?.0)
        };
        answer.await.map_or_else(Vote::Unknown, Vote::Answered)
    }

    /// Calls a script. Only the answer that came over this connection counts.
    async fn call_on(&self, generation: u64, item: Item, limit: Duration) -> Result<Value> {
        let answer = self.calls.call_within(item, limit).await?;
        if answer.generation != generation {
            let text = "a node's connection was replaced while it voted";
            return Err(Error::new(ErrorKind::Unreachable, text));
        }
        Ok(answer.value)
    }

    /// The number of the connection, which is made if there is none.
    pub(crate) async fn generation(&self, limit: Duration) -> Result<u64> {
        if let Some((_, generation)) = self.calls.wire().ready() {
            return Ok(generation);
        }
        match tokio::time::timeout(limit, self.calls.wire().link()).await {
            Ok(Ok((_, generation))) => Ok(generation),
            Ok(Err(error)) => Err(no_link(&error)),
            Err(_) => Err(no_answer(None)),
        }
    }

    /// Whether the node's answer about a lease that it has counts: for that, it need not have its token
    /// counters.
    pub(crate) async fn may_extend(
        self: &Arc<Self>,
        generation: u64,
        limit: Duration,
        longest_ttl: Duration,
    ) -> Result<bool> {
        Ok(self.state_on(generation, limit, longest_ttl).await?.votes_from.has_passed())
    }

    async fn state_on(
        self: &Arc<Self>,
        generation: u64,
        limit: Duration,
        longest_ttl: Duration,
    ) -> Result<NodeState> {
        let known = {
            let state = self.state();
            (state.asked_on == generation).then(|| state.clone())
        };
        let state = if let Some(state) = known {
            state
        } else {
            // One examination serves all rounds that wait for it.
            let node = Arc::clone(self);
            let examine = async move { node.examine(generation, limit, longest_ttl).await };
            self.examining.answer(generation, examine, spawned).await?
        };
        if let Some(noted) = &state.overstated {
            Box::pin(self.correct(noted, generation, limit)).await?;
        }
        Ok(state)
    }

    /// The run whose counters are to be repaired, if it is time for that: only after the delay.
    pub(crate) fn run_to_repair(&self) -> Option<Run> {
        let state = self.state();
        let due = state.asked_on > 0 && !state.whole && state.votes_from.has_passed();
        let note = || Note::new(&state.run_id, state.kept);
        due.then(|| Run { id: Arc::clone(&state.run_id), generation: state.asked_on, note: note() })
    }

    /// Whether counters are to be repaired: only now and then.
    pub(crate) fn wants_repair(&self) -> bool {
        self.run_to_repair().is_some() && due(&self.repair_at, REPAIR)
    }

    pub(super) fn note_failed_repair(&self) {
        self.state().failed_repairs += 1;
    }

    pub(crate) fn note_whole(&self, generation: u64) {
        let mut state = self.state();
        state.whole |= state.asked_on == generation;
    }

    /// Forgets what an examination on this connection has found.
    pub(super) fn examine_again(&self, generation: u64) {
        let mut state = self.state();
        if state.asked_on == generation {
            state.asked_on = 0;
        }
    }

    /// Whether the run of the server behind this connection has its counters.
    pub(crate) fn is_whole_on(&self, generation: u64) -> bool {
        let state = self.state();
        state.asked_on == generation && state.whole
    }

    /// Examines the node.
    pub(crate) async fn examine(
        self: &Arc<Self>,
        generation: u64,
        limit: Duration,
        longest_ttl: Duration,
    ) -> Result<NodeState> {
        let asked_at = Moment::now();
        let info = checks::info(self.calls.wire(), limit).await?;
        if info.is_replica() {
            let text = "a node is a replica: Redlock needs independent masters";
            return Err(Error::new(ErrorKind::Misconfigured, text));
        }
        if info.is_in_cluster() {
            let text = "a node is part of a cluster: Redlock needs independent masters";
            return Err(Error::new(ErrorKind::Misconfigured, text));
        }
        let run_id: Arc<str> = info.get("run_id").into();
        let (keeps, noted) = tokio::join!(self.keeps_every_change(&info, limit), self.noted(limit));
        let (keeps, noted) = (keeps?, noted?);
        let remembers = remembers(keeps, &info, noted.as_ref(), &run_id);
        // Without INFO it counts as just started.
        let uptime = info.uptime().unwrap_or_default();
        let votes_from = if remembers { Moment::now() } else { votes_from(asked_at, uptime, longest_ttl) };
        let whole = remembers || noted.as_ref().is_some_and(|note| note.is_of(&run_id));
        let kept = keeps && !is_rewriting(&info);
        if whole && self.notes {
            self.note(noted.clone(), Note::new(&run_id, kept));
        }
        let overstated = noted.filter(|note| note.kept && !keeps);
        let state = NodeState {
            asked_on: generation,
            run_id,
            votes_from,
            whole,
            failed_repairs: 0,
            keeps,
            kept,
            overstated,
        };
        *self.state() = state.clone();
        Ok(state)
    }

    /// The note of the node.
    pub(super) async fn noted(&self, limit: Duration) -> Result<Option<Note>> {
        let item = Item::new(&READ_COUNTERS, 0, vec![self.whole_note.clone()], Vec::new());
        let text = match self.calls.call_within(item, limit).await?.value {
            Value::Array(values) => answers::text(values.first())?,
            value => answers::text(Some(&value))?,
        };
        Ok(Note::parse(&text))
    }

    /// Notes that this run of the server has its counters, and whether it keeps every change. Later in the
    /// run the first cannot be told from its settings any more, and after its end the second cannot. Nobody
    /// waits for it: votes and renewals do not depend on it now.
    fn note(self: &Arc<Self>, seen: Option<Note>, note: Note) {
        // What is not true any more is taken back by another call, see `correct`.
        if seen.as_ref().is_some_and(|seen| seen.is_same_run(&note) && (seen.kept || !note.kept)) {
            return;
        }
        let node = Arc::clone(self);
        drop(tokio::spawn(async move {
            if let Err(error) = node.replace_note(seen.as_ref(), &note, NOTE).await {
                tracing::debug!(error = format!("{error:#}"), "the run of a node was not noted");
            }
        }));
    }

    /// Takes back that every change is kept: from now on the node may forget what it answers.
    async fn correct(&self, noted: &Note, generation: u64, limit: Duration) -> Result<()> {
        let is_done = self.replace_note(Some(noted), &noted.not_kept(), limit).await?
            || self.noted(limit).await?.is_none_or(|note| !note.kept);
        if is_done {
            let mut state = self.state();
            if state.asked_on == generation {
                state.overstated = None;
            }
            return Ok(());
        }
        // Another client has noted that it is kept, by now.
        self.examine_again(generation);
        Err(Error::new(ErrorKind::Unreachable, "the settings of a node are being changed"))
    }

    /// Replaces the note, if it is still the one that was seen. Returns whether it was.
    async fn replace_note(&self, seen: Option<&Note>, note: &Note, limit: Duration) -> Result<bool> {
        let args = vec![seen.map(Note::text).unwrap_or_default(), note.text()];
        let keys = vec![self.whole_note.clone()];
        let item = Item::new(&MARK, 0, keys, args);
        Ok(self.numbers(item, limit).await?.0 == [1])
    }

    /// Whether the node answers only after its change is on the disk, also while it rewrites its file.
    async fn keeps_every_change(&self, info: &Info, limit: Duration) -> Result<bool> {
        if !info.survives_restart() || info.get("aof_last_write_status") != "ok" {
            return Ok(false);
        }
        // No answer decides nothing: a node that is slow just now must not lose its vote for minutes. Without
        // the right to ask, the safe answer is no.
        let answer = checks::ask(self.calls.wire(), &config(), limit).await?;
        let is = |name, value| answer.as_ref().is_ok_and(|all| setting_is(all, name, value) == Some(true));
        Ok(is("appendfsync", "always") && is("no-appendfsync-on-rewrite", "no"))
    }

    /// Calls a script that answers with one number for each of its locks.
    pub(crate) async fn numbers(&self, item: Item, limit: Duration) -> Result<(Vec<i64>, u64)> {
        let answer = self.calls.call_within(item, limit).await?;
        let numbers = match &answer.value {
            Value::Array(values) => {
                values.iter().map(|value| answers::int(Some(value))).collect::<Result<Vec<_>>>()?
            }
            one => vec![answers::int(Some(one))?],
        };
        Ok((numbers, answer.generation))
    }
}

/// From when on a node has a vote that had been up for this time when it was asked. This machine may have
/// been up for less, so the start of the node may be before the zero of its clock.
fn votes_from(asked_at: Moment, uptime: Duration, longest_ttl: Duration) -> Moment {
    asked_at.after(longest_ttl.saturating_sub(uptime))
}

/// Runs the examination as a task of this runtime.
fn spawned<T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> impl Future<Output = Result<T>> + Send + 'static {
    let task = tokio::spawn(work);
    async { task.await.unwrap_or_else(|_| Err(no_answer(None))) }
}

/// Whether it is time, and then not again for a while.
fn due(at: &Mutex<Moment>, pause: Duration) -> bool {
    let mut at = lock(at);
    let due = at.has_passed();
    if due {
        *at = Moment::now().after(pause);
    }
    due
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_may_have_been_up_for_longer_than_this_machine() {
        let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
        let just_booted = Moment::now().before(Duration::MAX).after(second);
        assert_eq!(votes_from(just_booted, 2 * minute, minute), just_booted);
        assert_eq!(votes_from(just_booted, second, minute), just_booted.after(Duration::from_secs(59)));
    }
}
