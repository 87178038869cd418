//! Waits for the turn of a claim.
//!
//! Each waiter watches one node, which [`position`] chooses. The first waiting permit watches the folder, and
//! lists the queue when a node is added or deleted. Each other waiting permit watches the node before it,
//! which is deleted, or says in its data that its turn has come. So a release wakes one waiter, and that
//! waiter wakes one more.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use zookeeper_client::{self as zk, EventType};

use crate::queue::child::{Child, Data, Kind};
use crate::queue::node::Node;
use crate::queue::position::{Position, Waiting, position};
use crate::queue::stop::Stop;
use crate::queue::waiter::NodeWaiter;

/// Which nodes are before a waiter, in addition to the watched one.
enum Others {
    Nobody,
    /// Probably none. The queue is listed as soon as the watch is set.
    Hardly,
    /// The nodes before the watched one, which belongs to an exclusive claim of this process. When that claim
    /// has held the lock, they are gone.
    Before(Arc<Node>),
    Some,
}

/// How long to wait for an event before a request checks the node. Events are reliable; this is a fallback.
fn safety_poll() -> Duration {
    Duration::from_secs(5).mul_f64(1.0 + rand::random::<f64>())
}

impl NodeWaiter<'_> {
    /// Waits for the turn. `true`: it has come; `false`: the queue must be listed again.
    ///
    /// An exclusive claim watches the second node before it, and then the node directly before it. That node
    /// may be deleted at any moment, so the request for the watch and the request for the list are sent
    /// together.
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
        // If the node is new and of the same session, the answer to its create came before the answer to
        // ours. The other claim must record its node first.
        tokio::task::yield_now().await;
        self.inner.node_of(child)
    }

    /// Whether a node has the name of a claim like this one.
    fn is_for(&self, name: &str) -> bool {
        Child::parse(name.to_owned()).is_some_and(|child| child.kind == self.kind)
    }

    /// Waits until the node `watch` is deleted, is a writer that has become a reader, or is a permit of this
    /// semaphore whose turn has come.
    ///
    /// If its deletion can begin our turn, a watch on our own node is set first. The server sends events in
    /// the order of the changes. So if the event of that deletion comes, and no event that our own node is
    /// gone, our node existed at that moment. No request is needed, and the hand-over takes half a round
    /// trip. These are data watches, since an existence watch on a missing node would stay at the server.
    async fn wait_for(&mut self, node: &Arc<Node>, watch: &str, others: Others) -> Result<bool, Stop> {
        let (session, claim) = (Arc::clone(&self.session), self.claim);
        let client = &session.client;
        // All requests are sent before the wait for the first answer.
        let mut states = client.state_watcher();
        let own = (!matches!(others, Others::Some) && !node.is_watched())
            .then(|| client.get_and_watch_data(&node.path));
        let path = format!("{}/{watch}", self.folder);
        let other = client.get_and_watch_data(&path);
        let listing = matches!(others, Others::Hardly).then(|| client.list_children(&self.folder));
        if let Some(own) = own {
            match self.ask(own).await? {
                Some((_, stat, watcher)) if stat.ephemeral_owner == session.id() => node.watched_by(watcher),
                _ => return Err(Stop::Taken),
            }
        }
        // Whether the node is lockwell's, according to its data, and when it is deleted. Of a node that is
        // gone already, this is unknown.
        let (known, leaving) = match self.ask(other).await? {
            Some((data, _, watcher)) => match Data::read(&data) {
                Data { reads: true, .. } if self.kind == Kind::Shared => return Ok(true),
                // Of another kind it is waited for until it leaves.
                Data { holds: true, .. } if self.is_for(watch) => return Ok(false),
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
                        // The write of a permit whose turn has come may have failed.
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
            // After a reconnect the server sends the events of the meantime in no particular order.
            return Ok(false);
        }
        Ok(match others {
            // Nodes of lockwell are added at the end of the queue only. A writer of Curator 5.5 that becomes
            // a reader creates a second node with its own number before it deletes the first one. So only the
            // deletion of a node that is known to be lockwell's proves that no node is left before ours.
            Others::Nobody | Others::Hardly => known,
            Others::Before(node) => node.was_held(),
            Others::Some => false,
        })
    }

    /// Interprets an event of our own node. If a session ends while this process is stopped, its nodes are
    /// deleted, and the server still sends these events on the old connection. So a request checks whether
    /// someone deleted the node.
    async fn after_own(&self, node: &Node, event: &zk::WatchedEvent) -> Result<bool, Stop> {
        match event.event_type {
            EventType::NodeDeleted => {
                match self.ask(self.session.client.check_stat(&node.path)).await?.flatten() {
                    Some(_) => Ok(false),
                    None => Err(Stop::Taken),
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

    /// Waits as the first of the waiting permits. One request lists the queue and sets the watch, so no
    /// change is missed in between.
    async fn wait_for_any(&mut self, node: &Arc<Node>) -> Result<bool, Stop> {
        loop {
            let listing = self.session.client.list_and_watch_children(&self.folder);
            let Some((names, watcher)) = self.ask(listing).await? else { return Err(Stop::Taken) };
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
                    // The deletion of our own node fires it, too.
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
