//! Waiting for a lock that a majority must free.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use lockcore::seats::Seat;
use lockcore::{Claim, Error, Grant, Moment, Result};

use super::gather::gather;
use super::round::{self, Outcome};
use super::{Redlock, bell};
use crate::items::nap;

/// How long the words of the other nodes are waited for when the first has come.
const TOGETHER: Duration = Duration::from_millis(3);

/// Pauses for a random time that grows with the number of tries: contenders that split the votes must not meet again.
pub(super) async fn back_off(tries: u32) {
    let most = Duration::from_millis(2 << tries.min(5));
    tokio::time::sleep(most.mul_f64(rand::random::<f64>())).await;
}

/// How long a node may take in the next round, when too few answered in this one: the network may be slow rather than
/// down.
pub(super) fn more_patient(limit: Duration, ttl: Duration) -> Duration {
    (limit * 2).min((ttl / 2).max(limit))
}

impl Redlock {
    /// Tries, queues and waits for the turn.
    ///
    /// A claim queues at every node that refuses it, and each node wakes the first of its own queue. Where the nodes
    /// agree about who is first, one waiter hears from a majority and tries alone. Where they do not, several hear from
    /// some: they wait a moment for the rest, and a random pause after a split vote lets one of them win.
    pub(super) async fn wait_for_turn(&self, claim: &Claim) -> Result<Option<Grant>> {
        let listening = self.nodes.iter().filter(|node| node.lane.wire().is_listening()).count();
        let mut ticket = None;
        // One that waited a moment ago is likely to wait again, and queues with its first call.
        if listening >= self.majority() {
            ticket = Some(self.sit(claim));
        }
        let (mut number, mut splits, mut dark_since) = (0, 0, None);
        let mut limit = self.shared.settings.node_timeout(claim.ttl());
        loop {
            let seat = ticket.as_ref().map(|(seat, _)| *seat);
            number += 1;
            let round = round::play(&self.shared, &self.nodes, claim, number, seat, limit);
            let outcome = claim.within_wait(async { Ok(round.await) }).await?;
            let pause = match outcome {
                // A slow node may still queue it: the release gives up what is left of its places, too.
                Outcome::Granted(grant) => return Ok(Some(grant)),
                Outcome::Held(busy) => {
                    (splits, dark_since) = (0, None);
                    nap(&busy)
                }
                Outcome::Split => {
                    splits += 1;
                    tokio::select! {
                        () = back_off(splits) => (),
                        () = claim.given_up() => return Ok(None),
                    }
                    continue;
                }
                Outcome::Dark(error) => {
                    self.bear(error, *dark_since.get_or_insert_with(Moment::now))?;
                    limit = more_patient(limit, claim.ttl());
                    Duration::from_millis(20).mul_f64(0.5 + rand::random::<f64>())
                }
            };
            let Some((_, bells)) = &ticket else {
                // Listens before it queues, so that no word is sent before somebody hears it.
                let claimed = self.sit(claim);
                let listening = self.nodes.iter().map(|node| async {
                    node.lane.wire().listen().await;
                    Ok(())
                });
                tokio::select! {
                    _ = gather(listening, self.majority(), Duration::from_millis(5)) => (),
                    () = claim.given_up() => return Ok(None),
                }
                ticket = Some(claimed);
                continue;
            };
            tokio::select! {
                () = self.called(bells) => (),
                () = tokio::time::sleep(pause) => (),
                () = claim.given_up() => return Ok(None),
            }
            self.listen_again();
        }
    }

    fn sit(&self, claim: &Claim) -> (i64, Vec<Seat>) {
        claim.note_queued();
        let ticket = self.shared.tickets.fetch_add(1, Ordering::Relaxed);
        let seat = |node| self.shared.seats.sit(claim.name(), bell(ticket, node));
        (ticket, (0..self.nodes.len()).map(seat).collect())
    }

    /// Whether to go on although too few nodes answer.
    fn bear(&self, error: Error, since: Moment) -> Result<()> {
        let patience = self.shared.settings.options.timeout;
        if !error.is_retryable() || since.after(patience).has_passed() { Err(error) } else { Ok(()) }
    }

    /// Resolves when a majority of the nodes has called, or one has and the others do not follow.
    async fn called(&self, bells: &[Seat]) {
        let mut calls: FuturesUnordered<_> = bells.iter().map(Seat::called).collect();
        calls.next().await;
        let rest = async {
            for _ in 1..self.majority() {
                calls.next().await;
            }
        };
        // Too few of them, or one that was late: then the random part keeps contenders apart.
        let patience = TOGETHER.mul_f64(0.7 + 0.6 * rand::random::<f64>());
        drop(tokio::time::timeout(patience, rest).await);
    }

    /// Subscribes again where a connection was replaced, without waiting for it.
    fn listen_again(&self) {
        for node in &self.nodes {
            let wire = node.lane.wire();
            if !wire.is_listening() && !wire.looks_dead() {
                let node = Arc::clone(node);
                drop(tokio::spawn(async move { node.lane.wire().listen().await }));
            }
        }
    }
}
