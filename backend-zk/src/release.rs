//! The release of claims.
//!
//! A node in a live session of this process blocks the lock for as long as the process lives. So a deletion is repeated
//! until the server confirms that the node is gone, or the session is over.

use std::sync::Arc;
use std::time::Duration;

use lockcore::backend::Backoff;
use lockcore::{Claim, Error, ErrorKind, LockName, OwnerId, Released, Result};
use zookeeper_client as zk;

use crate::child::Child;
use crate::error::{ErrorClass, class_of, explain};
use crate::lock::Inner;
use crate::names::lock_path;
use crate::node::Node;
use crate::session::SESSIONS;

/// From this sequence number on, the folder of an idle lock is deleted, which starts the numbers again. They end at
/// 2^31.
const ROTATE_AT: i64 = 1_000_000_000;

/// The longest pause between tries.
const LONGEST: Duration = Duration::from_secs(1);

/// Releases this claim, even if another client acquired it.
pub(crate) async fn release(inner: &Arc<Inner>, claim: &Claim) -> Result<Released> {
    let (owner, node) = (claim.owner(), inner.leases.end(claim.owner()));
    let work = async {
        match &node {
            Some(node) => delete(inner, owner, node).await,
            None => delete_by_owner(inner, claim.name(), owner, claim.ttl()).await,
        }
    };
    let answer = tokio::time::timeout(inner.options.timeout, work).await;
    answer.unwrap_or_else(|_| {
        if let Some(node) = node {
            // A repeated release finds the node, and the note that an earlier deletion may have been executed.
            node.note_deleting();
            discard(inner, owner, node);
        }
        Err(Error::new(ErrorKind::UnknownOutcome, "no answer in time; the node is deleted in the background"))
    })
}

/// Deletes a node in the background, with any number of tries.
pub(crate) fn discard(inner: &Arc<Inner>, owner: OwnerId, node: Arc<Node>) {
    let inner = Arc::clone(inner);
    drop(SESSIONS.spawn(async move {
        let mut pauses = Backoff::new(Duration::from_millis(200), LONGEST * 5);
        while let Err(error) = delete(&inner, owner, &node).await {
            if node.session.is_over() {
                break;
            }
            let error = format!("{error:#}");
            tracing::warn!(lock = %node.lock, error, "a node is not deleted; it is tried again");
            pauses.pause().await;
        }
        inner.leases.remove(owner);
    }));
}

/// Deletes the node of a claim. Ends with an answer, or with a permanent error of the server.
async fn delete(inner: &Inner, owner: OwnerId, node: &Arc<Node>) -> Result<Released> {
    let mut pauses = Backoff::new(Duration::from_millis(4), LONGEST);
    let released = loop {
        let Err(error) = node.session.bounded(node.session.client.delete(&node.path, None)).await else {
            rotate(node);
            break Released::Released;
        };
        match class_of(&error) {
            // Either an earlier deletion succeeded and its answer was lost, or another client deleted the node.
            ErrorClass::Refused if error == zk::Error::NoNode => break Released::NotHeld,
            ErrorClass::Refused => return Err(explain(&error)),
            // The client crate may consider the session over before the server does.
            ErrorClass::SessionOver => {
                break delete_by_owner(inner, &node.lock, owner, node.session.timeout()).await?;
            }
            ErrorClass::Unknown => {
                node.note_deleting();
                pauses.pause().await;
            }
        }
    };
    inner.leases.remove(owner);
    Ok(if released == Released::NotHeld && node.may_be_deleted() { Released::InDoubt } else { released })
}

/// Deletes the folder of an idle lock with high sequence numbers. A claim that needs the folder at that moment creates
/// it again.
fn rotate(node: &Arc<Node>) {
    if node.sequence < ROTATE_AT {
        return;
    }
    // Also if the folder is not a container, since its numbers would end some day.
    let node = Arc::clone(node);
    drop(SESSIONS.spawn(async move {
        match node.session.client.delete(node.folder(), None).await {
            Ok(()) => tracing::info!(lock = %node.lock, "the sequence numbers start anew"),
            Err(error) => tracing::debug!(lock = %node.lock, %error, "the sequence numbers go on"),
        }
    }));
}

/// Deletes all nodes with this owner id, whichever session created them.
///
/// On the session of the claim the deletion comes after the create of the claim, even if no task waits for that create
/// any more: the requests of a session are executed in order.
async fn delete_by_owner(inner: &Inner, lock: &LockName, owner: OwnerId, ttl: Duration) -> Result<Released> {
    let path = lock_path(&inner.options.base, lock);
    let mut pauses = Backoff::new(Duration::from_millis(10), LONGEST);
    let mut released = Released::NotHeld;
    'again: loop {
        let session = inner.pool.session(ttl).await?;
        let client = &session.client;
        // This server may lag behind the server that created the node.
        let names = match session.bounded(session.list_now(&path)).await {
            Ok(names) => names,
            Err(zk::Error::NoNode) => break,
            Err(error) if class_of(&error) == ErrorClass::Refused => return Err(explain(&error)),
            Err(_) => {
                pauses.pause().await;
                continue;
            }
        };
        let ours = Child::queue(names).into_iter().filter(|child| child.owner == Some(owner));
        for child in ours {
            match session.bounded(client.delete(&format!("{path}/{}", child.name), None)).await {
                Ok(()) => released = Released::Released,
                Err(zk::Error::NoNode) => (),
                Err(error) if class_of(&error) == ErrorClass::Refused => return Err(explain(&error)),
                Err(error) => {
                    // The node exists. If it is gone at the next check, this client deleted it, or it ended with its
                    // session.
                    if class_of(&error) == ErrorClass::Unknown && released == Released::NotHeld {
                        released = Released::InDoubt;
                    }
                    pauses.pause().await;
                    continue 'again;
                }
            }
        }
        break;
    }
    inner.leases.remove(owner);
    Ok(released)
}
