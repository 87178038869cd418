//! Waiting for the turn.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lockcore::{Error, ErrorKind, Moment, Result};
use zookeeper_client::{self as zk, EventType};

use crate::acquire::Acquire;
use crate::child::{Child, Kind};
use crate::error::{Fate, explain, fate};
use crate::look::Look;
use crate::node::{Node, is_ours, says_held, says_reader};
use crate::patience::within;
use crate::permit::wait_for_any;
use crate::queue::{Place, Waiting, place};

/// How a wait ends.
pub(crate) enum Turn {
    /// The lock is ours since this moment.
    Mine(Moment),
    /// The writer before us has become a reader, and so the lock is ours, too.
    Joined,
    /// Something has changed: look at the queue again.
    Look,
    /// The same, and that has been done.
    Seen(Look),
    GivenUp,
    SessionOver,
}

/// How long to wait for an event before looking by ourselves. Events are reliable; this is for the day when one is not.
pub(crate) fn safety_poll() -> Duration {
    Duration::from_secs(5).mul_f64(1.0 + rand::random::<f64>())
}

/// What is known of those who stand before us beside the ones that are watched.
enum Rest {
    /// There are none.
    Nobody,
    /// They stand before this node of our own process, which wants the lock alone, and is the one that is watched. If it
    /// comes to hold the lock, they have gone by then.
    Before(Arc<Node>),
    /// Nothing: the queue must be looked at.
    Others,
}

impl Rest {
    /// Whether the end of what is watched can be our turn.
    fn can_be_over(&self) -> bool {
        !matches!(self, Self::Others)
    }
}

/// Waits for the turn, or until it is time to look at the queue.
pub(crate) async fn wait_for_turn(
    acquire: &Acquire<'_>,
    node: &Arc<Node>,
    waiting: &Waiting,
) -> Result<Turn> {
    if acquire.session.is_over() {
        return Ok(Turn::SessionOver);
    }
    let Some(watch) = &waiting.watch else { return wait_for_any(acquire, node).await };
    if waiting.ahead == 1 {
        return wait_for(acquire, node, watch, &Rest::Nobody).await;
    }
    let Some(last) = &waiting.last else {
        return wait_for(acquire, node, watch, &Rest::Others).await;
    };
    if let Some(ours) = ours(acquire, last).await {
        return wait_for(acquire, node, &last.name, &Rest::Before(ours)).await;
    }
    match wait_for(acquire, node, watch, &Rest::Others).await? {
        Turn::Look => wait_for_last(acquire, node, &last.name).await,
        turn => Ok(turn),
    }
}

/// The node of an exclusive claim of this process.
async fn ours(acquire: &Acquire<'_>, child: &Child) -> Option<Arc<Node>> {
    let find = || acquire.shared.table.find(child).filter(|_| child.kind == Kind::Exclusive);
    if let Some(node) = find() {
        return Some(node);
    }
    // If it is new and of our session, its maker has been answered before us. Let the maker note it.
    tokio::task::yield_now().await;
    find()
}

/// Waits until the node `watch` leaves the queue, is a writer that lets readers in, or a permit whose turn has come.
async fn wait_for(acquire: &Acquire<'_>, node: &Arc<Node>, watch: &str, rest: &Rest) -> Result<Turn> {
    match set_watches(acquire, node, watch, rest).await? {
        ControlFlow::Continue(watches) => watches.wait(acquire, node, watch, rest).await,
        ControlFlow::Break(turn) => Ok(turn),
    }
}

/// Watches the one who is probably the last before us, and looks at the queue, without waiting in between: whoever is
/// next may give the lock back at once. If nobody else is left, the end of that one is our turn.
async fn wait_for_last(acquire: &Acquire<'_>, node: &Arc<Node>, last: &str) -> Result<Turn> {
    let (watches, look) =
        tokio::join!(biased; set_watches(acquire, node, last, &Rest::Nobody), acquire.look());
    let (watches, Some(look)) = (watches?, look?) else { return Ok(Turn::SessionOver) };
    let alone = match place(&look.queue, node.name()) {
        Place::Waiting(waiting) => waiting.ahead == 1 && waiting.watch.as_deref() == Some(last),
        _ => false,
    };
    match watches {
        ControlFlow::Continue(watches) if alone && !acquire.claim.is_given_up() => {
            watches.wait(acquire, node, last, &Rest::Nobody).await
        }
        ControlFlow::Continue(_) | ControlFlow::Break(Turn::Look) => Ok(Turn::Seen(look)),
        ControlFlow::Break(turn) => Ok(turn),
    }
}

/// A watch on a node before us.
struct Watches {
    /// Changes of the connection since before they were set.
    states: zk::StateWatcher,
    /// `None` if the node was not there any more.
    leaving: Option<BoxFuture<'static, zk::WatchedEvent>>,
    /// The node is lockwell's, as its data say.
    ours: bool,
}

/// Sets the watches, and says what is to be done if that is not possible or not needed. All requests go out before the
/// first answer is waited for.
///
/// If its end can be our turn, a watch on our own node stands first. The server sends events in the order of what
/// happened: so when the news comes that the other has left, and none that our own node is gone, then it was there at
/// that moment. No question is needed, and a hand-over takes one way. Data watches, since a watch on a missing node would
/// stay behind.
async fn set_watches(
    acquire: &Acquire<'_>,
    node: &Arc<Node>,
    watch: &str,
    rest: &Rest,
) -> Result<ControlFlow<Turn, Watches>> {
    let (session, client) = (&acquire.session, &acquire.session.client);
    let states = client.state_watcher();
    let asking_own =
        (rest.can_be_over() && !node.is_watched()).then(|| client.get_and_watch_data(&node.path));
    let path = format!("{}/{watch}", acquire.folder);
    let asking = client.get_and_watch_data(&path);
    if let Some(asking) = asking_own {
        match within(acquire.shared, acquire.claim, session.bounded(asking)).await? {
            Ok((_, stat, _)) if stat.ephemeral_owner != session.id() => return Err(taken()),
            Ok((.., news)) => node.watched_by(news),
            Err(zk::Error::NoNode) => return Err(taken()),
            Err(error) => return failed(&error).await.map(ControlFlow::Break),
        }
    }
    let (ours, leaving) = match within(acquire.shared, acquire.claim, session.bounded(asking)).await? {
        Ok((data, ..)) if acquire.kind == Kind::Shared && says_reader(&data) => {
            return Ok(ControlFlow::Break(Turn::Joined));
        }
        Ok((data, ..)) if says_held(&data) => return Ok(ControlFlow::Break(Turn::Look)),
        Ok((data, _, news)) => (is_ours(&data), Some(news.changed().boxed())),
        Err(zk::Error::NoNode) => (false, None),
        Err(error) => return failed(&error).await.map(ControlFlow::Break),
    };
    Ok(ControlFlow::Continue(Watches { states, leaving, ours }))
}

impl Watches {
    /// Waits for the first of them.
    ///
    /// After a reconnect the server tells what happened meanwhile, in no particular order: then the queue is looked at.
    async fn wait(mut self, acquire: &Acquire<'_>, node: &Node, watch: &str, rest: &Rest) -> Result<Turn> {
        let event = loop {
            let Some(leaving) = &mut self.leaving else { break None };
            tokio::select! {
                biased;
                Some(event) = node.event() => return after_own(&event),
                event = leaving => break Some(event),
                () = acquire.claim.given_up() => return Ok(Turn::GivenUp),
                () = tokio::time::sleep(safety_poll()) => {
                    // A permit whose turn came need not have been able to say so.
                    if matches!(acquire.kind, Kind::Permit(_)) || !both_there(acquire, node, watch).await? {
                        return Ok(Turn::Look);
                    }
                }
            }
        };
        if let Some(Some(event)) = node.event().now_or_never() {
            return after_own(&event);
        }
        Ok(match event.map(|event| event.event_type) {
            Some(EventType::Session) => Turn::SessionOver,
            _ if self.states.changed().now_or_never().is_some() => Turn::Look,
            Some(EventType::NodeDeleted) | None if self.is_over(rest) => Turn::Mine(Moment::now()),
            _ => Turn::Look,
        })
    }

    /// Whether nobody is left before us now that the one who was watched has gone.
    ///
    /// Nodes of lockwell come to the end of the queue only. A writer of Curator 5.5 that becomes a reader makes a node with
    /// its own number before it deletes the first. So only the end of a node that is known to be lockwell's tells
    /// that nobody is left; one that has gone before it could be read is not known.
    fn is_over(&self, rest: &Rest) -> bool {
        match rest {
            Rest::Nobody => self.ours,
            Rest::Before(node) => node.was_held(),
            Rest::Others => false,
        }
    }
}

/// Whether we and this one still stand in the queue and say what we said, as far as one can tell.
async fn both_there(acquire: &Acquire<'_>, node: &Node, watch: &str) -> Result<bool> {
    for name in [watch, node.name()] {
        let asking = acquire.session.client.check_stat(&format!("{}/{name}", acquire.folder));
        let answer = within(acquire.shared, acquire.claim, acquire.session.bounded(asking)).await?;
        if !matches!(answer, Ok(Some(stat)) if stat.version == 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn after_own(event: &zk::WatchedEvent) -> Result<Turn> {
    match event.event_type {
        EventType::NodeDeleted => Err(taken()),
        EventType::Session => Ok(Turn::SessionOver),
        _ => Ok(Turn::Look),
    }
}

pub(crate) async fn failed(error: &zk::Error) -> Result<Turn> {
    match fate(error) {
        Fate::SessionOver => Ok(Turn::SessionOver),
        Fate::Refused => Err(explain(error)),
        Fate::Unknown => {
            tokio::time::sleep(Duration::from_millis(5)).await;
            Ok(Turn::Look)
        }
    }
}

fn taken() -> Error {
    Error::new(ErrorKind::NotHeld, "the claim was taken out of the queue")
}
