//! The timeout that the servers grant to a session that has moved.
//!
//! A server that takes a session over may grant it less time than the one before, if its `maxSessionTimeout` is smaller.
//! The client crate does not tell. So at first, where there are several servers, and after each new connection, a short
//! session to every address asks for the same time: the least answer is what the session may have. A server that does not
//! answer keeps its last answer. So a restart of all servers, one soon after the other, costs no lock that is long enough.
//!
//! What remains: a server that has been set up anew since it was asked, takes the session over, and is lost before it is
//! asked again.

use std::collections::BTreeMap;
use std::sync::Weak;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use lockcore::Moment;
use lockcore::backend::note_reconnection;
use tokio::net::lookup_host;
use zookeeper_client::{SessionState, StateWatcher};

use crate::connect::connect;
use crate::lock::BACKEND;
use crate::options::Options;
use crate::session::Session;

/// How long to wait for a server that has answered earlier, or when another has answered.
const LIMIT: Duration = Duration::from_secs(1);

/// The most addresses that are asked.
const ADDRESSES: usize = 32;

/// Asks the servers whenever another connection has taken the session over.
pub(crate) async fn ask_after_moves(session: Weak<Session>, mut states: StateWatcher, timeout: Duration) {
    let mut answers = BTreeMap::new();
    if let Some(asking) = session.upgrade().filter(|session| !session.lag.is_zero())
        && let Some(least) = ask(&asking.options, timeout, &mut answers).await
    {
        asking.know(least);
    }
    loop {
        let state = states.changed().await;
        if state.is_terminated() {
            return;
        }
        if state == SessionState::SyncConnected {
            note_reconnection(BACKEND);
        }
        while states.peek_state() == SessionState::SyncConnected {
            let Some(asking) = session.upgrade() else { return };
            let moves = asking.moves();
            let of_all = ask(&asking.options, timeout, &mut answers).await;
            let Some(least) = answers.values().min() else {
                // Nobody has ever answered, though we are connected.
                tokio::time::sleep(LIMIT / 4).await;
                continue;
            };
            asking.granted(moves, *least);
            if let Some(least) = of_all {
                asking.know(least);
            }
            if *least < timeout {
                tracing::warn!(?timeout, granted = ?least, "a server grants shorter sessions than another");
            }
            break;
        }
    }
}

/// The timeout that each address grants to a session that asks for this one. Returns the least, if all have answered,
/// now or earlier.
async fn ask(
    options: &Options,
    timeout: Duration,
    answers: &mut BTreeMap<String, Duration>,
) -> Option<Duration> {
    let places = addresses(options).await;
    answers.retain(|address, _| places.contains(address));
    let mut asking: FuturesUnordered<_> = places
        .iter()
        .map(async |address| {
            let client = connect(options, address, timeout, options.timeout).await.ok()?;
            Some((address, client.session_timeout()))
        })
        .collect();
    let end = Moment::now().after(LIMIT);
    loop {
        let next = asking.next();
        let answered = if answers.is_empty() {
            next.await
        } else {
            tokio::time::timeout(end.remaining(), next).await.unwrap_or(None)
        };
        let Some(answer) = answered else { break };
        answers.extend(answer.map(|(address, timeout)| (address.clone(), timeout)));
    }
    let all: Option<Vec<_>> = places.iter().map(|address| answers.get(address).copied()).collect();
    all?.into_iter().min()
}

/// Each address for itself. With TLS a server goes by its name, of which any address answers.
async fn addresses(options: &Options) -> Vec<String> {
    if options.tls.is_some() {
        return options.servers.split(',').map(str::to_owned).collect();
    }
    let finding = options.hosts.iter().map(async |host| {
        let found = tokio::time::timeout(LIMIT, lookup_host((host.name.as_str(), host.port))).await;
        found.ok()?.ok().map(|found| found.map(|address| address.to_string()).collect::<Vec<_>>())
    });
    let mut all: Vec<String> = join_all(finding).await.into_iter().flatten().flatten().collect();
    all.sort();
    all.dedup();
    all.truncate(ADDRESSES);
    all
}
