//! Giving claims up.
//!
//! A node of ours in a live session blocks the lock for as long as this process lives. So a deletion is tried until the
//! server says that the node is gone, or the session is over.

use std::sync::Arc;
use std::time::Duration;

use lockcore::{Claim, Error, ErrorKind, LockName, Released, Result};
use uuid::Uuid;
use zookeeper_client as zk;

use crate::error::{Fate, explain, fate};
use crate::names::lock_path;
use crate::node::{Ending, Node, folder};
use crate::options::Recipe;
use crate::queue::of_owner;
use crate::shared::{Shared, discard};
use crate::{simple, thread};

/// From this number on, an idle lock's folder is deleted, which starts the numbers anew. They end at 2^31.
const ROTATE_AT: i64 = 1_000_000_000;

/// Gives up what this claim holds, here or through another client.
pub(crate) async fn release(shared: &Arc<Shared>, claim: &Claim) -> Result<Released> {
    let owner = claim.owner().as_uuid();
    let limit = shared.options.timeout;
    let Some(Ending { node, .. }) = shared.table.end(owner) else {
        let work = by_owner(shared, claim.name(), owner, claim.ttl());
        return tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err(unknown()));
    };
    let answer = tokio::time::timeout(limit, delete(shared, owner, &node, claim.ttl())).await;
    answer.unwrap_or_else(|_| {
        // Whoever asks again finds the entry, and that its deletion may have been done already.
        discard(shared, owner, node);
        Err(unknown())
    })
}

fn unknown() -> Error {
    Error::new(ErrorKind::UnknownOutcome, "no answer in time; the node is deleted in the background")
}

/// Deletes a node for as long as it takes.
pub(crate) async fn for_good(shared: &Arc<Shared>, owner: Uuid, node: &Arc<Node>) {
    let mut pause = Duration::from_millis(100);
    while let Err(error) = delete(shared, owner, node, node.session.timeout()).await {
        if node.session.is_over() {
            break;
        }
        tracing::warn!(lock = %node.lock, error = format!("{error:#}"), "a node is not deleted; it is tried again");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(5));
    }
    shared.table.remove(owner);
}

/// Deletes the node of a claim. Ends with an answer, or with an error of the server that stands.
async fn delete(shared: &Arc<Shared>, owner: Uuid, node: &Arc<Node>, ttl: Duration) -> Result<Released> {
    if shared.options.recipe == Recipe::Simple {
        // The path is the lock's, not the claim's: a second deletion could meet the next holder's node.
        let _one = node.deleting.lock().await;
        return simple::release_by_owner(shared, &node.lock, owner, Some(&node.session), ttl).await;
    }
    let mut pause = Duration::from_millis(2);
    let gone = loop {
        let Err(error) = node.session.bounded(node.session.client.delete(&node.path, None)).await else {
            rotate(node);
            break Released::Released;
        };
        match fate(&error) {
            Fate::Refused if error == zk::Error::NoNode => {
                // Either an earlier deletion went through whose answer was lost, or somebody else deleted it.
                let unsure = shared.table.end(owner).is_some_and(|ending| ending.unsure);
                break if unsure { Released::Released } else { Released::NotHeld };
            }
            Fate::Refused => return Err(explain(&error)),
            Fate::SessionOver => {
                // The crate's own conclusion may be ahead of the server's.
                let unsure = shared.table.end(owner).is_some_and(|ending| ending.unsure);
                let found = by_owner(shared, &node.lock, owner, ttl).await?;
                break if unsure { Released::Released } else { found };
            }
            Fate::Unknown => {
                shared.table.is_unsure(owner);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(1));
            }
        }
    };
    shared.table.remove(owner);
    Ok(gone)
}

/// Deletes the folder of an idle lock whose numbers have come far. Others who are about to use it make it anew.
fn rotate(node: &Arc<Node>) {
    if node.sequence < ROTATE_AT {
        return;
    }
    // Also one that is not a container: some day its numbers would end.
    let node = Arc::clone(node);
    drop(thread::spawn(async move {
        match node.session.client.delete(folder(&node.path), None).await {
            Ok(()) => tracing::info!(lock = %node.lock, "the sequence numbers start anew"),
            Err(error) => tracing::debug!(lock = %node.lock, %error, "the sequence numbers go on"),
        }
    }));
}

/// Deletes what carries this owner id, whichever session made it.
///
/// On the session of the claim the deletion comes after the claim's create, even if nobody waits for that any more:
/// the requests of a session are executed in order.
pub(crate) async fn by_owner(
    shared: &Arc<Shared>,
    lock: &LockName,
    owner: Uuid,
    ttl: Duration,
) -> Result<Released> {
    if shared.options.recipe == Recipe::Simple {
        return simple::release_by_owner(shared, lock, owner, None, ttl).await;
    }
    let path = lock_path(&shared.options.base, lock);
    let (mut pause, mut released) = (Duration::from_millis(5), false);
    loop {
        let session = shared.pool.session(ttl).await?;
        let client = &session.client;
        // Another server may be behind the one that the node was made through.
        let (synced, listed) = (client.sync(&path), client.list_children(&path));
        let error = match session.bounded(async { synced.await.and(listed.await) }).await {
            Ok(names) => {
                let mut failed = None;
                for child in of_owner(names, owner) {
                    match session.bounded(client.delete(&format!("{path}/{}", child.name), None)).await {
                        Ok(()) => released = true,
                        Err(zk::Error::NoNode) => (),
                        Err(error) => {
                            // It was there. If it is gone when we look again, we did it.
                            released |= fate(&error) == Fate::Unknown;
                            failed = Some(error);
                        }
                    }
                }
                match failed {
                    None => break,
                    Some(error) => error,
                }
            }
            Err(zk::Error::NoNode) => break,
            Err(error) => error,
        };
        if fate(&error) == Fate::Refused {
            return Err(explain(&error));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
    shared.table.remove(owner);
    Ok(if released { Released::Released } else { Released::NotHeld })
}
