//! The sessions of one client.
//!
//! In ZooKeeper a lease depends on a session, whose timeout is fixed when the session is made. A lock with a
//! lease of a second must be free a second after a `kill -9`, and a lock with a lease of a minute must
//! survive an outage of half a minute. So the timeout of a session follows the lease. The possible timeouts
//! begin with the shortest that the servers allow; each is a quarter longer than the one before, up to the
//! longest. A claim uses the longest timeout that is not above its lease. Applications usually use one lease
//! or two. In any case the number of timeouts is bounded by the logarithm of their range. Unused sessions are
//! closed, except the last.
//!
//! There is more than one session of a timeout only if the first is [full](crate::session::room). A claim
//! gets the first that has room, so those that were opened last become empty first, and are closed. Each has
//! its own heartbeats, and its end is the end of its own claims only.
//!
//! A claim with a lock delay uses the shortest timeout that is not below its lease. The delay is the last
//! part of the session, too, so a shorter session would leave the holder little time, or none.

use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use lockwell_core::backend::{SharedTask, lock};
use lockwell_core::{Error, ErrorKind, Result};
use zookeeper_client::SessionState;

use crate::options::ZkOptions;
use crate::session::Session;
use crate::session::limits::{Known, Limits};
use crate::session::open::open;
use crate::session::room::Room;
use crate::session::runtime::SESSIONS;

/// How long an unused session is kept.
const IDLE: Duration = Duration::from_secs(20);

/// How long the end of the client waits for the servers to end its sessions. A connection that is closed
/// before is an error in their logs, and its session goes on until its timeout.
const FAREWELL: Duration = Duration::from_secs(1);

/// Clones share the sessions.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    options: Arc<ZkOptions>,
    known: Arc<Known>,
    slots: Arc<Mutex<Slots>>,
}

#[derive(Debug, Default)]
struct Slots {
    open: Vec<Arc<SessionSlot>>,
    closed: bool,
}

/// A slot for a session of one timeout. A new session replaces one that is over.
#[derive(Debug)]
struct SessionSlot {
    timeout: Duration,
    session: Mutex<Option<Arc<Session>>>,
    /// Opens a session.
    opening: SharedTask<()>,
}

/// Where a claim finds room.
enum Found {
    Room(Room),
    /// In this slot, when its session is open.
    Closed(Arc<SessionSlot>),
}

impl SessionSlot {
    fn session(&self) -> MutexGuard<'_, Option<Arc<Session>>> {
        lock(&self.session)
    }

    fn alive(&self) -> Option<Arc<Session>> {
        let session = self.session().clone().filter(|session| !session.is_over());
        session.inspect(|session| session.note_use())
    }
}

impl Pool {
    pub(crate) fn new(options: Arc<ZkOptions>, limits: Limits) -> Self {
        Self { options, known: Arc::new(Known::new(limits)), slots: Arc::default() }
    }

    /// The limits of the servers.
    pub(crate) fn limits(&self) -> Limits {
        self.known.get()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.slots().closed
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        lock(&self.slots)
    }

    /// A session for requests about claims with this lease, of which `delay` is the lock delay.
    ///
    /// # Cancel safety
    /// As [`room`](Self::room).
    pub(crate) async fn session(&self, ttl: Duration, delay: Duration) -> Result<Arc<Session>> {
        Ok(Arc::clone(self.room(ttl, delay, 0).await?.session()))
    }

    /// Room for a node whose path takes so many bytes, in a session for claims with this lease, of which
    /// `delay` is the lock delay. Opens a session if none has room.
    ///
    /// # Cancel safety
    /// Cancel safe: at worst an unused session is opened.
    pub(crate) async fn room(&self, ttl: Duration, delay: Duration, bytes: usize) -> Result<Room> {
        loop {
            let slot = match self.find(ttl, delay, bytes)? {
                Found::Room(room) => return Ok(room),
                Found::Closed(slot) => slot,
            };
            let (pool, opened) = (self.clone(), Arc::clone(&slot));
            let open = async move { pool.open(&opened, ttl, delay).await };
            let spawn = |open| {
                let task = SESSIONS.spawn(open);
                async { task.await? }
            };
            slot.opening.answer(0, open, spawn).await?;
        }
    }

    /// Opens the session of a slot.
    async fn open(&self, slot: &Arc<SessionSlot>, ttl: Duration, delay: Duration) -> Result<()> {
        // It may have been opened since it was missing.
        if slot.alive().is_some() {
            return Ok(());
        }
        let opened = open(&self.options, slot.timeout, &self.known).await;
        let session = opened.map_err(|error| self.after_others(slot.timeout, error))?;
        // If the servers have become an ensemble meanwhile, the session can be too short.
        if timeout(self.limits(), ttl, delay) != slot.timeout {
            return Ok(());
        }
        // An old session is only dropped here; its locks end with it.
        *slot.session() = Some(Arc::clone(&session));
        let (pool, watched) = (Arc::downgrade(&self.slots), Arc::downgrade(&session));
        drop(SESSIONS.spawn(close_when_idle(pool, Arc::downgrade(slot), watched)));
        if self.slots().closed {
            slot.session().take();
            return Err(closed());
        }
        Ok(())
    }

    /// Names the most probable reason if a client has sessions, and cannot open one more.
    fn after_others(&self, timeout: Duration, error: Error) -> Error {
        let open = self.slots().open.clone();
        match open.iter().filter(|slot| slot.timeout == timeout && slot.alive().is_some()).count() {
            0 => error,
            full => {
                let text = format!(
                    "{}; {full} sessions are full: does maxClientCnxns of the servers allow another one?",
                    error.message()
                );
                Error::new(error.kind(), text)
            }
        }
    }

    /// Any session, for requests that only read.
    pub(crate) async fn any(&self) -> Result<Arc<Session>> {
        let open = self.slots().open.clone();
        match open.iter().find_map(|slot| slot.alive()) {
            Some(session) => Ok(session),
            None => self.session(lockwell_core::DEFAULT_TTL, Duration::ZERO).await,
        }
    }

    fn find(&self, ttl: Duration, delay: Duration, bytes: usize) -> Result<Found> {
        let mut slots = self.slots();
        if slots.closed {
            return Err(closed());
        }
        let timeout = timeout(self.limits(), ttl, delay);
        let mut closed = None;
        for slot in slots.open.iter().filter(|slot| slot.timeout == timeout) {
            match slot.alive() {
                Some(session) => {
                    if let Some(room) = Room::in_session(&session, bytes) {
                        return Ok(Found::Room(room));
                    }
                }
                None => closed = closed.or(Some(slot)),
            }
        }
        if let Some(slot) = closed {
            return Ok(Found::Closed(Arc::clone(slot)));
        }
        let slot = Arc::new(SessionSlot { timeout, session: Mutex::default(), opening: SharedTask::new() });
        slots.open.push(Arc::clone(&slot));
        Ok(Found::Closed(slot))
    }

    /// Drops all sessions. Each ends with the last lock that it holds. Waits a moment for the ends of the
    /// others.
    pub(crate) async fn close(&self) {
        let open = {
            let mut slots = self.slots();
            slots.closed = true;
            std::mem::take(&mut slots.open)
        };
        let ends = open.iter().filter_map(|slot| slot.session().take()).filter_map(|session| {
            let mut states = session.client.state_watcher();
            let answers = !session.is_in_use() && states.state() == SessionState::SyncConnected;
            // The server answers the farewell with the end of the session.
            answers.then_some(async move { while !states.changed().await.is_terminated() {} })
        });
        // Sessions that do not end in time end with their timeouts.
        drop(tokio::time::timeout(FAREWELL, join_all(ends)).await);
    }
}

/// The timeout for claims with this lease, of which `delay` is the lock delay.
fn timeout(limits: Limits, ttl: Duration, delay: Duration) -> Duration {
    let step = step(limits, ttl);
    if delay.is_zero() || step >= ttl { step } else { after(step).min(limits.most) }
}

/// The step after this one.
fn after(step: Duration) -> Duration {
    step + (step / 4).max(Duration::from_millis(1))
}

/// The timeout for claims with this lease: the longest step that is not above it.
///
/// The keeper renews when two thirds of the validity are left; with a much shorter session it would renew
/// very often.
fn step(limits: Limits, ttl: Duration) -> Duration {
    let ttl = ttl.clamp(limits.least, limits.most);
    let (mut step, mut next) = (limits.least, limits.least);
    while next <= ttl {
        step = next;
        next = after(step);
    }
    step
}

/// Closes a session that holds nothing and has not been used for a while, unless it is the only one.
async fn close_when_idle(pool: Weak<Mutex<Slots>>, slot: Weak<SessionSlot>, session: Weak<Session>) {
    loop {
        tokio::time::sleep(IDLE / 2).await;
        let (Some(pool), Some(slot), Some(session)) = (pool.upgrade(), slot.upgrade(), session.upgrade())
        else {
            return;
        };
        let mut slots = lock(&pool);
        let others = slots.open.iter().any(|other| !Arc::ptr_eq(other, &slot) && other.session().is_some());
        if others && session.idle_for() >= IDLE {
            slots.open.retain(|other| !Arc::ptr_eq(other, &slot));
            slot.session().take();
            return;
        }
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the client was closed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_delay_is_no_part_of_the_holders_time() {
        let secs = Duration::from_secs;
        let limits = Limits {
            least: secs(4),
            most: secs(40),
            ensemble: true,
            granted: secs(4),
            tick: secs(2),
            isolated: None,
        };
        for ttl in 4..=20 {
            for delay in 1..=20 {
                let lease = secs(ttl + delay);
                let timeout = timeout(limits, lease, secs(delay));
                assert!(
                    timeout >= lease && timeout <= lease.mul_f64(1.25),
                    "{timeout:?} for {ttl} + {delay}"
                );
            }
            assert_eq!(timeout(limits, secs(ttl), Duration::ZERO), step(limits, secs(ttl)));
        }
    }

    #[test]
    fn timeouts_are_few_and_fit_their_leases() {
        let (least, most) = (Duration::from_secs(1), Duration::from_secs(90));
        let tick = Duration::from_secs(2);
        let limits = Limits { least, most, ensemble: false, granted: least, tick, isolated: None };
        let mut steps: Vec<Duration> = Vec::new();
        for millis in (500..100_000).rev() {
            let ttl = Duration::from_millis(millis);
            let step = step(limits, ttl);
            let lease = ttl.clamp(least, most);
            assert!(step <= lease && step >= lease.mul_f64(0.79), "{step:?} for {ttl:?}");
            steps.push(step);
        }
        steps.dedup();
        assert!(steps.len() <= 21, "{steps:?}");
    }
}
