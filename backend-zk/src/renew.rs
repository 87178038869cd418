//! Proving that grants still stand, in few requests.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::FutureExt;
use lockcore::{Error, ErrorKind, Grant, Moment, Renewal, Result};
use zookeeper_client::{self as zk, EventType};

use crate::error::{Fate, explain, fate};
use crate::node::Node;
use crate::session::Session;
use crate::shared::Shared;

/// What is known of a node.
enum Word {
    /// It is there, and ours.
    There,
    Gone,
    /// Nobody knows, for this reason.
    Unknown(zk::Error),
}

/// One question to the leader for each session is a sign of life for all of its grants. It also brings our server up to
/// date, so that the news of all that happened before comes ahead of its answer: a node that is watched, and of which
/// no news has come by then, is there. Only the nodes without a watch are asked for by name.
pub(crate) async fn renew(shared: &Arc<Shared>, grants: &[Grant]) -> Vec<Renewal> {
    let sent = Moment::now();
    let mut sessions: HashMap<i64, &Arc<Session>> = HashMap::new();
    for node in grants.iter().filter_map(Grant::record::<Node>) {
        sessions.entry(node.session.id()).or_insert(&node.session);
    }
    let root = if shared.options.base.is_empty() { "/" } else { &shared.options.base };
    // All go out before the first answer is waited for.
    let confirming: Vec<_> = sessions.values().map(|it| (it.id(), it.client.sync(root))).collect();
    let asking: Vec<_> = grants
        .iter()
        .map(|grant| {
            let node = grant.record::<Node>().filter(|node| !node.is_watched())?;
            Some(node.session.client.check_stat(&node.path))
        })
        .collect();
    let mut alive: HashMap<i64, Result<(), zk::Error>> = HashMap::new();
    for (id, answer) in confirming {
        let answer = answer.await;
        if answer.is_ok() {
            sessions[&id].answered(sent);
        }
        alive.insert(id, answer);
    }
    let mut renewals = Vec::with_capacity(grants.len());
    for (grant, asked) in grants.iter().zip(asking) {
        let Some(node) = grant.record::<Node>() else {
            let text = "the lock was granted through another client, whose session keeps it";
            renewals.push(Renewal::Unknown(Error::new(ErrorKind::Unsupported, text)));
            continue;
        };
        let word = match (&alive[&node.session.id()], asked) {
            (Err(error), _) => told(node, Err(error.clone())),
            (Ok(()), Some(asked)) => told(node, asked.await),
            (Ok(()), None) => heard(node).await,
        };
        renewals.push(match word {
            Word::There => shared.lease(grant.claim(), node, sent).map_or(Renewal::Lost, Renewal::Renewed),
            Word::Gone => Renewal::Lost,
            Word::Unknown(error) => Renewal::Unknown(explain(&error)),
        });
    }
    renewals
}

/// What the watch on the node has brought.
async fn heard(node: &Node) -> Word {
    match node.event().now_or_never() {
        None => Word::There,
        Some(Some(event)) if matches!(event.event_type, EventType::NodeDeleted | EventType::Session) => {
            Word::Gone
        }
        // Its data changed, or the watch went to somebody who sets a new one.
        Some(_) => told(node, node.session.bounded(node.session.client.check_stat(&node.path)).await),
    }
}

/// What the server has answered.
fn told(node: &Node, answer: Result<Option<zk::Stat>, zk::Error>) -> Word {
    match answer {
        Ok(Some(stat)) if stat.ephemeral_owner == node.session.id() && stat.czxid == node.czxid => {
            Word::There
        }
        Ok(_) => Word::Gone,
        Err(error) if fate(&error) == Fate::SessionOver => Word::Gone,
        Err(error) => Word::Unknown(error),
    }
}
