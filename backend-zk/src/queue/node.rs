//! A node that a claim has made.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::Shared;
use lockwell_core::backend::{Backoff, lock};
use lockwell_core::{Claim, FencingToken, LockName, Moment};
use zookeeper_client as zk;

use crate::error::{ErrorClass, class_of};
use crate::queue::child::Data;
use crate::session::Session;
use crate::session::runtime::SESSIONS;

/// The event of a watch, which comes at most once.
pub(crate) type Event = Pin<Box<dyn Future<Output = zk::WatchedEvent> + Send>>;

pub(crate) struct Node {
    pub(crate) session: Arc<Session>,
    pub(crate) lock: LockName,
    /// The path is unique: it contains the owner id and a number that is used once.
    pub(crate) path: String,
    pub(crate) sequence: i64,
    pub(crate) czxid: i64,
    /// The node was the first of the queue, or one of several holders.
    held: AtomicBool,
    /// When the latest request was sent whose answer granted or renewed the claim.
    proven: Mutex<Moment>,
    /// A deletion was sent, and its outcome is unknown.
    deleting: AtomicBool,
    /// The folder is to be deleted with the node, if it is empty then.
    folder_too: AtomicBool,
    /// A watch on the node itself, if one has been set.
    watch: Mutex<Option<Shared<Event>>>,
    /// A watch on the folder that is not needed any more.
    beside: Mutex<Option<Event>>,
}

/// The token of a node: the number of the transaction that created it.
pub(crate) fn token_of(czxid: i64) -> FencingToken {
    // The server counts from zero.
    FencingToken::new(u64::try_from(czxid).unwrap_or_default())
}

impl Node {
    pub(crate) fn new(
        session: &Arc<Session>,
        lock: &LockName,
        path: String,
        sequence: i64,
        czxid: i64,
    ) -> Arc<Self> {
        Arc::new(Self {
            session: Arc::clone(session),
            lock: lock.clone(),
            path,
            sequence,
            czxid,
            held: AtomicBool::new(false),
            proven: Mutex::new(Moment::now()),
            deleting: AtomicBool::new(false),
            folder_too: AtomicBool::new(false),
            watch: Mutex::default(),
            beside: Mutex::default(),
        })
    }

    pub(crate) fn token(&self) -> FencingToken {
        token_of(self.czxid)
    }

    /// The path of the folder in which the node is, and the node's name in it.
    fn split(&self) -> (&str, &str) {
        self.path.rsplit_once('/').unwrap_or_default()
    }

    pub(crate) fn folder(&self) -> &str {
        self.split().0
    }

    pub(crate) fn name(&self) -> &str {
        self.split().1
    }

    /// Whether an event is about the node, rather than about another one.
    pub(crate) fn is(&self, stat: &zk::Stat) -> bool {
        stat.ephemeral_owner == self.session.id() && stat.czxid == self.czxid
    }

    /// The claim holds the lock, or has held it.
    pub(crate) fn note_held(&self) {
        self.held.store(true, Ordering::Release);
    }

    pub(crate) fn was_held(&self) -> bool {
        self.held.load(Ordering::Acquire)
    }

    /// The claim was granted or renewed by the answer to a request that was sent then.
    pub(crate) fn note_proven(&self, sent: Moment) {
        *lock(&self.proven) = sent;
    }

    pub(crate) fn proven(&self) -> Moment {
        *lock(&self.proven)
    }

    /// A deletion was sent, and its outcome is unknown.
    pub(crate) fn note_deleting(&self) {
        self.deleting.store(true, Ordering::Release);
    }

    /// If the node is gone: whether this client may have deleted it.
    pub(crate) fn may_be_deleted(&self) -> bool {
        self.deleting.load(Ordering::Acquire)
    }

    /// The folder is to be deleted with the node.
    pub(crate) fn note_folder_too(&self) {
        self.folder_too.store(true, Ordering::Release);
    }

    pub(crate) fn is_folder_too(&self) -> bool {
        self.folder_too.load(Ordering::Acquire)
    }

    fn watch(&self) -> MutexGuard<'_, Option<Shared<Event>>> {
        lock(&self.watch)
    }

    /// Keeps a watch that has been set on the node.
    ///
    /// The watch belongs to the node and not to a waiting task: dropping a watch costs a request, and the
    /// deletion of the node ends it without one.
    pub(crate) fn watched_by(&self, watcher: zk::OneshotWatcher) {
        let event: Event = Box::pin(watcher.changed());
        *self.watch() = Some(event.shared());
    }

    /// Whether a watch is set.
    pub(crate) fn is_watched(&self) -> bool {
        self.watch().is_some()
    }

    /// Keeps a watch on the folder until it fires, since dropping it costs a request, too.
    pub(crate) fn keep_watch(&self, event: Event) {
        *lock(&self.beside) = Some(event);
    }

    /// The next event of the node; `None` if no watch is set.
    pub(crate) async fn event(&self) -> Option<zk::WatchedEvent> {
        let watch = self.watch().clone()?;
        let event = watch.clone().await;
        let mut slot = self.watch();
        if slot.as_ref().is_some_and(|other| other.ptr_eq(&watch)) {
            *slot = None;
        }
        Some(event)
    }

    /// Notifies the next claim that it may be the first waiter, now that this claim holds its permit. If that
    /// fails, the waiter depends on its own timer.
    pub(crate) fn say_held(self: &Arc<Self>, claim: &Claim) {
        let (node, data) = (Arc::clone(self), Data::write(claim, true));
        // The request is sent at once, before a release.
        let mut saying = self.session.client.set_data(&self.path, &data, None).boxed();
        drop(SESSIONS.spawn(async move {
            let mut pauses = Backoff::new(Duration::from_millis(5), Duration::from_secs(1));
            while let Err(error) = node.session.bounded(saying).await {
                let is_answer = matches!(class_of(&error), ErrorClass::Refused | ErrorClass::SessionOver);
                if is_answer || node.session.is_over() {
                    return;
                }
                pauses.pause().await;
                saying = node.session.client.set_data(&node.path, &data, None).boxed();
            }
        }));
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The path contains the owner id.
        f.debug_struct("Node").field("lock", &self.lock).field("czxid", &self.czxid).finish_non_exhaustive()
    }
}
