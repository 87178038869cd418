//! Waits for the turn of a claim.
//!
//! Each waiter watches one node, which [`position`] chooses. The first of the waiting permits watches the folder, and
//! lists the queue when a child comes or goes; each one behind it watches the one before it, which leaves, or writes
//! that its turn has come. So a release wakes one, and that one wakes one more.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use lockcore::{Error, ErrorKind};
use zookeeper_client::{self as zk, EventType};

use crate::child::{Child, Data, Kind};
use crate::node::Node;
use crate::queue::{Position, Waiting, position};
use crate::waiter::Waiter;

/// Why a waiter has to stop.
pub(crate) enum Stop {
    /// It is unknown whether the last request was executed.
    Unanswered,
    /// The session is over, and with it the place in the queue.
    SessionOver,
    /// The claim does not get the lock, and waits no longer.
    NotNow,
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Which other nodes are before a waiter, beside the one that is watched.
enum Others {
    Nobody,
    /// Probably none. The queue is listed as soon as the watch is set.
    Hardly,
    /// Those before this node of our own process, which wants the lock alone, and is the one that is watched. When it has
    /// held the lock, they are gone.
    Before(Arc<Node>),
    Some,
}

/// How long to wait for an event before asking. Events are reliable; this is a fallback.
fn safety_poll() -> Duration {
    Duration::from_secs(5).mul_f64(1.0 + rand::random::<f64>())
}

impl Waiter<'_> {
    /// Waits. `true`: the turn has come; `false`: the queue must be listed again.
    ///
    /// An exclusive claim watches the last but one before it, and then the last. While it does the second, whoever holds
    /// the lock may give it back at once: so the watch is set and the queue is listed without waiting in between.
    pub(crate) async fn wait(&mut self, node: &Arc<Node>, waiting: &Waiting) -> Result<bool, Stop> {
        if self.session.is_over() {
            return Err(Stop::SessionOver);
        }
        self.claim.note_waiting();
        let Some(watch) = &waiting.watch else { return self.wait_for_any(node).await };
        let Some(last) = &waiting.last else {
            let others = if waiting.ahead == 1 { Others::Nobody } else { Others::Some };
            return self.wait_for(node, watch, others).await;
        };
        if let Some(ours) = self.ours(last).await {
            return self.wait_for(node, &last.name, Others::Before(ours)).await;
        }
        Ok(self.wait_for(node, watch, Others::Some).await?
            || self.wait_for(node, &last.name, Others::Hardly).await?)
    }

    /// The node of an exclusive claim of this process.
    async fn ours(&self, child: &Child) -> Option<Arc<Node>> {
        if child.kind != Kind::Exclusive {
            return None;
        }
        if let Some(node) = self.inner.node_of(child) {
            return Some(node);
        }
        // If it is new and of our session, the create of its claim has been answered before ours. That claim must note
        // it first.
        tokio::task::yield_now().await;
        self.inner.node_of(child)
    }

    /// Waits until the node `watch` leaves the queue, is a writer that lets readers in, or a permit whose turn has come.
    ///
    /// If its end can be our turn, a watch on our own node stands first. The server sends events in the order of what
    /// changes: so when the event comes that the other has left, and none that our own node is gone, then it was there
    /// at that moment. No request is needed, and a hand-over takes half a round trip. Data watches, since a watch on a
    /// missing node would stay behind.
    async fn wait_for(&mut self, node: &Arc<Node>, watch: &str, others: Others) -> Result<bool, Stop> {
        let (session, claim) = (Arc::clone(&self.session), self.claim);
        let client = &session.client;
        // All requests are sent before it waits for the first answer.
        let mut states = client.state_watcher();
        let own = (!matches!(others, Others::Some) && !node.is_watched())
            .then(|| client.get_and_watch_data(&node.path));
        let path = format!("{}/{watch}", self.folder);
        let other = client.get_and_watch_data(&path);
        let listing = matches!(others, Others::Hardly).then(|| client.list_children(&self.folder));
        if let Some(own) = own {
            match self.ask(own).await? {
                Some((_, stat, watcher)) if stat.ephemeral_owner == session.id() => node.watched_by(watcher),
                _ => return Err(taken()),
            }
        }
        // Whether it is lockwell's, as its data say, and when it leaves. One that has gone already is not known.
        let (known, leaving) = match self.ask(other).await? {
            Some((data, _, watcher)) => match Data::read(&data) {
                Data { reads: true, .. } if self.kind == Kind::Shared => return Ok(true),
                Data { holds: true, .. } => return Ok(false),
                Data { ttl, .. } => (ttl.is_some(), Some(watcher.changed())),
            },
            None => (false, None),
        };
        if let Some(listing) = listing {
            let queue = Child::queue(self.ask(listing).await?.unwrap_or_default());
            let alone = match position(&queue, node.name()) {
                Position::Waiting(waiting) => waiting.ahead == 1 && waiting.watch.as_deref() == Some(watch),
                _ => false,
            };
            if !alone || claim.is_wait_over() {
                self.listed = Some(queue);
                return Ok(false);
            }
        }
        if let Some(leaving) = leaving {
            let mut leaving = std::pin::pin!(leaving);
            let event = loop {
                tokio::select! {
                    biased;
                    Some(event) = node.event() => return self.after_own(node, &event).await,
                    event = &mut leaving => break event,
                    () = claim.wait_over() => return Err(Stop::NotNow),
                    () = tokio::time::sleep(safety_poll()) => {
                        // A permit whose turn came may have been unable to write so.
                        if matches!(self.kind, Kind::Permit(_)) || !self.both_there(node, &path).await? {
                            return Ok(false);
                        }
                    }
                }
            };
            match event.event_type {
                EventType::NodeDeleted => (),
                EventType::Session => return Err(Stop::SessionOver),
                _ => return Ok(false),
            }
        }
        if let Some(Some(event)) = node.event().now_or_never() {
            return self.after_own(node, &event).await;
        }
        if states.changed().now_or_never().is_some() {
            // After a reconnect the server tells what happened meanwhile, in no particular order.
            return Ok(false);
        }
        Ok(match others {
            // Nodes of lockwell come to the end of the queue only. A writer of Curator 5.5 that becomes a reader makes a
            // node with its own number before it deletes the first. So only the end of a node that is known to be
            // lockwell's tells that nobody is left.
            Others::Nobody | Others::Hardly => known,
            Others::Before(node) => node.was_held(),
            Others::Some => false,
        })
    }

    /// What an event of our own node means. A session that ends while this process is stopped takes its nodes along,
    /// and the server still tells of that on the old connection. So a question decides whether somebody deleted the
    /// node.
    async fn after_own(&self, node: &Node, event: &zk::WatchedEvent) -> Result<bool, Stop> {
        match event.event_type {
            EventType::NodeDeleted => {
                match self.ask(self.session.client.check_stat(&node.path)).await?.flatten() {
                    Some(_) => Ok(false),
                    None => Err(taken()),
                }
            }
            EventType::Session => Err(Stop::SessionOver),
            _ => Ok(false),
        }
    }

    /// Whether our node and this one are still in the queue with the same data.
    async fn both_there(&self, node: &Node, other: &str) -> Result<bool, Stop> {
        for path in [other, &node.path] {
            let stat = self.ask(self.session.client.check_stat(path)).await?.flatten();
            if stat.is_none_or(|stat| stat.version != 0) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits as the first of the waiting permits. The list and the watch are one request, so no node leaves unnoticed in
    /// between.
    async fn wait_for_any(&mut self, node: &Arc<Node>) -> Result<bool, Stop> {
        loop {
            let listing = self.session.client.list_and_watch_children(&self.folder);
            let Some((names, watcher)) = self.ask(listing).await? else { return Err(taken()) };
            let queue = Child::queue(names);
            let first = matches!(position(&queue, node.name()), Position::Waiting(it) if it.watch.is_none());
            let mut change = watcher.changed().boxed();
            if !first || self.claim.is_wait_over() {
                node.keep_watch(change);
                self.listed = Some(queue);
                return Ok(false);
            }
            tokio::select! {
                biased;
                _ = &mut change => (),
                () = self.claim.wait_over() => {
                    // The end of our own node fires it, too.
                    node.keep_watch(change);
                    return Err(Stop::NotNow);
                }
                () = tokio::time::sleep(safety_poll()) => node.keep_watch(change),
            }
            if self.session.is_over() {
                return Err(Stop::SessionOver);
            }
        }
    }
}

pub(crate) fn taken() -> Stop {
    Stop::Failed(Error::new(ErrorKind::NotHeld, "the claim was taken out of the queue"))
}
