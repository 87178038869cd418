//! Proving that grants still stand, in few requests.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::join_all;
use lockcore::{Error, ErrorKind, Grant, Moment, Renewal, Result};
use zookeeper_client::{self as zk, EventType};

use crate::error::{Fate, explain, fate};
use crate::node::Node;
use crate::session::Session;
use crate::shared::Shared;

/// What is known of a node.
enum State {
    /// It is there, and ours.
    There,
    Gone,
    /// Nobody knows, for this reason.
    Unknown(zk::Error),
}

/// One sign of life for each session is one for all of its grants. It also brings our server up to
/// date, so that the news of all that happened before comes ahead of its answer: a node that is watched, and of which
/// no news has come by then, is there. Only the nodes without a watch are asked for by name.
///
/// Sessions are waited for side by side: one that is silent until `until` does not take the answers of the others with it.
pub(crate) async fn renew(shared: &Arc<Shared>, grants: &[Grant], until: Moment) -> Vec<Renewal> {
    let sent = Moment::now();
    let mut sessions: HashMap<i64, &Arc<Session>> = HashMap::new();
    for node in grants.iter().filter_map(Grant::record::<Node>) {
        sessions.entry(node.session.id()).or_insert(&node.session);
    }
    // All go out before the first answer is waited for.
    let confirming: Vec<_> = sessions.values().map(|it| (it.id(), it.sign())).collect();
    let asking: Vec<_> = grants
        .iter()
        .map(|grant| {
            let node = grant.record::<Node>().filter(|node| !node.is_watched())?;
            Some(node.session.client.check_stat(&node.path))
        })
        .collect();
    let alive: HashMap<i64, _> = confirming
        .into_iter()
        // All grants of the session wait for it.
        .map(|(id, answer)| (id, by(until, answer).boxed().shared()))
        .collect();
    let renewals = grants.iter().zip(asking).map(async |(grant, asked)| {
        let Some(node) = grant.record::<Node>() else {
            let text = "the lock was granted through another client, whose session keeps it";
            return Renewal::Unknown(Error::new(ErrorKind::Unsupported, text));
        };
        let state = match (alive[&node.session.id()].clone().await, asked) {
            (Err(error), _) => told(node, Err(error)),
            (Ok(()), Some(asked)) => told(node, by(until, asked).await),
            (Ok(()), None) => heard(node, until).await,
        };
        match state {
            State::There => shared.lease(grant.claim(), node, sent).map_or(Renewal::Lost, Renewal::Renewed),
            State::Gone => Renewal::Lost,
            State::Unknown(error) => Renewal::Unknown(explain(&error)),
        }
    });
    join_all(renewals).await
}

/// Waits for an answer until then.
async fn by<T>(until: Moment, answer: impl Future<Output = Result<T, zk::Error>>) -> Result<T, zk::Error> {
    tokio::time::timeout(until.remaining(), answer).await.unwrap_or(Err(zk::Error::Timeout))
}

/// What the watch on the node has brought.
async fn heard(node: &Node, until: Moment) -> State {
    match node.event().now_or_never() {
        None => State::There,
        Some(Some(event)) if matches!(event.event_type, EventType::NodeDeleted | EventType::Session) => {
            State::Gone
        }
        // Its data changed, or the watch went to somebody who sets a new one.
        Some(_) => told(node, by(until, node.session.client.check_stat(&node.path)).await),
    }
}

/// What the server has answered.
fn told(node: &Node, answer: Result<Option<zk::Stat>, zk::Error>) -> State {
    match answer {
        Ok(Some(stat)) if stat.ephemeral_owner == node.session.id() && stat.czxid == node.czxid => {
            State::There
        }
        Ok(_) => State::Gone,
        Err(error) if fate(&error) == Fate::SessionOver => State::Gone,
        Err(error) => State::Unknown(error),
    }
}
