//! One round of a claim: phase 1 at all nodes in parallel, phase 2 where it is needed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use lockcore::backend::PLACE_TTL;
use lockcore::{Claim, Error, ErrorKind, FencingToken, Grant, Moment, Result};

use super::Shared;
use super::node::Node;
use super::tally::{Answer, Step, Tally, Why};
use crate::answers::{Busy, Took};
use crate::calls::Item;
use crate::items::{is_exclusive, millis, owner};
use crate::script::{INSTALL, JOIN_VOTE, LEAVE, Script, VOTE};

/// What a round came to.
pub(crate) enum Outcome {
    Granted(Grant),
    /// Another holds the lock.
    Held(Busy),
    /// The votes were split, or the token could not be installed. Worth another try in a moment.
    Split,
    /// Too few nodes answer.
    Dark(Error),
}

/// What a node said.
enum Reply {
    /// It was not asked, since it looks dead.
    Skipped(usize, Error),
    Vote(usize, Result<Took>),
    Install(usize, bool),
}

type Replies = FuturesUnordered<BoxFuture<'static, Reply>>;

/// The state of one round.
struct Round<'a> {
    shared: &'a Arc<Shared>,
    nodes: &'a [Arc<Node>],
    claim: &'a Claim,
    /// Tells the votes of this round from those of the same claim's others, whose releases may come late.
    number: u32,
    limit: Duration,
    tally: Tally,
    /// Where the lock is ours.
    voted: Vec<usize>,
    /// Where it may be ours: the node was asked and did not answer.
    doubtful: Vec<usize>,
    busy: Vec<(usize, Busy)>,
    complaint: Option<Error>,
}

/// Plays one round, in which each node may take `limit` to answer. `seat` names the waiter to wake at each node; with
/// it, a claim that is refused queues there.
pub(crate) async fn play(
    shared: &Arc<Shared>,
    nodes: &[Arc<Node>],
    claim: &Claim,
    number: u32,
    seat: Option<i64>,
    limit: Duration,
) -> Outcome {
    let round = Round {
        shared,
        nodes,
        claim,
        number,
        limit,
        tally: Tally::new(nodes.len()),
        voted: Vec::new(),
        doubtful: Vec::new(),
        busy: Vec::new(),
        complaint: None,
    };
    round.play(seat).await
}

impl Round<'_> {
    async fn play(mut self, seat: Option<i64>) -> Outcome {
        let _turn = self.shared.rounds.acquire().await;
        // Before the first request: belief counts from here.
        let began = Moment::now();
        let mut replies = self.ask_for_votes(seat);
        let mut step = Step::Wait;
        while let Some(reply) = replies.next().await {
            step = match reply {
                Reply::Skipped(node, error) => {
                    self.complain(error);
                    self.tally.vote(node, Answer::Silent)
                }
                Reply::Vote(node, took) => self.take_vote(node, took),
                Reply::Install(node, done) => self.tally.installed(node, done),
            };
            match &step {
                Step::Wait => (),
                Step::Install { token, nodes } => self.ask_to_install(*token, nodes, &replies),
                // Lost, but to whom? Some of those who are still to answer may be free.
                Step::Failed(Why::Held) if self.tally.held() < self.tally.majority() => (),
                Step::Granted(_) | Step::Failed(_) => break,
            }
        }
        if let Step::Granted(token) = step {
            self.shared.common.highest.fetch_max(token, Ordering::Relaxed);
            let grant = Grant::new(self.claim, FencingToken::new(token), began);
            if !grant.deadline().has_passed() {
                self.finish(replies, seat.is_some());
                return Outcome::Granted(grant);
            }
            // The majority came too late: nothing of the lease is left.
            self.complaint.get_or_insert_with(too_slow);
            self.withdraw(replies).await;
            return Outcome::Dark(self.complaint.unwrap_or_else(too_slow));
        }
        let why = match step {
            Step::Failed(why) => why,
            // Every node has answered or failed, so the tally has decided.
            _ => Why::NotInstalled,
        };
        let had_votes = !self.voted.is_empty();
        self.withdraw(replies).await;
        match why {
            // Nobody has a majority as long as the others are not one.
            Why::Held if had_votes && self.tally.held() < self.tally.majority() => Outcome::Split,
            Why::Held => Outcome::Held(self.when_free()),
            Why::NotInstalled => Outcome::Split,
            Why::TooFewAnswers { silent, nodes } => Outcome::Dark(self.too_few(silent, nodes)),
        }
    }

    fn ask_for_votes(&self, seat: Option<i64>) -> Replies {
        // A hint that is the same for all nodes makes their answers agree. Safety does not depend on it.
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        let known = self.shared.common.highest.load(Ordering::Relaxed) + 1;
        let floor = u64::try_from(clock).unwrap_or(known).max(known).to_string();
        let (name, mode) = (self.claim.name(), self.claim.mode());
        let keys = self.shared.common.keys.of(name);
        let mut keys = vec![self.shared.common.keys.token_of_bucket(name), keys.lock, keys.queue, keys.seats];
        let mut script: &Script = &VOTE;
        if !is_exclusive(self.claim) {
            script = &JOIN_VOTE;
            keys.extend(self.shared.common.keys.group(name));
        }
        let keys = Arc::new(keys);
        let args = vec![
            PLACE_TTL.as_micros().to_string(),
            owner(self.claim),
            millis(self.claim.ttl()),
            self.claim.label().to_owned(),
            floor,
            self.number.to_string(),
        ];
        let replies = Replies::new();
        for (index, node) in self.nodes.iter().enumerate() {
            if let Some(error) = node.looks_dead() {
                replies.push(Box::pin(async move { Reply::Skipped(index, error) }));
                continue;
            }
            let mut args = args.clone();
            args.push(seat.map_or_else(String::new, |seat| self.shared.place(seat, index)));
            args.push(self.claim.tokens().to_string());
            let takes = Some(self.claim.clone());
            let item = Item { script, slot: 0, keys: Arc::clone(&keys), args: args.into(), takes };
            let (node, limit, longest) =
                (Arc::clone(node), self.limit, self.shared.common.settings.longest_ttl);
            replies.push(Box::pin(
                async move { Reply::Vote(index, node.vote(item, mode, limit, longest).await) },
            ));
        }
        replies
    }

    fn take_vote(&mut self, node: usize, took: Result<Took>) -> Step {
        let answer = match took {
            Ok(Took::Granted(vote)) => {
                self.voted.push(node);
                Answer::Vote(vote.get())
            }
            Ok(Took::Busy(busy)) => {
                self.busy.push((node, busy));
                Answer::Held
            }
            Err(error) => {
                tracing::debug!(node, error = format!("{error:#}"), "a node did not vote");
                self.doubtful.push(node);
                self.mend(node);
                self.complain(error);
                Answer::Silent
            }
        };
        self.tally.vote(node, answer)
    }

    /// What a node said about us weighs more than its silence.
    fn complain(&mut self, error: Error) {
        if self.complaint.is_none() || error.kind() != ErrorKind::Unreachable {
            self.complaint = Some(error);
        }
    }

    /// A node that has no vote because it forgot may be due for its repair.
    fn mend(&self, node: usize) {
        if self.nodes[node].run_to_repair().is_some() {
            let (shared, nodes) = (Arc::clone(self.shared), self.nodes.to_vec());
            drop(tokio::spawn(async move { shared.mend(&nodes, node).await }));
        }
    }

    fn ask_to_install(&self, token: u64, nodes: &[usize], replies: &Replies) {
        let keys = Arc::new(self.shared.common.keys_of_holder(self.claim).to_vec());
        for &index in nodes {
            let (node, limit, keys) = (Arc::clone(&self.nodes[index]), self.limit, Arc::clone(&keys));
            let args = vec![owner(self.claim), token.to_string(), self.claim.tokens().to_string()];
            replies.push(Box::pin(async move {
                let done = node.numbers(&INSTALL, keys, args, limit).await;
                Reply::Install(index, matches!(done, Ok((numbers, _)) if numbers == [1]))
            }));
        }
    }

    /// Lets the slow nodes finish without us: the more of them have the lock, the better. Places in queues are of no use
    /// any more; a vote has given its own up.
    fn finish(&self, mut replies: Replies, queued: bool) {
        let held: Vec<_> =
            if queued { self.busy.iter().map(|(node, _)| *node).collect() } else { Vec::new() };
        if replies.is_empty() && held.is_empty() {
            return;
        }
        let keys = self.shared.common.keys.of(self.claim.name());
        let (owner, limit) = (owner(self.claim), self.limit);
        let mut nodes: Vec<_> = held.iter().map(|&node| Arc::clone(&self.nodes[node])).collect();
        let (shared, claim, number) = (Arc::clone(self.shared), self.claim.clone(), self.number);
        let all = self.nodes.to_vec();
        drop(tokio::spawn(async move {
            let mut give_back = FuturesUnordered::new();
            while let Some(reply) = replies.next().await {
                let Reply::Vote(node, took) = reply else { continue };
                let busy = matches!(took, Ok(Took::Busy(_)));
                if !busy && claim.is_cancelled() {
                    // The release did not wait for this node, and its request may have overtaken the vote. It cancels
                    // the claim before it sends anything, so a vote that ends before that is followed by it.
                    let late = shared.give_back(&all[node], &claim, number);
                    // Not before the release: what frees the lock is to be the call that is asked for the answer.
                    give_back.push(async move {
                        tokio::time::sleep(limit).await;
                        late.await;
                    });
                }
                if queued && (busy || took.is_err()) {
                    nodes.push(Arc::clone(&all[node]));
                }
            }
            while give_back.next().await.is_some() {}
            for node in nodes {
                let keys = vec![keys.queue.clone(), keys.seats.clone()];
                // A place that stays is forgotten after its life.
                drop(node.numbers(&LEAVE, keys, vec![owner.clone()], limit).await);
            }
        }));
    }

    /// Gives the votes back, also those that come late. Waits for the nodes that have voted, but not for the slow ones.
    async fn withdraw(&mut self, mut replies: Replies) {
        let mut give_back: FuturesUnordered<_> = self
            .voted
            .drain(..)
            .map(|node| self.shared.give_back(&self.nodes[node], self.claim, self.number))
            .collect();
        let all_back = async { while give_back.next().await.is_some() {} };
        let in_time = tokio::time::timeout(self.limit, all_back).await.is_ok();
        for node in self.doubtful.drain(..) {
            give_back.push(self.shared.give_back(&self.nodes[node], self.claim, self.number));
        }
        if in_time && give_back.is_empty() && replies.is_empty() {
            return;
        }
        let (shared, claim, nodes) = (Arc::clone(self.shared), self.claim.clone(), self.nodes.to_vec());
        let number = self.number;
        drop(tokio::spawn(async move {
            while let Some(reply) = replies.next().await {
                if let Reply::Vote(node, Ok(Took::Granted(_)) | Err(_)) = reply {
                    give_back.push(shared.give_back(&nodes[node], &claim, number));
                }
            }
            while give_back.next().await.is_some() {}
        }));
    }

    /// When a majority may be free, as far as the nodes know.
    fn when_free(&self) -> Busy {
        let enough = self.nodes.len() - self.tally.majority();
        let mut left: Vec<_> = self.busy.iter().filter_map(|(_, busy)| busy.left).collect();
        left.sort_unstable();
        // Of the nodes that another holds, all but `enough` must come free; the ones that did not say may never.
        let needed = self.busy.len().saturating_sub(enough).max(1);
        Busy {
            left: left.get(needed - 1).copied(),
            first: self.busy.iter().any(|(_, busy)| busy.first),
            foreign: self.busy.iter().any(|(_, busy)| busy.foreign),
        }
    }

    fn too_few(&mut self, silent: usize, nodes: usize) -> Error {
        let text = format!("{silent} of {nodes} nodes did not vote, so that there is no majority");
        match self.complaint.take() {
            Some(error) if error.kind() != ErrorKind::Unreachable => error,
            Some(error) => Error::new(ErrorKind::Unreachable, text).with_source(format!("{error:#}")),
            None => Error::new(ErrorKind::Unreachable, text),
        }
    }
}

fn too_slow() -> Error {
    Error::new(ErrorKind::Unreachable, "the nodes took longer to answer than the lease lasts")
}

impl Shared {
    /// Frees the lock at one node, if it is the claim's, of this round. Its place in the queue stays.
    fn give_back(&self, node: &Arc<Node>, claim: &Claim, round: u32) -> BoxFuture<'static, ()> {
        let item = self.caller().release(claim, false, round.to_string());
        let freed = self.free(node, item);
        Box::pin(async move {
            if let Err(error) = freed.await {
                let error = format!("{error:#}");
                tracing::debug!(error, "a vote was not given back; it ends with its lease");
            }
        })
    }
}
