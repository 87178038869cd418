//! Waiting for the turn.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use lockcore::{Error, ErrorKind, Moment, Result};
use zookeeper_client::{self as zk, EventType};

use crate::acquire::Acquire;
use crate::child::Kind;
use crate::error::{Fate, explain, fate};
use crate::node::{Node, says_reader};
use crate::patience::within;

/// How a wait ends.
pub(crate) enum Turn {
    /// The lock is ours since this moment.
    Mine(Moment),
    /// The writer before us has become a reader, and so the lock is ours, too.
    Joined,
    /// Something has changed: look at the queue again.
    Look,
    GivenUp,
    SessionOver,
}

/// How long to wait for an event before looking by ourselves. Events are reliable; this is for the day when one is not.
fn safety_poll() -> Duration {
    Duration::from_secs(5).mul_f64(1.0 + rand::random::<f64>())
}

/// Waits until one of the nodes `watch` leaves the queue, or is a writer that lets readers in.
///
/// If it is the last one before us, a watch on our own node stands first. The server sends events in the order of what
/// happened: so when the news comes that the other has left, and none that our own node is gone, then it was there at
/// that moment. No question is needed, and a hand-over takes one way. Data watches, since a watch on a missing node would
/// stay behind.
///
/// After a reconnect the server tells what happened meanwhile, in no particular order: then the queue is looked at.
pub(crate) async fn wait_for_turn(
    acquire: &Acquire<'_>,
    node: &Arc<Node>,
    watch: &[String],
    ahead: usize,
) -> Result<Turn> {
    let (session, client) = (&acquire.session, &acquire.session.client);
    if session.is_over() {
        return Ok(Turn::SessionOver);
    }
    let mut states = client.state_watcher();
    let bounded = |answer| within(acquire.shared, acquire.claim, session.bounded(answer));
    // All go out before the first answer is waited for.
    let asking_own = (ahead == 1 && !node.is_watched()).then(|| client.get_and_watch_data(&node.path));
    let asking: Vec<_> =
        watch.iter().map(|name| client.get_and_watch_data(&format!("{}/{name}", acquire.folder))).collect();
    if let Some(asking) = asking_own {
        match bounded(asking).await? {
            Ok((_, stat, _)) if stat.ephemeral_owner != session.id() => return Err(taken()),
            Ok((.., news)) => node.watched_by(news),
            Err(zk::Error::NoNode) => return Err(taken()),
            Err(error) => return failed(&error).await,
        }
    }
    let mut leaving = FuturesUnordered::new();
    let mut left = false;
    for asking in asking {
        match within(acquire.shared, acquire.claim, session.bounded(asking)).await? {
            Ok((data, ..)) if acquire.kind == Kind::Shared && says_reader(&data) => return Ok(Turn::Joined),
            Ok((.., news)) => leaving.push(news.changed()),
            Err(zk::Error::NoNode) => left = true,
            Err(error) => return failed(&error).await,
        }
    }
    let event = loop {
        if left {
            break None;
        }
        tokio::select! {
            biased;
            Some(event) = node.event() => return after_own(&event),
            event = leaving.next() => break event,
            () = acquire.claim.given_up() => return Ok(Turn::GivenUp),
            () = tokio::time::sleep(safety_poll()) => {
                if !all_there(acquire, node, watch).await? {
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
        _ if states.changed().now_or_never().is_some() => Turn::Look,
        Some(EventType::NodeDeleted) | None if ahead == 1 => Turn::Mine(Moment::now()),
        _ => Turn::Look,
    })
}

/// Whether we and all of these still stand in the queue and say what they said, as far as one can tell.
async fn all_there(acquire: &Acquire<'_>, node: &Node, watch: &[String]) -> Result<bool> {
    for name in watch.iter().map(String::as_str).chain([node.name()]) {
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

async fn failed(error: &zk::Error) -> Result<Turn> {
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
