//! Extends leases at a majority.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use lockwell_core::backend::valid_until;
use lockwell_core::{Error, ErrorKind, Grant, Moment, Renewal, Result};

use super::context::NodesContext;
use super::items::RoundNumber;
use super::node::Node;
use super::reinstate::reinstate;
use super::tally::majority;
use crate::calls::items::renewal_calls;
use crate::words::error::no_answer;

/// A lease, and the round that it was granted in: only records of that round count.
type Lease = (Grant, RoundNumber);

/// The nodes' answers for one lease.
#[derive(Clone, Default)]
struct Votes {
    extended: usize,
    gone: usize,
    /// The nodes that do not have the lock.
    without: Vec<usize>,
}

/// Extends leases, in calls that do not keep a node busy for long.
pub(super) async fn renew(
    shared: &Arc<NodesContext>,
    nodes: &[Arc<Node>],
    grants: &[Grant],
    until: Moment,
) -> Vec<Renewal> {
    let calls = renewal_calls(grants).map(|grants| renew_together(shared, nodes, grants, until));
    join_all(calls).await.into_iter().flatten().collect()
}

/// Extends leases by one call at each node. Each counts as extended only if a majority of nodes that have a
/// vote says so within the validity.
async fn renew_together(
    shared: &Arc<NodesContext>,
    nodes: &[Arc<Node>],
    grants: &[Grant],
    until: Moment,
) -> Vec<Renewal> {
    let leases = grants.iter().map(|grant| Ok((grant.clone(), RoundNumber::of(grant)?)));
    let leases: Arc<[Lease]> = match leases.collect::<Result<Vec<_>>>() {
        Ok(leases) => leases.into(),
        Err(error) => return Renewal::all_unknown(grants, &error),
    };
    let began = Moment::now();
    let majority = majority(nodes.len());
    // It returns at the majority, so a slow node does not delay it; but a keeper that has just connected may
    // take a while.
    let limit = until.since(began) / 4 * 3;
    let longest = shared.common.settings.longest_ttl;
    let mut answers: FuturesUnordered<_> = nodes
        .iter()
        .enumerate()
        .map(|(index, node)| {
            let (node, item) = (Arc::clone(node), shared.renewal(&leases));
            async move {
                let asked = async {
                    let (numbers, generation) = node.numbers(item, limit).await?;
                    let counts = node.may_extend(generation, limit, longest).await?;
                    Ok::<_, Error>((numbers, counts))
                };
                let answer = tokio::time::timeout(limit, asked).await;
                (index, answer.unwrap_or_else(|_| Err(no_answer(None))))
            }
        })
        .collect();
    let mut votes = vec![Votes::default(); leases.len()];
    let (mut open, mut last_error) = (nodes.len(), None);
    while let Some((node, answer)) = answers.next().await {
        open -= 1;
        match answer {
            Ok((numbers, counts)) => {
                for (votes, number) in votes.iter_mut().zip(numbers) {
                    match number {
                        1 if counts => votes.extended += 1,
                        1 => (),
                        _ => {
                            votes.gone += 1;
                            votes.without.push(node);
                        }
                    }
                }
            }
            Err(error) => last_error = Some(nodes[node].blamed_for(error)),
        }
        // Returns at the majority. The requests to the slow nodes go on: what was sent is carried out.
        let decided = |votes: &Votes| votes.extended >= majority || votes.gone >= majority || open == 0;
        if votes.iter().all(decided) {
            break;
        }
    }
    reinstate_where_lost(shared, nodes, &leases, &votes, limit);
    if !answers.is_empty() {
        // The slow nodes may have lost locks, too.
        let (shared, nodes, leases) = (Arc::clone(shared), nodes.to_vec(), Arc::clone(&leases));
        let mut late = votes.clone();
        for votes in &mut late {
            votes.without.clear();
        }
        drop(tokio::spawn(async move {
            while let Some((node, answer)) = answers.next().await {
                let Ok((numbers, _)) = answer else { continue };
                for (votes, _) in late.iter_mut().zip(numbers).filter(|(_, number)| *number != 1) {
                    votes.without.push(node);
                }
            }
            reinstate_where_lost(&shared, &nodes, &leases, &late, limit);
        }));
    }
    let renewed = grants.iter().zip(votes);
    renewed
        .map(|(grant, votes)| {
            if votes.extended >= majority {
                Renewal::Renewed(valid_until(began, grant.claim().ttl()))
            } else if votes.gone >= majority {
                Renewal::Lost
            } else {
                let text =
                    format!("{} of {} nodes extended the lease: no majority", votes.extended, nodes.len());
                let error = Error::new(ErrorKind::Unreachable, text);
                Renewal::Unknown(match &last_error {
                    Some(cause) => error.with_source(format!("{cause:#}")),
                    None => error,
                })
            }
        })
        .collect()
}

/// Sets the locks again that a majority has just confirmed, at the nodes that do not have them.
fn reinstate_where_lost(
    shared: &Arc<NodesContext>,
    nodes: &[Arc<Node>],
    leases: &[Lease],
    votes: &[Votes],
    limit: Duration,
) {
    let majority = majority(nodes.len());
    for (index, node) in nodes.iter().enumerate() {
        let lacks = |votes: &Votes| votes.extended >= majority && votes.without.contains(&index);
        let lost = leases.iter().zip(votes).filter(|(_, votes)| lacks(votes));
        let lost: Vec<_> = lost.map(|(lease, _)| lease.clone()).collect();
        if !lost.is_empty() {
            reinstate(shared, node, lost, limit);
        }
    }
}
