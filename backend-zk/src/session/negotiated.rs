//! What a session has to ask when it has moved: whether its new server is a member of an ensemble, and the
//! timeout that the servers grant.
//!
//! A server that takes a session over may grant it less time than the one before, if its `maxSessionTimeout`
//! is smaller. The client crate does not report that. So if there are several servers, a short session to
//! every address requests the same timeout, some seconds after the start and after each new connection. The
//! shortest answer is the timeout that counts. For a server that does not answer, its last answer counts. So
//! if all servers are restarted one soon after the other, no lock with a sufficient lease is lost.
//!
//! One case is not covered: the settings of a server change after its last answer, it takes the session over,
//! and it fails before the next request.

use std::collections::BTreeMap;
use std::sync::Weak;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use lockwell_core::Moment;
use lockwell_core::backend::note_reconnection;
use zookeeper_client::{SessionState, StateWatcher};

use crate::names::BACKEND;
use crate::options::ZkOptions;
use crate::session::Session;
use crate::session::connect::connect;
use crate::session::limits::Limits;
use crate::session::places::{Places, addresses};

/// How long to wait for a server that has answered earlier, or after another server has answered.
const LIMIT: Duration = Duration::from_secs(1);

/// When to ask the servers for the first time, if the session does not move before. Short programs need no
/// answer. A session that moves before it has one counts as one of the shortest timeout, until a server
/// answers.
const SETTLED: Duration = Duration::from_millis(500);

/// The largest number of addresses that get a request.
const ADDRESSES: usize = 32;

/// Requests the timeouts of all servers whenever another connection has taken the session over.
pub(crate) async fn ask_after_moves(session: Weak<Session>, mut states: StateWatcher, timeout: Duration) {
    let mut answers = BTreeMap::new();
    let (mut first, mut in_time) = (true, Box::pin(tokio::time::sleep(SETTLED)));
    loop {
        let state = tokio::select! {
            state = states.changed() => state,
            () = &mut in_time, if first => {
                let Some(asking) = session.upgrade() else { return };
                if asking.is_in_use() {
                    first = false;
                    if !asking.lag().is_zero() {
                        if let Some(least) = ask(&asking.options, timeout, &mut answers).await {
                            asking.know(least);
                        }
                    }
                } else {
                    in_time.as_mut().reset(tokio::time::Instant::now() + SETTLED);
                }
                continue;
            }
        };
        if state.is_terminated() {
            return;
        }
        if state == SessionState::SyncConnected {
            note_reconnection(BACKEND);
        }
        while states.peek_state() == SessionState::SyncConnected {
            first = false;
            let Some(asking) = session.upgrade() else { return };
            let moves = asking.moves();
            if !ask_kind(&asking, moves).await {
                drop(asking);
                tokio::time::sleep(LIMIT / 4).await;
                continue;
            }
            let of_all = ask(&asking.options, timeout, &mut answers).await;
            let Some(least) = answers.values().min() else {
                // No server has ever answered, although the session is connected.
                tokio::time::sleep(LIMIT / 4).await;
                continue;
            };
            asking.granted(moves, *least);
            if let Some(least) = of_all {
                asking.know(least);
            }
            if *least < timeout {
                tracing::warn!(lockwell.timeout = ?timeout, lockwell.granted = ?least, "a server grants shorter sessions than another");
            }
            break;
        }
    }
}

/// Asks what the server is that has the session after this number of moves. `false`: there is no answer.
async fn ask_kind(session: &Session, moves: u64) -> bool {
    let asking = async { Ok(session.known.ask(&session.options, &session.client).await) };
    match session.bounded(asking).await {
        Ok(Ok(Some(limits))) => session.served_by(moves, limits),
        Ok(Err(error)) => {
            // New sessions are refused. Locks that are held know their deadlines.
            tracing::warn!(error = format!("{error:#}"), "the servers have become an ensemble");
            session.served_by(moves, Limits { ensemble: true, ..session.known.get() });
        }
        Ok(Ok(None)) | Err(_) => return false,
    }
    true
}

/// Requests this timeout at each address. Returns the shortest timeout that was granted, if all addresses
/// have answered, now or earlier.
async fn ask(
    options: &ZkOptions,
    timeout: Duration,
    answers: &mut BTreeMap<String, Duration>,
) -> Option<Duration> {
    let places = places(options).await;
    answers.retain(|address, _| places.contains(address));
    let mut asking: FuturesUnordered<_> = places
        .iter()
        .map(async |address| {
            let client = connect(options, Places::one(address.clone()), timeout).await.ok()?;
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

/// Each address separately. With TLS the host name is needed, and any address of that name may answer.
async fn places(options: &ZkOptions) -> Vec<String> {
    if options.tls.is_some() {
        return options.servers.split(',').map(str::to_owned).collect();
    }
    let found = addresses(&options.hosts).await;
    let mut all: Vec<String> = found.iter().map(ToString::to_string).collect();
    all.sort();
    all.dedup();
    all.truncate(ADDRESSES);
    all
}
