//! The status of a lock, and the forced release.

use std::time::Duration;

use futures_util::future::join_all;
use lockwell_core::{FencingToken, Holder, LockName, LockStatus, Mode, Moment, Result};
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
    /// The mode of its claim.
    pub mode: Mode,
    /// The lease; `None` for nodes of other programs.
    pub ttl: Option<Duration>,
    /// How long ago it entered the queue, by the server's clock.
    pub waited: Duration,
}

/// The nodes of a lock.
async fn list(session: &Session, path: &str) -> Result<Vec<Child>> {
    match session.list_now(path).await {
        Ok(names) => Ok(Child::queue(names)),
        Err(zk::Error::NoNode) => Ok(Vec::new()),
        Err(error) => Err(explain(&error)),
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
        let Data { label, ttl, reads, .. } = Data::read(&data);
        let mut mode = child.kind.mode();
        if at == 0 && mode == Mode::Exclusive && reads {
            (mode, holding, joined) = (Mode::Shared, may_hold(queue), true);
        }
        entries.push(Some(QueueEntry {
            // Readers of other libraries do not hold the lock yet: they wait for the end of the former
            // writer's node.
            holds: at < holding && (!joined || ttl.is_some()),
            czxid: token_of(stat.czxid),
            label,
            mode,
            ttl,
            waited: inner.clock.since(stat.ctime),
        }));
    }
    Ok(entries)
}

pub(crate) async fn queue(inner: &ClientInner, name: &LockName) -> Result<Vec<QueueEntry>> {
    let session = inner.pool.any().await?;
    learn_time(inner, &session).await?;
    let folder = lock_path(&inner.options.base, name);
    let queue = list(&session, &folder).await?;
    Ok(read(inner, &session, &folder, &queue, queue.len()).await?.into_iter().flatten().collect())
}

pub(crate) async fn status(inner: &ClientInner, name: &LockName) -> Result<LockStatus> {
    let session = inner.pool.any().await?;
    learn_time(inner, &session).await?;
    let folder = lock_path(&inner.options.base, name);
    let mut tries = 0;
    loop {
        let queue = list(&session, &folder).await?;
        // Also reads the first waiter, which has waited longest.
        let count = (may_hold(&queue) + 1).min(queue.len());
        let entries = read(inner, &session, &folder, &queue, count).await?;
        // If a node left between the two requests, the next one holds the lock by now.
        if entries.iter().any(Option::is_none) && tries < 5 {
            tries += 1;
            continue;
        }
        let waiting = entries.iter().flatten().filter(|entry| !entry.holds).count();
        let waiting = waiting + queue.len() - entries.len();
        let longest_wait =
            entries.iter().flatten().filter(|entry| !entry.holds).map(|entry| entry.waited).max();
        let found = entries.into_iter().flatten().filter(|entry| entry.holds).map(|entry| {
            // The heartbeats of a live process renew the session, so the whole lease is always left.
            let left = entry.ttl.unwrap_or_else(|| session.timeout());
            // It includes the time in the queue: recording the moment of the grant would need a request for
            // each hand-over.
            Holder::new(entry.czxid, entry.label, entry.mode, left).held_for(entry.waited)
        });
        return Ok(LockStatus::new(name.clone(), found.collect(), waiting).longest_wait(longest_wait));
    }
}

pub(crate) async fn force_release(inner: &ClientInner, name: &LockName) -> Result<usize> {
    let session = inner.pool.any().await?;
    let folder = lock_path(&inner.options.base, name);
    let queue = list(&session, &folder).await?;
    let entries = read(inner, &session, &folder, &queue, may_hold(&queue)).await?;
    // All requests are sent before the wait for the first answer.
    let deleting = queue
        .iter()
        .zip(entries)
        .filter(|(_, entry)| entry.as_ref().is_some_and(|entry| entry.holds))
        .map(|(child, _)| delete(&session, format!("{folder}/{}", child.name)));
    let mut freed = 0;
    for answer in join_all(deleting).await {
        match answer {
            Ok(()) => freed += 1,
            // The holder has released the lock meanwhile.
            Err(zk::Error::NoNode) => (),
            Err(error) => return Err(explain(&error)),
        }
    }
    Ok(freed)
}

async fn delete(session: &Session, path: String) -> Result<(), zk::Error> {
    until_served(|| session.client.delete(&path, None)).await
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
