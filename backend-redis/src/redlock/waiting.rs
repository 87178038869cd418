//! Waits for a lock at a majority of the nodes.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use lockwell_core::backend::{ClaimReply, Queue, Waiter, lock, wait_for_turn};
use lockwell_core::{Claim, Error, Grant, Moment, Result, Wait};

use super::items::ticket_at;
use super::quorum::Quorum;
use super::round::{self, RoundOutcome};
use crate::calls::items::recheck;
use crate::gather::gather;

/// How often a claim that does not wait tries again when votes were split.
const TRIES: u32 = 5;
/// How often such a claim tries again when too few nodes answered.
const UNREACHABLE_TRIES: u32 = 2;

/// How long to wait for the notifications of the other nodes when the first has come.
const TOGETHER: Duration = Duration::from_millis(3);

/// A random pause that grows with the number of tries: contenders that split the votes must not try again at
/// the same time.
pub(super) fn split_pause(tries: u32) -> Duration {
    let longest = Duration::from_millis(2 << tries.min(5));
    longest.mul_f64(rand::random::<f64>())
}

/// How long a node may take in the next round, when too few answered in this one: the network may be slow
/// rather than down.
pub(super) fn longer(limit: Duration, ttl: Duration) -> Duration {
    (limit * 2).min((ttl / 2).max(limit))
}

/// How long to wait before nodes are asked again that do not answer or have no vote.
fn pause_without_majority() -> Duration {
    Duration::from_millis(20).mul_f64(0.5 + rand::random::<f64>())
}

/// A claim that waits at the nodes.
struct Waiting<'a> {
    quorum: &'a Quorum,
    state: Mutex<State>,
}

/// What is known from the rounds so far.
struct State {
    splits: u32,
    unreachable_since: Option<Moment>,
    /// How long a node may take in the next round.
    limit: Duration,
}

/// The places of a claim in the queues of the nodes.
pub(super) struct Places {
    ticket: i64,
    waiters: Vec<Waiter>,
}

impl Quorum {
    /// Tries without waiting.
    pub(super) async fn try_now(&self, claim: &Claim) -> Result<Option<Grant>> {
        let mut limit = self.shared.common.settings.node_timeout(claim.ttl());
        let mut tries = 0;
        loop {
            match round::run(&self.shared, &self.nodes, claim, None, limit).await {
                RoundOutcome::Granted(grant) => return Ok(Some(grant)),
                RoundOutcome::Held(_) => return Ok(None),
                RoundOutcome::GracePeriod(error) => return Err(error),
                RoundOutcome::Unreachable(error) if tries == UNREACHABLE_TRIES || !error.is_retryable() => {
                    return Err(error);
                }
                RoundOutcome::Unreachable(_) => {
                    tries += 1;
                    limit = longer(limit, claim.ttl());
                }
                RoundOutcome::Split if tries == TRIES => return Ok(None),
                RoundOutcome::Split => {
                    tries += 1;
                    tokio::time::sleep(split_pause(tries)).await;
                }
            }
        }
    }

    /// Tries, queues and waits for its turn.
    ///
    /// A claim queues at every node that refuses it, and each node notifies the first of its own queue. Where
    /// the nodes agree about who is first, a majority notifies one waiter, which tries alone. Where they do
    /// not, several waiters are notified: they wait a moment for the other nodes, and a random pause after a
    /// split vote lets one of them win.
    pub(super) async fn wait_for_turn(&self, claim: &Claim) -> Result<Option<Grant>> {
        let limit = self.shared.common.settings.node_timeout(claim.ttl());
        let state = State { splits: 0, unreachable_since: None, limit };
        wait_for_turn(&Waiting { quorum: self, state: Mutex::new(state) }, claim).await
    }

    /// How many nodes notify us.
    fn listening(&self) -> usize {
        self.nodes.iter().filter(|node| node.calls.wire().is_listening()).count()
    }

    /// Subscribes again where a connection was replaced, without waiting for it.
    fn listen_again(&self) {
        for node in &self.nodes {
            let wire = node.calls.wire();
            if !wire.is_listening() && !wire.looks_dead() {
                let node = Arc::clone(node);
                drop(tokio::spawn(async move { node.calls.wire().listen().await }));
            }
        }
    }

    fn register(&self, claim: &Claim) -> Places {
        let ticket = self.shared.tickets.fetch_add(1, Ordering::Relaxed);
        let waiter = |node| self.shared.waiters.register(claim.name(), ticket_at(ticket, node));
        Places { ticket, waiters: (0..self.nodes.len()).map(waiter).collect() }
    }
}

impl Waiting<'_> {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Whether to go on although too few nodes answer: as long as the claim waits. One that waits without an
    /// end goes on for as long as nodes that restart one after another, and forget, may need.
    fn tolerate(&self, error: &Error, claim: &Claim, since: Moment) -> Result<()> {
        let settings = &self.quorum.shared.common.settings;
        let most = settings.longest_ttl.saturating_add(settings.options.timeout);
        let too_long = claim.wait() == Wait::Forever && since.after(most).has_passed();
        if !error.is_retryable() || too_long { Err(error.duplicate()) } else { Ok(()) }
    }
}

/// Each round is a heartbeat at every node that it reaches.
impl Queue for Waiting<'_> {
    type Place = Places;

    async fn subscribe(&self) {
        if self.quorum.listening() >= self.quorum.majority() {
            return self.quorum.listen_again();
        }
        let listening = self.quorum.nodes.iter().map(|node| async {
            node.calls.wire().listen().await;
            Ok(())
        });
        gather(listening, self.quorum.majority(), Duration::from_millis(5)).await;
    }

    async fn ask(&self, claim: &Claim, place: Option<&Places>) -> Result<ClaimReply> {
        let Quorum { shared, nodes } = self.quorum;
        let limit = self.state().limit;
        let ticket = place.map(|places| places.ticket);
        let outcome = round::run(shared, nodes, claim, ticket, limit).await;
        let mut state = self.state();
        Ok(match outcome {
            // A slow node may still queue it: the release removes its remaining places, too.
            RoundOutcome::Granted(grant) => ClaimReply::Granted(grant),
            RoundOutcome::Held(busy) => {
                (state.splits, state.unreachable_since) = (0, None);
                ClaimReply::Refused { recheck: recheck(&busy) }
            }
            RoundOutcome::Split => {
                state.splits += 1;
                ClaimReply::Undecided { pause: split_pause(state.splits) }
            }
            RoundOutcome::GracePeriod(error) => {
                state.unreachable_since = None;
                ClaimReply::Unavailable { error, pause: pause_without_majority() }
            }
            RoundOutcome::Unreachable(error) => {
                self.tolerate(&error, claim, *state.unreachable_since.get_or_insert_with(Moment::now))?;
                state.limit = longer(limit, claim.ttl());
                ClaimReply::Unavailable { error, pause: pause_without_majority() }
            }
        })
    }

    fn is_contended(&self, claim: &Claim) -> bool {
        self.quorum.shared.hot.is_hot(claim.name()) && self.quorum.listening() >= self.quorum.majority()
    }

    fn note_contended(&self, claim: &Claim) {
        self.quorum.shared.hot.note(claim.name());
    }

    /// The next round queues.
    async fn enter(&self, claim: &Claim) -> Result<Places> {
        Ok(self.quorum.register(claim))
    }

    /// Resolves when a majority of the nodes has notified, or one has and the others do not follow.
    async fn notified(&self, places: &Places) {
        let mut notified: FuturesUnordered<_> = places.waiters.iter().map(Waiter::notified).collect();
        notified.next().await;
        let rest = async {
            for _ in 1..self.quorum.majority() {
                notified.next().await;
            }
        };
        // Too few of them, or a late one: then the random part of the pause separates contenders.
        let limit = TOGETHER.mul_f64(0.7 + 0.6 * rand::random::<f64>());
        drop(tokio::time::timeout(limit, rest).await);
    }
}
