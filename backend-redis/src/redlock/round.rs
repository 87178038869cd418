//! One round of a claim: phase 1 at all nodes in parallel, phase 2 where it is needed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use futures_util::stream::{FuturesUnordered, StreamExt};
use lockwell_core::{Claim, Error, ErrorKind, FencingToken, Grant, Moment};

use super::context::NodesContext;
use super::items;
use super::node::{Node, Vote};
use super::tally::{Step, Tally, VoteAnswer, Why};
use crate::words::answers::{Busy, ClaimAnswer};

/// For how long a round waits for its turn at most. One that is not polled any more keeps its own.
const TURN: Duration = Duration::from_secs(1);

/// The outcome of a round.
pub(crate) enum RoundOutcome {
    Granted(Grant),
    /// Another holds the lock.
    Held(Busy),
    /// The votes were split, or the token could not be installed. Another try may succeed.
    Split,
    /// Too few nodes answer.
    Unreachable(Error),
    /// Too few nodes have a vote: others started a short while ago and may have forgotten grants.
    GracePeriod(Error),
}

/// The answer of a node.
enum VoteReply {
    /// It was not asked, since it looks dead.
    Skipped(usize, Error),
    Vote(usize, Vote),
    Install(usize, bool),
}

type Replies = FuturesUnordered<BoxFuture<'static, VoteReply>>;

/// The state of one round.
struct Round<'a> {
    shared: &'a Arc<NodesContext>,
    nodes: &'a [Arc<Node>],
    claim: &'a Claim,
    number: items::RoundNumber,
    numbers: items::Numbers,
    limit: Duration,
    tally: Tally,
    /// The nodes where the lock is ours.
    voted: Vec<usize>,
    /// The nodes where it may be ours: they were asked and did not answer.
    doubtful: Vec<usize>,
    busy: Vec<(usize, Busy)>,
    /// From when on the nodes have votes that have none now.
    no_vote_until: Vec<Moment>,
    last_error: Option<Error>,
}

/// Carries out one round, in which each node may take `limit` to answer. `ticket` names the waiter to notify
/// at each node; with it, a claim that is refused queues there.
pub(crate) async fn run(
    shared: &Arc<NodesContext>,
    nodes: &[Arc<Node>],
    claim: &Claim,
    ticket: Option<i64>,
    limit: Duration,
) -> RoundOutcome {
    let round = Round {
        shared,
        nodes,
        claim,
        number: items::RoundNumber::next(),
        numbers: shared.numbers(claim),
        limit,
        tally: Tally::new(nodes.len()),
        voted: Vec::new(),
        doubtful: Vec::new(),
        busy: Vec::new(),
        no_vote_until: Vec::new(),
        last_error: None,
    };
    round.run(ticket).await
}

impl Round<'_> {
    async fn run(mut self, ticket: Option<i64>) -> RoundOutcome {
        let _turn = tokio::time::timeout(TURN, self.shared.rounds.acquire()).await;
        // Before the first request: the validity counts from here.
        let began = Moment::now();
        let mut replies = self.ask_for_votes(ticket);
        let mut step = Step::Wait;
        while let Some(reply) = replies.next().await {
            step = match reply {
                VoteReply::Skipped(node, error) => {
                    self.note_error(node, error);
                    self.tally.vote(node, VoteAnswer::Silent)
                }
                VoteReply::Vote(node, vote) => self.take_vote(node, vote),
                VoteReply::Install(node, done) => self.tally.installed(node, done),
            };
            match &step {
                Step::Wait => (),
                Step::Install { token, nodes } => self.ask_to_install(*token, nodes, &replies),
                // The round is lost. Whether another holds the lock depends on the nodes that have not
                // answered yet.
                Step::Failed(Why::Held) if self.tally.held() < self.tally.majority() => (),
                Step::Granted(_) | Step::Failed(_) => break,
            }
        }
        if let Step::Granted(token) = step {
            self.shared.common.highest.fetch_max(token, Ordering::Relaxed);
            let grant = Grant::new(self.claim, FencingToken::new(token), began);
            let grant = grant.with_tokens(self.numbers.many).with_record(Arc::new(self.number));
            if !grant.deadline().has_passed() {
                self.finish(replies, ticket.is_some());
                return RoundOutcome::Granted(grant);
            }
            // The majority came too late: nothing of the lease is left.
            self.last_error.get_or_insert_with(too_slow);
            self.withdraw(replies).await;
            return RoundOutcome::Unreachable(self.last_error.unwrap_or_else(too_slow));
        }
        let why = match step {
            Step::Failed(why) => why,
            // Every node has answered or failed, so the tally has decided.
            _ => Why::NotInstalled,
        };
        let had_votes = !self.voted.is_empty();
        self.withdraw(replies).await;
        match why {
            // Another claim has a majority only if the remaining nodes form a majority.
            Why::Held if had_votes && self.tally.held() < self.tally.majority() => RoundOutcome::Split,
            Why::Held => RoundOutcome::Held(self.when_free()),
            Why::NotInstalled => RoundOutcome::Split,
            Why::TooFewAnswers { silent, nodes } if self.no_vote_until.is_empty() => {
                RoundOutcome::Unreachable(self.too_few(silent, nodes))
            }
            Why::TooFewAnswers { silent, nodes } => self.too_few_votes_yet(silent, nodes),
        }
    }

    fn ask_for_votes(&self, ticket: Option<i64>) -> Replies {
        let ballot = Arc::new(self.shared.ballot(self.claim, self.number, self.numbers, ticket));
        let (limit, longest) = (self.limit, self.shared.common.settings.longest_ttl);
        let replies = Replies::new();
        let mut dead: Vec<_> = self.nodes.iter().map(|node| node.looks_dead()).collect();
        let too_few = |dead: &[Option<Error>]| {
            dead.iter().filter(|dead| dead.is_none()).count() < self.tally.majority()
        };
        if too_few(&dead) {
            // Those to which a connection is only taking long are waited for, within the limit.
            let far = dead.iter_mut().zip(self.nodes).filter(|(_, node)| node.calls.wire().may_be_far());
            far.for_each(|(dead, _)| *dead = None);
        }
        // Without a majority the round is lost, and a vote would only be in the way of those who have one.
        let is_lost = too_few(&dead);
        for (index, (node, dead)) in self.nodes.iter().zip(dead).enumerate() {
            if let Some(error) = dead {
                replies.push(Box::pin(async move { VoteReply::Skipped(index, error) }));
                continue;
            }
            if is_lost {
                continue;
            }
            let (node, ballot) = (Arc::clone(node), Arc::clone(&ballot));
            replies.push(Box::pin(async move {
                VoteReply::Vote(index, node.vote(&ballot, index, limit, longest).await)
            }));
        }
        replies
    }

    fn take_vote(&mut self, node: usize, vote: Vote) -> Step {
        let answer = match vote {
            Vote::Answered(ClaimAnswer::Granted(vote)) => {
                self.voted.push(node);
                VoteAnswer::Vote(vote.last.get())
            }
            Vote::Answered(ClaimAnswer::Busy(busy)) => {
                self.busy.push((node, busy));
                VoteAnswer::Held
            }
            Vote::NotYet(votes_from) => {
                self.no_vote_until.push(votes_from);
                self.repair_if_due(node);
                VoteAnswer::Silent
            }
            Vote::NotAsked(error) => {
                tracing::debug!(
                    lockwell.node = node,
                    error = format!("{error:#}"),
                    "a node was not asked for its vote"
                );
                self.repair_if_due(node);
                self.note_error(node, error);
                VoteAnswer::Silent
            }
            Vote::Unknown(error) => {
                tracing::debug!(lockwell.node = node, error = format!("{error:#}"), "a node did not vote");
                self.doubtful.push(node);
                self.note_error(node, error);
                VoteAnswer::Silent
            }
        };
        self.tally.vote(node, answer)
    }

    /// An error that a node answered is preferred to its silence.
    fn note_error(&mut self, node: usize, error: Error) {
        if self.last_error.is_none() || error.kind() != ErrorKind::Unreachable {
            self.last_error = Some(self.nodes[node].blamed_for(error));
        }
    }

    /// A node that has no vote because it forgot may be due for its repair.
    fn repair_if_due(&self, node: usize) {
        if self.nodes[node].run_to_repair().is_some() {
            let (shared, nodes) = (Arc::clone(self.shared), self.nodes.to_vec());
            drop(tokio::spawn(async move { shared.repair_if_due(&nodes, node).await }));
        }
    }

    fn ask_to_install(&self, token: u64, nodes: &[usize], replies: &Replies) {
        for &index in nodes {
            let (node, limit) = (Arc::clone(&self.nodes[index]), self.limit);
            let item = self.shared.install(self.claim, self.number, token, self.numbers.many);
            replies.push(Box::pin(async move {
                let done = node.numbers(item, limit).await;
                VoteReply::Install(index, matches!(done, Ok((numbers, _)) if numbers == [1]))
            }));
        }
    }

    /// Lets the requests to slow nodes finish in the background: the more of them have the lock, the better.
    /// Places in queues are removed; a vote has removed its own.
    fn finish(&self, mut replies: Replies, queued: bool) {
        let held: Vec<_> =
            if queued { self.busy.iter().map(|(node, _)| *node).collect() } else { Vec::new() };
        if replies.is_empty() && held.is_empty() {
            return;
        }
        let limit = self.limit;
        let mut nodes: Vec<_> = held.iter().map(|&node| Arc::clone(&self.nodes[node])).collect();
        let (shared, claim, number) = (Arc::clone(self.shared), self.claim.clone(), self.number);
        let all = self.nodes.to_vec();
        drop(tokio::spawn(async move {
            let mut withdrawals = FuturesUnordered::new();
            while let Some(reply) = replies.next().await {
                let VoteReply::Vote(node, vote) = reply else { continue };
                if vote.may_hold() && claim.is_cancelled() {
                    // The release did not wait for this node, and its request may have overtaken the vote. It
                    // cancels the claim before it sends anything, so a vote that ends before that is followed
                    // by it.
                    let late = shared.withdraw_vote(&all[node], &claim, number);
                    // Not before the release: the release itself must be the call that frees the lock, for
                    // its answer.
                    withdrawals.push(async move {
                        tokio::time::sleep(limit).await;
                        late.await;
                    });
                }
                if queued && matches!(vote, Vote::Answered(ClaimAnswer::Busy(_)) | Vote::Unknown(_)) {
                    nodes.push(Arc::clone(&all[node]));
                }
            }
            while withdrawals.next().await.is_some() {}
            // A place that stays is removed at the end of its time.
            let leave = |node| shared.release_at(node, &claim, true, Some(items::RoundNumber::NONE), None);
            join_all(nodes.iter().map(leave)).await;
        }));
    }

    /// Releases the votes, also those that come late. Waits for the nodes that have voted, but not for the
    /// slow ones.
    async fn withdraw(&mut self, mut replies: Replies) {
        let mut withdrawals: FuturesUnordered<_> = self
            .voted
            .drain(..)
            .map(|node| self.shared.withdraw_vote(&self.nodes[node], self.claim, self.number))
            .collect();
        let all_withdrawn = async { while withdrawals.next().await.is_some() {} };
        let in_time = tokio::time::timeout(self.limit, all_withdrawn).await.is_ok();
        for node in self.doubtful.drain(..) {
            withdrawals.push(self.shared.withdraw_vote(&self.nodes[node], self.claim, self.number));
        }
        if in_time && withdrawals.is_empty() && replies.is_empty() {
            return;
        }
        let (shared, claim, nodes) = (Arc::clone(self.shared), self.claim.clone(), self.nodes.to_vec());
        let number = self.number;
        drop(tokio::spawn(async move {
            while let Some(reply) = replies.next().await {
                if let VoteReply::Vote(node, vote) = reply
                    && vote.may_hold()
                {
                    withdrawals.push(shared.withdraw_vote(&nodes[node], &claim, number));
                }
            }
            while withdrawals.next().await.is_some() {}
        }));
    }

    /// When a majority may be free, as far as the nodes know.
    fn when_free(&self) -> Busy {
        let enough = self.nodes.len() - self.tally.majority();
        let mut left: Vec<_> = self.busy.iter().filter_map(|(_, busy)| busy.left).collect();
        left.sort_unstable();
        // Of the nodes where another holds the lock, enough must become free; those without an answer may
        // never.
        let needed = self.busy.len().saturating_sub(enough).max(1);
        Busy {
            left: left.get(needed - 1).copied(),
            first: self.busy.iter().any(|(_, busy)| busy.first),
            foreign: self.busy.iter().any(|(_, busy)| busy.foreign),
            used: None,
            place: None,
        }
    }

    /// Too few nodes have a vote yet. Returns when there will be enough.
    fn too_few_votes_yet(&mut self, silent: usize, nodes: usize) -> RoundOutcome {
        self.no_vote_until.sort_unstable();
        let missing = (self.tally.majority() + silent).saturating_sub(nodes);
        let Some(&last) = self.no_vote_until.get(missing.max(1) - 1) else {
            // Too many nodes do not answer.
            return RoundOutcome::Unreachable(self.too_few(silent, nodes));
        };
        let (without, seconds) = (self.no_vote_until.len(), last.remaining().as_secs_f64().ceil());
        let wait =
            if seconds > 0.0 { format!("for {seconds} s more") } else { "until it is repaired".to_owned() };
        let text = format!(
            "{without} of {nodes} nodes have no vote {wait}: they started less than longest_ttl ago and may have forgotten \
             grants; a shorter longest_ttl avoids this, or appendfsync always with appendonly yes, set while the node runs"
        );
        let error = Error::new(ErrorKind::GracePeriod, text);
        RoundOutcome::GracePeriod(match self.last_error.take() {
            Some(cause) => error.with_source(format!("{cause:#}")),
            None => error,
        })
    }

    fn too_few(&mut self, silent: usize, nodes: usize) -> Error {
        let text = format!("{silent} of {nodes} nodes did not vote, so that there is no majority");
        match self.last_error.take() {
            Some(error) if error.kind() != ErrorKind::Unreachable => error,
            Some(error) => Error::new(ErrorKind::Unreachable, text).with_source(format!("{error:#}")),
            None => Error::new(ErrorKind::Unreachable, text),
        }
    }
}

fn too_slow() -> Error {
    Error::new(ErrorKind::Unreachable, "the nodes took longer to answer than the lease lasts")
}

impl NodesContext {
    /// Frees the lock at one node, if it is the claim's, of this round. Its place in the queue stays.
    pub(super) fn withdraw_vote(
        self: &Arc<Self>,
        node: &Arc<Node>,
        claim: &Claim,
        round: items::RoundNumber,
    ) -> BoxFuture<'static, ()> {
        let freed = self.release_at(node, claim, false, Some(round), None);
        Box::pin(async move {
            if let Err(error) = freed.await {
                let error = format!("{error:#}");
                tracing::debug!(error, "a vote was not given back; it ends with its lease");
            }
        })
    }
}
