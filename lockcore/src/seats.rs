//! The waiters of this process, for backends whose server wakes a client rather than a waiter.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use uuid::Uuid;

use crate::LockName;
use crate::sync::lock;

/// How long a place in a queue at a server is kept without a sign of life from its waiter.
pub const SEAT_LIFE: Duration = Duration::from_secs(4);
/// How often a waiter gives one.
pub const SEAT_REFRESH: Duration = Duration::from_millis(1300);

/// The waiters of one client, by their tickets, so that a word from the server wakes the one it is for.
#[derive(Debug)]
pub struct Seats {
    /// Names this client at the server.
    pub client: Uuid,
    rows: Mutex<Rows>,
    /// Rung when the first waiter sits down.
    pub taken: Notify,
}

#[derive(Debug, Default)]
struct Rows {
    by_ticket: BTreeMap<i64, (LockName, Arc<Notify>)>,
    by_name: HashMap<LockName, usize>,
}

/// One waiter's seat; dropping it leaves.
#[derive(Debug)]
pub struct Seat {
    seats: Arc<Seats>,
    /// The number that the server, or the client itself, has given to this place.
    pub ticket: i64,
    bell: Arc<Notify>,
}

impl Seats {
    /// No waiters yet, under a new random name.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            client: Uuid::from_u128(rand::random()),
            rows: Mutex::default(),
            taken: Notify::new(),
        })
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        lock(&self.rows)
    }

    /// Takes a seat.
    pub fn sit(self: &Arc<Self>, name: &LockName, ticket: i64) -> Seat {
        let bell = Arc::new(Notify::new());
        {
            let mut rows = self.rows();
            rows.by_ticket.insert(ticket, (name.clone(), Arc::clone(&bell)));
            *rows.by_name.entry(name.clone()).or_default() += 1;
        }
        self.taken.notify_one();
        Seat { seats: Arc::clone(self), ticket, bell }
    }

    /// Wakes the waiter with this ticket.
    pub fn wake(&self, ticket: i64) {
        if let Some((_, bell)) = self.rows().by_ticket.get(&ticket) {
            bell.notify_one();
        }
    }

    /// Wakes everybody, when words of the server may have been missed.
    pub fn wake_all(&self) {
        for (_, bell) in self.rows().by_ticket.values() {
            bell.notify_one();
        }
    }

    /// Whether anybody of this process waits for this lock.
    pub fn waits_for(&self, name: &LockName) -> bool {
        self.rows().by_name.contains_key(name)
    }

    /// The locks that somebody of this process waits for.
    pub fn names(&self) -> Vec<LockName> {
        self.rows().by_name.keys().cloned().collect()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.rows().by_ticket.is_empty()
    }
}

impl Seat {
    /// Resolves when the waiter should look. A bell that rang before is not forgotten.
    pub async fn called(&self) {
        self.bell.notified().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut rows = self.seats.rows();
        let Some((name, _)) = rows.by_ticket.remove(&self.ticket) else { return };
        let Some(count) = rows.by_name.get_mut(&name) else { return };
        *count -= 1;
        if *count == 0 {
            rows.by_name.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_bell_before_the_wait_is_heard() {
        let seats = Seats::new();
        let name = LockName::new("a").unwrap();
        let (first, second) = (seats.sit(&name, 1), seats.sit(&name, 2));
        seats.wake(1);
        first.called().await;
        drop(first);
        assert!(seats.waits_for(&name));
        seats.wake_all();
        second.called().await;
        drop(second);
        assert!(seats.is_empty() && !seats.waits_for(&name) && seats.names().is_empty());
    }
}
