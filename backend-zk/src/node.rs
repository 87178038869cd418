//! The nodes that this client has made, and what they say.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::Shared;
use lockcore::{Claim, FencingToken, LockName, Mode, Moment};
use tokio::sync::Notify;
use uuid::Uuid;
use zookeeper_client as zk;

use crate::child::Child;
use crate::session::Session;

/// The news of a node, which comes at most once.
pub(crate) type News = Pin<Box<dyn Future<Output = zk::WatchedEvent> + Send>>;

/// A node that a claim has made.
pub(crate) struct Node {
    pub(crate) session: Arc<Session>,
    pub(crate) lock: LockName,
    pub(crate) path: String,
    pub(crate) sequence: i64,
    pub(crate) czxid: i64,
    /// Whether its path is this node's alone, and never that of another one.
    pub(crate) unique: bool,
    /// It was the first of the queue, or one of several who hold the lock together.
    held: AtomicBool,
    /// Held by whoever deletes it.
    pub(crate) deleting: tokio::sync::Mutex<()>,
    /// A watch on the node itself, if one has been set.
    news: Mutex<Option<Shared<News>>>,
    /// A watch on the folder that nobody waits for any more.
    beside: Mutex<Option<News>>,
}

impl Node {
    pub(crate) fn new(
        session: &Arc<Session>,
        lock: &LockName,
        path: String,
        (sequence, czxid): (i64, i64),
        unique: bool,
    ) -> Arc<Self> {
        session.count_node(true);
        Arc::new(Self {
            session: Arc::clone(session),
            lock: lock.clone(),
            path,
            sequence,
            czxid,
            unique,
            held: AtomicBool::new(false),
            deleting: tokio::sync::Mutex::default(),
            news: Mutex::default(),
            beside: Mutex::default(),
        })
    }

    pub(crate) fn token(&self) -> FencingToken {
        // The server counts from zero.
        FencingToken::new(self.czxid.cast_unsigned())
    }

    /// The node's name in its folder.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(_, name)| name)
    }

    /// The claim holds the lock, or has held it.
    pub(crate) fn note_held(&self) {
        self.held.store(true, Ordering::Release);
    }

    pub(crate) fn was_held(&self) -> bool {
        self.held.load(Ordering::Acquire)
    }

    fn news(&self) -> MutexGuard<'_, Option<Shared<News>>> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a watch that has been set on the node.
    ///
    /// The watch stays with the node, whoever listens to it: dropping a watch costs a request, and the end of the node
    /// ends it for nothing.
    pub(crate) fn watched_by(&self, watcher: zk::OneshotWatcher) {
        let news: News = Box::pin(watcher.changed());
        *self.news() = Some(news.shared());
    }

    /// Whether a watch is set.
    pub(crate) fn is_watched(&self) -> bool {
        self.news().is_some()
    }

    /// Keeps a watch on the folder until it has fired: dropping it costs a request, too.
    pub(crate) fn keep_watch(&self, news: News) {
        *self.beside.lock().unwrap_or_else(PoisonError::into_inner) = Some(news);
    }

    /// The next event of the node; `None` if no watch is set.
    pub(crate) async fn event(&self) -> Option<zk::WatchedEvent> {
        let news = self.news().clone()?;
        let event = news.clone().await;
        let mut slot = self.news();
        if slot.as_ref().is_some_and(|other| other.ptr_eq(&news)) {
            *slot = None;
        }
        Some(event)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.session.count_node(false);
    }
}

/// The path of the folder in which a node lies.
pub(crate) fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// What becomes of a claim's node.
#[derive(Debug)]
struct Entry {
    node: Arc<Node>,
    /// When the claim's lease ends; `None` while it waits.
    until: Option<Moment>,
    /// A deletion has been sent whose outcome is not known.
    unsure: bool,
    /// It is being deleted.
    ended: bool,
}

/// A claim that is being given up.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) node: Arc<Node>,
    /// A deletion has been sent whose outcome is not known.
    pub(crate) unsure: bool,
}

/// The claims that have a node, and the ends of their leases.
///
/// The session keeps a node for as long as this process lives. But a claim that nobody renews must not hold its lock
/// for longer than its lease: then the node is deleted by us.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Mutex<Rows>,
    /// Rung when a lease ends earlier than the sweep is going to look.
    pub(crate) bell: Notify,
}

#[derive(Debug, Default)]
struct Rows {
    entries: HashMap<Uuid, Entry>,
    /// When the sweep looks next; `None` while there is none.
    wakes: Option<Moment>,
}

impl Table {
    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn insert(&self, owner: Uuid, node: &Arc<Node>) {
        let entry = Entry { node: Arc::clone(node), until: None, unsure: false, ended: false };
        self.rows().entries.insert(owner, entry);
    }

    /// The node of this claim.
    pub(crate) fn get(&self, owner: Uuid) -> Option<Arc<Node>> {
        let rows = self.rows();
        rows.entries.get(&owner).filter(|entry| !entry.ended).map(|entry| Arc::clone(&entry.node))
    }

    /// Our node of this name, also while it is being deleted.
    pub(crate) fn find(&self, child: &Child) -> Option<Arc<Node>> {
        let rows = self.rows();
        let node = &rows.entries.get(&child.owner?)?.node;
        (node.name() == child.name).then(|| Arc::clone(node))
    }

    /// The claim's lease ends at `until`. `false`: the claim is ending or has ended. The second answer says whether a
    /// sweep must be started.
    pub(crate) fn lease(&self, owner: Uuid, until: Moment) -> (bool, bool) {
        let mut rows = self.rows();
        let Some(entry) = rows.entries.get_mut(&owner).filter(|entry| !entry.ended) else {
            return (false, false);
        };
        entry.until = Some(entry.until.map_or(until, |old| old.max(until)));
        match rows.wakes {
            Some(wakes) if wakes <= until => (true, false),
            Some(_) => {
                rows.wakes = Some(until);
                self.bell.notify_one();
                (true, false)
            }
            None => {
                rows.wakes = Some(until);
                (true, true)
            }
        }
    }

    /// The claim is to be given up. From now on it cannot be renewed.
    pub(crate) fn end(&self, owner: Uuid) -> Option<Ending> {
        let mut rows = self.rows();
        let entry = rows.entries.get_mut(&owner)?;
        entry.ended = true;
        Some(Ending { node: Arc::clone(&entry.node), unsure: entry.unsure })
    }

    pub(crate) fn is_unsure(&self, owner: Uuid) {
        if let Some(entry) = self.rows().entries.get_mut(&owner) {
            entry.unsure = true;
        }
    }

    pub(crate) fn remove(&self, owner: Uuid) {
        self.rows().entries.remove(&owner);
    }

    /// Ends the claims whose lease is over, and says when to look next; `None` if no lease is left.
    pub(crate) fn sweep(&self, now: Moment) -> (Vec<(Uuid, Arc<Node>)>, Option<Moment>) {
        let mut rows = self.rows();
        let (mut over, mut next) = (Vec::new(), None::<Moment>);
        for (owner, entry) in &mut rows.entries {
            match entry.until.filter(|_| !entry.ended) {
                Some(until) if until <= now => {
                    entry.ended = true;
                    over.push((*owner, Arc::clone(&entry.node)));
                }
                Some(until) => next = Some(next.map_or(until, |next| next.min(until))),
                None => (),
            }
        }
        rows.wakes = next;
        (over, next)
    }
}

/// What a reader's node says behind its lease.
const READER: &str = " reader";

/// What is written into a node: the label for people, and behind a line break the lease for `inspect`, and whether the
/// claim is a reader's. Labels have no line breaks. Other programs write what they like; all of it is a label then.
pub(crate) fn write_data(claim: &Claim) -> Vec<u8> {
    let reader = if claim.mode() == Mode::Shared { READER } else { "" };
    format!("{}\nlockwell ttl={}{reader}", claim.label(), claim.ttl().as_millis()).into_bytes()
}

/// What the node of a permit says behind its lease when its turn has come.
const HELD: &str = " held";

/// The data of a permit whose turn has come.
pub(crate) fn write_held(claim: &Claim) -> Vec<u8> {
    let mut data = write_data(claim);
    data.extend_from_slice(HELD.as_bytes());
    data
}

/// Whether a permit's node says that its turn has come.
pub(crate) fn says_held(data: &[u8]) -> bool {
    let text = String::from_utf8_lossy(data);
    text.split_once("\nlockwell ttl=").is_some_and(|(_, rest)| rest.ends_with(HELD))
}

/// The label and the lease of a node, from its data.
pub(crate) fn read_data(data: &[u8]) -> (String, Option<Duration>) {
    let text = String::from_utf8_lossy(data);
    let Some((label, rest)) = text.split_once('\n') else { return (text.into_owned(), None) };
    let ttl = rest
        .strip_prefix("lockwell ttl=")
        .and_then(|rest| rest.split_ascii_whitespace().next()?.parse().ok());
    (label.to_owned(), ttl.map(Duration::from_millis))
}

/// Whether a node is lockwell's, as its data say.
pub(crate) fn is_ours(data: &[u8]) -> bool {
    read_data(data).1.is_some()
}

/// Whether a node says that its claim is a reader's. One that is a writer by its name has become a reader.
pub(crate) fn says_reader(data: &[u8]) -> bool {
    let text = String::from_utf8_lossy(data);
    text.split_once("\nlockwell ttl=").is_some_and(|(_, rest)| rest.ends_with(READER))
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The path holds the owner id.
        f.debug_struct("Node").field("lock", &self.lock).field("czxid", &self.czxid).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockcore::Wait;

    #[test]
    fn what_is_written_is_read_back() {
        let ttl = Duration::from_millis(1500);
        let name = LockName::new("a").unwrap();
        let writer = Claim::new(name, Mode::Exclusive, ttl, Wait::No, "a reader".into());
        for (claim, reads) in [(&writer, false), (&writer.downgraded(), true)] {
            let data = write_data(claim);
            assert_eq!(read_data(&data), ("a reader".to_owned(), Some(ttl)));
            assert_eq!(says_reader(&data), reads);
            assert!(is_ours(&data));
        }
        for others in ["", "10.0.0.1", "__REVOKE__", "a reader", "lockwell ttl=1 reader", "\n reader"] {
            assert!(!says_reader(others.as_bytes()) && !is_ours(others.as_bytes()), "{others}");
        }
    }
}
