//! The sessions of one client.
//!
//! A lease in ZooKeeper is the session, and its timeout is set when it is made. A claim with a lease of a second must
//! be freed a second after a `kill -9`, and one with a lease of a minute must survive an outage of half a minute. So a
//! session's timeout follows the lease: a claim uses an open session that is a little shorter than its lease, or a new
//! one of just that length. Applications use one lease or two; the number of sessions is bounded by the logarithm of
//! the range that the server allows, whatever they do.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockcore::{Error, ErrorKind, Result};

use crate::options::Options;
use crate::probe::Limits;
use crate::session::Session;

#[derive(Debug)]
pub(crate) struct Pool {
    options: Arc<Options>,
    limits: Limits,
    slots: Mutex<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    open: Vec<Arc<Slot>>,
    closed: bool,
}

/// A place for a session of some timeout. A new one takes the place of one that is over.
#[derive(Debug)]
struct Slot {
    timeout: Duration,
    session: Mutex<Option<Arc<Session>>>,
    /// Held by whoever opens the session.
    opening: tokio::sync::Mutex<()>,
}

impl Slot {
    fn session(&self) -> MutexGuard<'_, Option<Arc<Session>>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn alive(&self) -> Option<Arc<Session>> {
        self.session().clone().filter(|session| !session.is_over())
    }
}

impl Pool {
    pub(crate) fn new(options: Arc<Options>, limits: Limits) -> Self {
        Self { options, limits, slots: Mutex::default() }
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session for claims with this lease. Opens it if there is none.
    ///
    /// # Cancel safety
    /// Cancel safe: at worst a session is opened that nobody uses.
    pub(crate) async fn session(&self, ttl: Duration) -> Result<Arc<Session>> {
        let slot = self.slot(ttl)?;
        if let Some(session) = slot.alive() {
            return Ok(session);
        }
        let _opening = slot.opening.lock().await;
        if let Some(session) = slot.alive() {
            return Ok(session);
        }
        let session = Session::open(&self.options, slot.timeout, self.limits).await?;
        // An old one is only dropped here: what it held runs out by itself.
        *slot.session() = Some(Arc::clone(&session));
        if self.slots().closed {
            slot.session().take();
            return Err(closed());
        }
        Ok(session)
    }

    /// Any session, for looking around.
    pub(crate) async fn any(&self) -> Result<Arc<Session>> {
        let open = self.slots().open.clone();
        match open.iter().find_map(|slot| slot.alive()) {
            Some(session) => Ok(session),
            None => self.session(lockcore::DEFAULT_TTL).await,
        }
    }

    fn slot(&self, ttl: Duration) -> Result<Arc<Slot>> {
        let mut slots = self.slots();
        if slots.closed {
            return Err(closed());
        }
        let ttl = ttl.clamp(self.limits.least, self.limits.most);
        // The keeper renews when two thirds of the lease are left; a much shorter session would keep it busy.
        let fitting = |slot: &&Arc<Slot>| slot.timeout <= ttl && slot.timeout >= ttl.mul_f64(0.75);
        if let Some(slot) = slots.open.iter().filter(fitting).max_by_key(|slot| slot.timeout) {
            return Ok(Arc::clone(slot));
        }
        let slot = Arc::new(Slot {
            timeout: ttl,
            session: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
        });
        slots.open.push(Arc::clone(&slot));
        Ok(slot)
    }

    /// Lets go of all sessions. Each ends with the last lock that it holds.
    pub(crate) fn close(&self) {
        let open = {
            let mut slots = self.slots();
            slots.closed = true;
            std::mem::take(&mut slots.open)
        };
        for slot in open {
            slot.session().take();
        }
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the client was closed")
}
