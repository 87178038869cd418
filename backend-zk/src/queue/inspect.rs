//! The status of a lock, and the forced release.

use std::time::Duration;

use futures_util::future::join_all;
use lockwell_core::{
    Error, ErrorKind, FencingToken, Holder, LockName, LockStatus, Mode, Moment, Result, TraceParent,
    WaitingClaim,
};
use zookeeper_client as zk;

use crate::client::ClientInner;
use crate::error::explain;
use crate::names::lock_path;
use crate::queue::child::{Child, Data, Kind};
use crate::queue::node::token_of;
use crate::queue::position::holders;
use crate::session::Session;
use crate::session::connect::until_served;

/// A holder or a waiter of a lock, from its node.
///
/// A record of values to read, so its fields are public; later versions may add some.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueEntry {
    /// Whether it holds the lock.
    pub holds: bool,
    /// The zxid of its node: the fencing token of the claim, once it is granted.
    pub czxid: FencingToken,
    /// A human-readable text that names the client: the data of the node.
    pub label: String,
    /// What it does, if its request [says so](lockwell_core::LockRequest::traceparent).
    pub traceparent: Option<TraceParent>,
    /// The mode of its claim.
    pub mode: Mode,
    /// The lease; `None` for nodes of other programs.
    pub ttl: Option<Duration>,
    /// Its node is not of a session: another program has made it, and it stays until somebody deletes it.
    pub lasts: bool,
    /// How long ago it entered the queue, by the server's clock.
    pub waited: Duration,
}

/// The nodes of a lock; `None` if it has no folder.
async fn list(session: &Session, path: &str) -> Result<Option<Vec<Child>>> {
    match session.list_now(path).await {
        Ok(names) => Ok(Some(Child::queue(names))),
        Err(zk::Error::NoNode) => Ok(None),
        Err(error) => Err(explain(&error)),
    }
}

/// Whether a node with this `ephemeralOwner` ends with a session. Nodes that do not have zero there, and
/// containers and nodes with a time to live a special number.
fn is_of_session(owner: i64) -> bool {
    owner != 0 && owner != i64::MIN && owner >> 56 != -1
}

/// What another program has in the place of the lock's folder, if that ends with a session. No claim can have
/// a node below it, so it holds the lock. An idle lock has a folder that is a container.
async fn in_place_of_folder(
    inner: &ClientInner,
    session: &Session,
    folder: &str,
) -> Result<Option<QueueEntry>> {
    let (data, stat) = match session.client.get_data(folder).await {
        Ok(read) => read,
        Err(zk::Error::NoNode | zk::Error::NoAuth) => return Ok(None),
        Err(error) => return Err(explain(&error)),
    };
    let name = folder.rsplit_once('/').unwrap_or_default().1;
    Ok(is_of_session(stat.ephemeral_owner).then(|| QueueEntry {
        holds: true,
        czxid: token_of(stat.czxid),
        label: label(name, &Data::read(&data), &stat),
        traceparent: None,
        mode: Mode::Exclusive,
        ttl: None,
        lasts: false,
        waited: inner.clock.since(stat.ctime),
    }))
}

/// Names who made a node. The name of a node of a session can contain an owner id, so it is not shown.
fn label(name: &str, data: &Data, stat: &zk::Stat) -> String {
    let said = &data.label;
    match (is_of_session(stat.ephemeral_owner), said.is_empty()) {
        (true, true) if data.ttl.is_none() => "another program".to_owned(),
        (true, _) => said.clone(),
        (false, true) => format!("another program (node {name:?}, of no session)"),
        (false, false) => format!("{said} (node {name:?}, of no session)"),
    }
}

/// How many of the first nodes hold the lock, if the first node is a writer that has become a reader
/// according to its data.
fn may_hold(queue: &[Child]) -> usize {
    match queue.split_first() {
        Some((first, rest)) if first.kind == Kind::Exclusive => {
            1 + rest.iter().take_while(|child| child.kind == Kind::Shared).count()
        }
        _ => holders(queue),
    }
}

/// Reads the first `count` nodes of a queue. `None` for a node that was deleted meanwhile.
async fn read(
    inner: &ClientInner,
    session: &Session,
    folder: &str,
    queue: &[Child],
    count: usize,
) -> Result<Vec<Option<QueueEntry>>> {
    let (mut holding, mut joined) = (holders(queue), false);
    let reading: Vec<_> = queue[..count]
        .iter()
        .map(|child| session.client.get_data(&format!("{folder}/{}", child.name)))
        .collect();
    let mut entries = Vec::with_capacity(count);
    for ((at, child), answer) in queue.iter().enumerate().zip(reading) {
        let (data, stat) = match answer.await {
            Ok(read) => read,
            Err(zk::Error::NoNode) => {
                entries.push(None);
                continue;
            }
            Err(error) => return Err(explain(&error)),
        };
        let data = Data::read(&data);
        let (mut mode, ttl) = (child.kind.mode(), data.ttl);
        if at == 0 && mode == Mode::Exclusive && data.reads {
            (mode, holding, joined) = (Mode::Shared, may_hold(queue), true);
        }
        let waited = inner.clock.since(stat.ctime);
        let shown = WaitingClaim::new(label(&child.name, &data, &stat), mode, Some(waited));
        entries.push(Some(QueueEntry {
            // Readers of other libraries do not hold the lock yet: they wait for the end of the former
            // writer's node.
            holds: at < holding && (!joined || ttl.is_some()),
            czxid: token_of(stat.czxid),
            label: shown.label,
            traceparent: shown.traceparent,
            mode,
            ttl,
            lasts: !is_of_session(stat.ephemeral_owner),
            waited,
        }));
    }
    Ok(entries)
}

pub(crate) async fn queue(inner: &ClientInner, name: &LockName) -> Result<Vec<QueueEntry>> {
    let session = inner.pool.any().await?;
    learn_time(inner, &session).await?;
    let folder = lock_path(&inner.options.base, name);
    match list(&session, &folder).await? {
        None => Ok(Vec::new()),
        Some(queue) if queue.is_empty() => {
            Ok(in_place_of_folder(inner, &session, &folder).await?.into_iter().collect())
        }
        Some(queue) => {
            Ok(read(inner, &session, &folder, &queue, queue.len()).await?.into_iter().flatten().collect())
        }
    }
}

pub(crate) async fn status(inner: &ClientInner, name: &LockName) -> Result<LockStatus> {
    let session = inner.pool.any().await?;
    learn_time(inner, &session).await?;
    let folder = lock_path(&inner.options.base, name);
    let mut tries = 0;
    loop {
        let listed = list(&session, &folder).await?;
        let has_folder = listed.is_some();
        let queue = listed.unwrap_or_default();
        let may_hold = may_hold(&queue);
        let count = may_hold.saturating_add(LockStatus::SHOWN).min(queue.len());
        let mut entries = read(inner, &session, &folder, &queue, count).await?;
        if queue.is_empty() && has_folder {
            entries.extend(in_place_of_folder(inner, &session, &folder).await?.map(Some));
        }
        // If a node left between the two requests, the next one holds the lock by now.
        if entries.iter().take(may_hold).any(Option::is_none) && tries < 5 {
            tries += 1;
            continue;
        }
        let (holding, waiting): (Vec<_>, Vec<_>) =
            entries.into_iter().flatten().partition(|entry| entry.holds);
        let waiters = waiting.len() + queue.len() - count;
        let waiting = waiting.into_iter().map(|entry| {
            let QueueEntry { label, traceparent, mode, waited, .. } = entry;
            let mut waits = WaitingClaim::new(label, mode, Some(waited));
            waits.traceparent = traceparent;
            waits
        });
        let found = holding.into_iter().map(|entry| {
            // The heartbeats of a live process renew the session, so the whole lease is always left.
            let left =
                if entry.lasts { Duration::MAX } else { entry.ttl.unwrap_or_else(|| session.timeout()) };
            // It includes the time in the queue: recording the moment of the grant would need a request for
            // each hand-over.
            let mut holder = Holder::new(entry.czxid, entry.label, entry.mode, left).held_for(entry.waited);
            holder.traceparent = entry.traceparent;
            holder
        });
        return Ok(LockStatus::new(name.clone(), found.collect(), waiters).waiting(waiting));
    }
}

pub(crate) async fn force_release(inner: &ClientInner, name: &LockName) -> Result<usize> {
    let session = inner.pool.any().await?;
    let folder = lock_path(&inner.options.base, name);
    let Some(queue) = list(&session, &folder).await? else { return Ok(0) };
    if queue.is_empty() {
        // If it is a folder by now, it has children, or may go.
        return match in_place_of_folder(inner, &session, &folder).await? {
            Some(_) => freed_by(delete(&session, &folder).await),
            None => Ok(0),
        };
    }
    let entries = read(inner, &session, &folder, &queue, may_hold(&queue)).await?;
    // All requests are sent before the wait for the first answer.
    let deleting = queue
        .iter()
        .zip(entries)
        .filter(|(_, entry)| entry.as_ref().is_some_and(|entry| entry.holds))
        .map(async |(child, _)| delete(&session, &format!("{folder}/{}", child.name)).await);
    join_all(deleting).await.into_iter().map(freed_by).sum()
}

async fn delete(session: &Session, path: &str) -> Result<(), zk::Error> {
    until_served(|| session.client.delete(path, None)).await
}

/// How many holders a deletion has freed the lock of.
fn freed_by(deleted: Result<(), zk::Error>) -> Result<usize> {
    match deleted {
        Ok(()) => Ok(1),
        // The holder has released the lock meanwhile.
        Err(zk::Error::NoNode) => Ok(0),
        // lockwell has none below its nodes, and does not know what they are good for.
        Err(zk::Error::NotEmpty) => Err(Error::new(
            ErrorKind::Misconfigured,
            "the node that holds the lock is of another program, and has nodes below it: delete it by hand if nobody \
             needs them",
        )),
        Err(error) => Err(explain(&error)),
    }
}

/// Learns the server's time, if it is not known. The server writes it into each new node, and reports it
/// nowhere else.
///
/// `false`: the client may not create nodes. It is not known then how long locks have been held.
pub(crate) async fn learn_time(inner: &ClientInner, session: &Session) -> Result<bool> {
    if inner.clock.is_known() {
        return Ok(true);
    }
    let sent = Moment::now();
    match session.make_mark().await {
        Ok(created) => {
            inner.clock.saw(created, sent);
            Ok(true)
        }
        // Also if the base path is missing.
        Err(zk::Error::NoAuth | zk::Error::NoNode) => Ok(false),
        Err(error) => Err(explain(&error)),
    }
}
