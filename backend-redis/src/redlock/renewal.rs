//! Extending leases at a majority.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use lockcore::backend::valid_until;
use lockcore::{Error, ErrorKind, Grant, Moment, Renewal};

use super::Shared;
use super::node::Node;
use super::tally::majority;
use crate::calls::Item;
use crate::error::no_answer;
use crate::items::{self, millis, owner};
use crate::script::{PLANT, RENEW};

/// What the nodes said about one lease.
#[derive(Clone, Default)]
struct Votes {
    extended: usize,
    gone: usize,
    /// The nodes that do not have the lock.
    without: Vec<usize>,
}

/// Extends leases. Each counts as extended only if a majority of nodes that have a vote says so within the validity.
pub(super) async fn renew(
    shared: &Arc<Shared>,
    nodes: &[Arc<Node>],
    grants: &[Grant],
    until: Moment,
) -> Vec<Renewal> {
    let began = Moment::now();
    let majority = majority(nodes.len());
    // It returns at the majority, so a slow node costs nothing; but a keeper that has just connected may take a while.
    let limit = until.since(began) / 4 * 3;
    let longest = shared.common.settings.longest_ttl;
    let Item { keys, args, .. } = items::renewal(&shared.common.keys, grants, 0);
    let mut answers: FuturesUnordered<_> = nodes
        .iter()
        .enumerate()
        .map(|(index, node)| {
            let (node, keys, args) = (Arc::clone(node), Arc::clone(&keys), Arc::clone(&args));
            async move {
                let asked = async {
                    let (numbers, generation) = node.numbers(&RENEW, keys, args, limit).await?;
                    let counts = node.may_extend(generation, limit, longest).await?;
                    Ok::<_, Error>((numbers, counts))
                };
                let late = |_| no_answer(None);
                (index, tokio::time::timeout(limit, asked).await.map_err(late).flatten())
            }
        })
        .collect();
    let mut votes = vec![Votes::default(); grants.len()];
    let (mut open, mut complaint) = (nodes.len(), None);
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
            Err(error) => complaint = Some(error),
        }
        // Returns at the majority. The slow ones go on: what was sent is carried out.
        let decided = |votes: &Votes| votes.extended >= majority || votes.gone >= majority || open == 0;
        if votes.iter().all(decided) {
            break;
        }
    }
    plant(shared, nodes, grants, &votes, majority, limit);
    if !answers.is_empty() {
        // The slow ones may have lost locks, too.
        let (shared, nodes, grants) = (Arc::clone(shared), nodes.to_vec(), grants.to_vec());
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
            plant(&shared, &nodes, &grants, &late, majority, limit);
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
                Renewal::Unknown(match &complaint {
                    Some(cause) => error.with_source(format!("{cause:#}")),
                    None => error,
                })
            }
        })
        .collect()
}

/// Sets locks again, in the background, at nodes that have lost them, so that the majority does not wear away.
///
/// Only locks that a majority has just confirmed. It never counts as a vote of this renewal. A release that comes
/// meanwhile waits until it is done (see [`Common::planting`](super::Common::planting)), and one that came before is seen here.
fn plant(
    shared: &Arc<Shared>,
    nodes: &[Arc<Node>],
    grants: &[Grant],
    votes: &[Votes],
    majority: usize,
    limit: Duration,
) {
    let mut bare: Vec<(Arc<Node>, Vec<Grant>)> = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        let lacks = |votes: &Votes| votes.extended >= majority && votes.without.contains(&index);
        let lost = grants.iter().zip(votes).filter(|(_, votes)| lacks(votes));
        let lost: Vec<_> = lost.map(|(grant, _)| grant.clone()).collect();
        if !lost.is_empty() {
            bare.push((Arc::clone(node), lost));
        }
    }
    if bare.is_empty() {
        return;
    }
    let shared = Arc::clone(shared);
    drop(tokio::spawn(async move {
        // Bounded: releases wait behind it, and one whose runtime is not driven may be in its way.
        let Ok(_no_release) = tokio::time::timeout(limit, shared.common.planting.write()).await else {
            return;
        };
        for (node, grants) in bare {
            let (mut keys, mut args) = (Vec::new(), Vec::new());
            for grant in grants.iter().filter(|grant| !grant.claim().is_cancelled()) {
                let claim = grant.claim();
                keys.extend(shared.common.keys_of_holder(claim));
                args.extend([
                    owner(claim),
                    millis(claim.ttl()),
                    grant.last_token().to_string(),
                    claim.label().to_owned(),
                    claim.mode().code().to_string(),
                ]);
            }
            if keys.is_empty() {
                continue;
            }
            match node.numbers(&PLANT, keys, args, limit).await {
                Ok(_) => tracing::info!("locks were set again at a node that had lost them"),
                Err(error) => {
                    tracing::info!(error = format!("{error:#}"), "a node that lost locks did not take them");
                }
            }
        }
    }));
}
