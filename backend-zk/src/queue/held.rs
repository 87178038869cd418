//! Held locks: renewal, notification of a loss, and the downgrade from writer to reader.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use lockwell_core::backend::Backoff;
use lockwell_core::{Error, ErrorKind, Grant, Moment, Renewal, Result};
use zookeeper_client::{self as zk, EventType};

use crate::client::ClientInner;
use crate::error::{ErrorClass, class_of, explain};
use crate::queue::child::Data;
use crate::queue::node::Node;
use crate::session::Session;

pub(crate) fn of_another_client() -> Error {
    Error::new(ErrorKind::Unsupported, "the lock was granted through another client, whose session keeps it")
}

/// Proves that grants are still valid.
///
/// One heartbeat of a session proves all of its grants. It also makes the server apply all earlier changes,
/// so their events arrive before its answer: if no event about a watched node has arrived by then, the node
/// exists. Only nodes without a watch are requested by name. A session sends heartbeats all the time, and the
/// last one proves each grant that was proven by an older one. Then no request is needed, however many locks
/// there are. In an ensemble a heartbeat extends the session's time only if an earlier one is old enough
/// (see `validity.rs`). One soon after a grant may not, and then another one is sent.
///
/// This waits for all sessions at the same time. It does not wait until `until` for a silent session: the
/// answers for the other sessions would be so late that their locks would be in doubt, too.
pub(crate) async fn renew(inner: &Arc<ClientInner>, grants: &[Grant], until: Moment) -> Vec<Renewal> {
    // The last answered heartbeat of each session.
    let mut recent: HashMap<i64, Option<Moment>> = HashMap::new();
    for node in grants.iter().filter_map(|grant| grant.record::<Node>()) {
        recent.entry(node.session.id()).or_insert_with(|| node.session.recent_sign());
    }
    let several = recent.len() > 1;
    let (now, soon) = (Moment::now(), Moment::now().after(until.remaining() * 2 / 5));
    let end = |session: &Session| {
        let silent = |sent| now.since(sent) > session.timeout() / 4;
        if several && recent[&session.id()].is_none_or(silent) { soon } else { until }
    };
    // A grant that is newer than the last heartbeat, or already lasts as long as the session, needs a new
    // one; the others do not wait for it. All new heartbeats are sent before the wait for the first answer.
    let mut signs = HashMap::new();
    let served: Vec<_> = grants
        .iter()
        .map(|grant| {
            let node = grant.record::<Node>()?;
            let session = &node.session;
            let extends = |sent: &Moment| *sent > node.proven() && session.deadline() > grant.deadline();
            let served = recent[&session.id()].filter(extends);
            if served.is_none() {
                signs
                    .entry(session.id())
                    .or_insert_with(|| by(end(session), session.sign()).boxed().shared());
            }
            served
        })
        .collect();
    let asking: Vec<_> = grants
        .iter()
        .map(|grant| {
            let node = grant.record::<Node>().filter(|node| !node.is_watched())?;
            Some(node.session.client.check_stat(&node.path))
        })
        .collect();
    let renewals = grants.iter().zip(asking).zip(served).map(async |((grant, asked), served)| {
        let Some(node) = grant.record::<Node>() else { return Renewal::Unknown(of_another_client()) };
        let proven = async {
            let sent = match served {
                Some(sent) => sent,
                None => signs[&node.session.id()].clone().await?,
            };
            let there = match asked {
                Some(asked) => by(end(&node.session), asked).await?.is_some_and(|stat| node.is(&stat)),
                None => is_there(node, end(&node.session)).await?,
            };
            Ok(there.then_some(sent))
        };
        match proven.await {
            Ok(Some(sent)) => inner.lease(grant.claim(), node, sent).map_or(Renewal::Lost, Renewal::Renewed),
            Ok(None) => Renewal::Lost,
            Err(error) if class_of(&error) == ErrorClass::SessionOver => Renewal::Lost,
            Err(error) => Renewal::Unknown(explain(&error)),
        }
    });
    join_all(renewals).await
}

/// Waits for an answer until this moment.
async fn by<T>(until: Moment, answer: impl Future<Output = Result<T, zk::Error>>) -> Result<T, zk::Error> {
    tokio::time::timeout(until.remaining(), answer).await.unwrap_or(Err(zk::Error::Timeout))
}

/// The event of the watch on the node.
async fn is_there(node: &Node, until: Moment) -> Result<bool, zk::Error> {
    match node.event().now_or_never() {
        None => Ok(true),
        Some(Some(event)) if is_end(&event) => Ok(false),
        // The data of the node changed, or another task took the watch and sets a new one.
        Some(_) => {
            let stat = by(until, node.session.client.check_stat(&node.path)).await?;
            Ok(stat.is_some_and(|stat| node.is(&stat)))
        }
    }
}

fn is_end(event: &zk::WatchedEvent) -> bool {
    matches!(event.event_type, EventType::NodeDeleted | EventType::Session)
}

/// Resolves when the server reports that the node is gone.
///
/// If no watch was set while the claim waited, it is set only after some time, so that locks which are held
/// for a short time do not need it.
pub(crate) async fn gone(node: &Node) {
    let pause = (node.session.timeout() / 8).min(Duration::from_millis(250));
    loop {
        if let Some(event) = node.event().await {
            if is_end(&event) {
                return;
            }
            continue;
        }
        tokio::time::sleep(pause).await;
        match node.session.client.get_and_watch_data(&node.path).await {
            Ok((_, stat, watcher)) if node.is(&stat) => node.watched_by(watcher),
            Ok(_) | Err(zk::Error::NoNode) => return,
            Err(error) if class_of(&error) == ErrorClass::SessionOver => return,
            Err(_) => (),
        }
    }
}

/// Turns a writer into a reader.
///
/// The node stays, and with it the token, the session and the place in the queue. Only its data change. A
/// writer that holds the lock is the first in the queue. So if the last writer before a reader has become a
/// reader, no other writer is before that reader, and it holds the lock, too. A writer waits for all nodes
/// before it, as usual. Clients of other libraries do not know the meaning of the data, so they wait longer
/// than necessary.
///
/// The downgrade is idempotent, so it is repeated until there is an answer.
pub(crate) async fn downgrade(inner: &ClientInner, grant: &Grant) -> Result<Grant> {
    let node = grant.record::<Node>().ok_or_else(of_another_client)?;
    let reader = grant.downgraded();
    let (session, data) = (&node.session, Data::write(reader.claim(), false));
    let mut pauses = Backoff::new(Duration::from_millis(4), Duration::from_secs(1));
    // A claim that is being released holds nothing any more, even if its node still exists.
    while inner.leases.get(grant.claim().owner()).is_some() {
        match session.bounded(session.client.set_data(&node.path, &data, None)).await {
            Ok(stat) if node.is(&stat) => return Ok(reader),
            Ok(_) | Err(zk::Error::NoNode) => break,
            Err(error) => match class_of(&error) {
                ErrorClass::SessionOver => break,
                ErrorClass::Refused => return Err(explain(&error)),
                ErrorClass::Throttled | ErrorClass::Unknown => pauses.pause().await,
            },
        }
    }
    Err(Error::new(ErrorKind::Lost, "the lock was lost before the downgrade"))
}
