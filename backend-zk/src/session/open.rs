//! Opens a session, and sends its heartbeats.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use lockwell_core::{Moment, Result};
use tokio::sync::{Notify, Semaphore};
use zookeeper_client::{SessionState, StateWatcher};

use super::connect::connect_for_long;
use super::limits::Known;
use super::negotiated::ask_after_moves;
use super::nodelay::set_on_connections;
use super::runtime::SESSIONS;
use super::validity::Validity;
use super::{BEATS, Session};
use crate::error::no_answer;
use crate::options::ZkOptions;

/// The most acquires of one session that are under way at a time. The queue of the client crate is unbounded.
///
/// An acquire is two requests. With more than a thousand requests under way, a server stops reading from the
/// connection until it has answered all of them (its setting `globalOutstandingLimit`), and then has nothing
/// to do for the time of a round trip.
const UNDER_WAY: usize = 256;

/// The most heartbeats that are under way at a time.
const BEATS_UNDER_WAY: usize = 8;

/// Opens a session, and starts the tasks that look after it.
pub(crate) async fn open(
    options: &Arc<ZkOptions>,
    timeout: Duration,
    known: &Arc<Known>,
) -> Result<Arc<Session>> {
    let (asked, client) = connect_for_long(options, timeout).await?;
    // A change of the state from now on is a move, after which the servers are asked again.
    let mut states = client.state_watcher();
    states.state();
    let asking = tokio::time::timeout(options.timeout, known.ask(options, &client));
    let limits = asking.await.unwrap_or(Ok(None))?.ok_or_else(no_answer)?;
    let opened = Moment::now();
    let timeout = client.session_timeout();
    let validity = Validity::new(timeout, limits.granted, limits.lag(), (asked, opened))
        .in_ensemble(limits.lag_of_ensemble());
    let session = Arc::new(Session {
        under_way: Semaphore::new(UNDER_WAY),
        turns_ended: AtomicU64::new(0),
        options: Arc::clone(options),
        known: Arc::clone(known),
        validity: Mutex::new((states.clone(), validity)),
        stalled: Notify::new(),
        bytes: AtomicUsize::new(0),
        beats: AtomicUsize::new(0),
        used: Mutex::new(opened),
        mark: Mutex::default(),
        client,
    });
    drop(SESSIONS.spawn(beat(Arc::downgrade(&session), states.clone())));
    drop(SESSIONS.spawn(set_on_connections(Arc::downgrade(&session), states.clone())));
    drop(SESSIONS.spawn(ask_after_moves(Arc::downgrade(&session), states, timeout)));
    tracing::debug!(lockwell.session = %session.client.session_id(), lockwell.timeout = ?timeout, "session opened");
    Ok(session)
}

/// Sends a heartbeat whenever there was no request for a while. The client crate does so, too, but does not
/// report the answers. A heartbeat does not wait for the answer to the last one; otherwise they would be rare
/// on a slow network. A new connection gets one at once, since its server may have granted a shorter timeout.
async fn beat(beating: Weak<Session>, mut states: StateWatcher) {
    let mut under_way = FuturesUnordered::new();
    // When the last heartbeat was sent. A new connection has had none.
    let mut last = Some(Moment::now());
    loop {
        let Some(session) = beating.upgrade() else { return };
        // On a slow network some heartbeat is always under way. They must not keep a session that nobody has.
        if session.users() <= 1 {
            return;
        }
        let (timeout, heard) = (session.timeout(), session.heard());
        if session.validity().1.is_silent() {
            session.stalled.notify_waiters();
        }
        let state = session.client.state();
        if state.is_terminated() {
            return;
        }
        let now = Moment::now();
        let due = last.map_or(now, |last| last.max(heard).after(timeout / BEATS));
        // While there is no connection, requests would pile up.
        let beats = state == SessionState::SyncConnected && under_way.len() < BEATS_UNDER_WAY;
        let pause = if due > now { due.since(now) } else { timeout / BEATS };
        if due <= now && beats && !session.is_over() {
            last = Some(now);
            session.beats.fetch_add(1, Ordering::Relaxed);
            under_way.push(async move {
                let answer = session.beat().await;
                session.beats.fetch_sub(1, Ordering::Relaxed);
                answer
            });
        } else {
            drop(session);
        }
        let mut pause = std::pin::pin!(tokio::time::sleep(pause));
        loop {
            tokio::select! {
                () = &mut pause => break,
                state = states.changed() => {
                    if state == SessionState::SyncConnected {
                        last = None;
                    }
                    break;
                }
                Some(answer) = under_way.next() => {
                    if let Err(error) = answer {
                        tracing::info!(%error, "a heartbeat was not answered");
                    }
                }
            }
        }
    }
}
