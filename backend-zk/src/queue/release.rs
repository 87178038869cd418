//! The release of claims.
//!
//! A node in a live session of this process blocks the lock for as long as the process lives. So a deletion
//! is repeated until the server confirms that the node is gone, or the session is over. The same is done
//! where a node may still be made: a request that is made without a connection waits in the client crate.

use std::sync::Arc;
use std::time::Duration;

use lockwell_core::backend::Backoff;
use lockwell_core::{Claim, Error, ErrorKind, LockName, OwnerId, Released, Result};
use zookeeper_client as zk;

use crate::client::ClientInner;
use crate::error::{ErrorClass, class_of, explain, no_answer};
use crate::names::{lock_path, path_bytes};
use crate::queue::child::Child;
use crate::queue::node::Node;
use crate::queue::place::Place;
use crate::session::Session;
use crate::session::room::Room;
use crate::session::runtime::SESSIONS;

/// From this sequence number on, the folder of an idle lock is deleted, which starts the numbers again. They
/// end at 2^31.
const ROTATE_AT: i64 = 1_000_000_000;

/// The longest pause between tries.
const LONGEST: Duration = Duration::from_secs(1);

/// Releases this claim, even if another client acquired it.
pub(crate) async fn release(inner: &Arc<ClientInner>, claim: &Claim) -> Result<Released> {
    let (owner, place) = (claim.owner(), inner.leases.end(claim.owner()));
    let node = place.as_ref().and_then(|place| place.node());
    let mut unanswered = Unanswered { inner, owner, place: place.clone() };
    let work = async {
        let lease = (claim.ttl(), claim.lock_delay());
        let session = place.as_ref().map(|place| place.session());
        match &node {
            Some(node) => delete(inner, owner, node).await,
            None => delete_by_owner(inner, claim.name(), owner, session, lease).await,
        }
    };
    let Ok(answer) = tokio::time::timeout(inner.options.timeout, work).await else {
        let text = "no answer in time; the node is deleted in the background";
        return Err(Error::new(ErrorKind::UnknownOutcome, text));
    };
    let place = unanswered.place.take();
    if let (Err(_), Some(place)) = (&answer, place) {
        discard(inner, owner, place);
    }
    answer
}

/// A release that has no answer yet. If it is dropped, the node is deleted in the background.
///
/// lockcore repeats a release for as long as the lease lasts, since the server then ends the lease. Here the
/// node stays as long as its session, which can be as long as the process lives.
struct Unanswered<'a> {
    inner: &'a Arc<ClientInner>,
    owner: OwnerId,
    place: Option<Arc<Place>>,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        let Some(place) = self.place.take() else { return };
        // A repeated release finds the node, and the note that an earlier deletion may have been executed.
        if let Some(node) = place.node() {
            node.note_deleting();
        }
        discard(self.inner, self.owner, place);
    }
}

/// Deletes the node of a place in the background, with any number of tries: until it is gone, or its session
/// is over.
///
/// This ends with the client, too. A session that no client and no lock needs any more is closed, which
/// deletes its nodes, even if the server refuses to delete one of them by itself.
pub(crate) fn discard(inner: &Arc<ClientInner>, owner: OwnerId, place: Arc<Place>) {
    if !place.begin_discard() {
        return;
    }
    let inner = Arc::downgrade(inner);
    drop(SESSIONS.spawn(async move {
        let mut pauses = Backoff::new(Duration::from_millis(200), LONGEST * 5);
        while let Some(inner) = inner.upgrade() {
            let node = place.node();
            let deleting = async {
                match &node {
                    Some(node) => delete(&inner, owner, node).await.map(drop),
                    None => delete_unknown(&inner, owner, &place).await,
                }
            };
            let error = match tokio::time::timeout(inner.options.timeout, deleting).await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error,
                Err(_) => {
                    if let Some(node) = &node {
                        node.note_deleting();
                    }
                    no_answer()
                }
            };
            if place.session().is_over() || inner.pool.is_closed() {
                inner.leases.remove(owner);
                return;
            }
            let error = format!("{error:#}");
            tracing::warn!(lockwell.name = %place.lock, error, "a node is not deleted; it is tried again");
            drop(inner);
            pauses.pause().await;
        }
    }));
}

/// Deletes what the claim has made in the session of this place without knowing it.
///
/// The list comes after the create of the claim, since the requests of a session are executed in order. A
/// node of another session is left alone: another client may hold the lock for the claim.
async fn delete_unknown(inner: &ClientInner, owner: OwnerId, place: &Place) -> Result<()> {
    let (session, path) = (place.session(), lock_path(&inner.options.base, &place.lock));
    let names = match session.bounded(session.list_now(&path)).await {
        Err(zk::Error::NoNode) => Vec::new(),
        names => names.map_err(|error| explain(&error))?,
    };
    for child in Child::queue(names).into_iter().filter(|child| child.owner == Some(owner)) {
        let path = format!("{path}/{}", child.name);
        let stat = session.bounded(session.client.check_stat(&path)).await;
        let stat = stat.map_err(|error| explain(&error))?;
        if stat.is_some_and(|stat| stat.ephemeral_owner == session.id()) {
            match session.bounded(session.client.delete(&path, None)).await {
                Err(zk::Error::NoNode) => (),
                deleted => deleted.map_err(|error| explain(&error))?,
            }
        }
    }
    inner.leases.remove(owner);
    Ok(())
}

/// Deletes the node of a claim. Ends with an answer, or with a permanent error of the server.
async fn delete(inner: &Arc<ClientInner>, owner: OwnerId, node: &Arc<Node>) -> Result<Released> {
    let mut pauses = Backoff::new(Duration::from_millis(4), LONGEST);
    let released = loop {
        let Err(error) = node.session.bounded(node.session.client.delete(&node.path, None)).await else {
            delete_folder(node);
            break Released::Released;
        };
        match class_of(&error) {
            // Either an earlier deletion succeeded and its answer was lost, or another client deleted the
            // node.
            ErrorClass::Refused if error == zk::Error::NoNode => break Released::NotHeld,
            ErrorClass::Refused => return Err(explain(&error)),
            // The client crate may consider the session over before the server does.
            ErrorClass::SessionOver => {
                let lease = (node.session.timeout(), Duration::ZERO);
                break delete_by_owner(inner, &node.lock, owner, None, lease).await?;
            }
            ErrorClass::Unknown => {
                node.note_deleting();
                pauses.pause().await;
            }
            ErrorClass::Throttled => pauses.pause().await,
        }
    };
    inner.leases.remove(owner);
    Ok(if released == Released::NotHeld && node.may_be_deleted() { Released::InDoubt } else { released })
}

/// Deletes the folder of an idle lock if its sequence numbers are high, or if this client makes more
/// folders than the servers delete. A claim that needs the folder at that moment creates it again.
fn delete_folder(node: &Arc<Node>) {
    // Also if the folder is not a container, since its numbers would end some day.
    if node.sequence < ROTATE_AT && !node.is_folder_too() {
        return;
    }
    let node = Arc::clone(node);
    // The request is sent at once, before the end of the session.
    let deleting = node.session.client.delete(node.folder(), None);
    drop(SESSIONS.spawn(async move {
        match deleting.await {
            Ok(()) => tracing::debug!(lockwell.name = %node.lock, "the empty folder is deleted"),
            Err(error) => tracing::debug!(lockwell.name = %node.lock, %error, "the folder stays"),
        }
    }));
}

/// Deletes all nodes with this owner id, whichever session created them. `session`: that of the claim, if it
/// is known.
///
/// On the session of the claim the deletion comes after the create of the claim, even if no task waits for
/// that create any more: the requests of a session are executed in order.
async fn delete_by_owner(
    inner: &Arc<ClientInner>,
    lock: &LockName,
    owner: OwnerId,
    session: Option<&Arc<Session>>,
    (ttl, delay): (Duration, Duration),
) -> Result<Released> {
    let path = lock_path(&inner.options.base, lock);
    let mut pauses = Backoff::new(Duration::from_millis(10), LONGEST);
    let mut released = Released::NotHeld;
    'again: loop {
        let session = match session.filter(|session| !session.is_over()) {
            Some(session) => Arc::clone(session),
            None => inner.pool.session(ttl, delay).await?,
        };
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
                Err(error) if class_of(&error) == ErrorClass::Refused => {
                    adopt(inner, &session, lock, owner, &path, &child).await;
                    return Err(explain(&error));
                }
                Err(error) => {
                    // The node exists. If it is gone at the next check, this client deleted it, or it ended
                    // with its session.
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

/// The server refuses to delete a node of this claim. If the node belongs to this session, it would stay as
/// long as the session, so it is deleted in the background.
async fn adopt(
    inner: &Arc<ClientInner>,
    session: &Arc<Session>,
    lock: &LockName,
    owner: OwnerId,
    folder: &str,
    child: &Child,
) {
    let path = format!("{folder}/{}", child.name);
    let stat = session.bounded(session.client.check_stat(&path)).await;
    if let Some(stat) = stat.ok().flatten().filter(|stat| stat.ephemeral_owner == session.id()) {
        let place = Place::new(Room::of_existing(session, path_bytes(folder)), lock);
        place.set_node(Some(Node::new(session, lock, path, child.sequence, stat.czxid)));
        // A repeated release finds it.
        inner.leases.insert(owner, Arc::clone(&place));
        inner.leases.end(owner);
        discard(inner, owner, place);
    }
}
