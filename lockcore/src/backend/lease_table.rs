//! Leases that the client itself has to end, since the server keeps the records of its claims for as long as
//! the session lives.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use crate::system::lock;
use crate::{Clock, Moment, OwnerId};

/// The claims of a client with the ends of their leases, and a value for each claim.
///
/// A claim that is not renewed must not hold its lock for longer than its lease, even if the client is alive.
/// The client gets such claims from [`expired`](Self::expired) and releases them.
pub struct LeaseTable<T> {
    rows: Mutex<Rows<T>>,
    clock: Clock,
    /// A lease ends earlier than the time for which `expired` sleeps.
    changed: Notify,
}

struct Rows<T> {
    by_owner: HashMap<OwnerId, Row<T>>,
    /// When `expired` wakes up next.
    wakes: Moment,
    closed: bool,
}

struct Row<T> {
    kept: Arc<T>,
    /// When the lease ends; `None` while the claim waits.
    until: Option<Moment>,
    /// The claim is being released.
    ended: bool,
}

impl<T> LeaseTable<T> {
    /// An empty table.
    pub fn new() -> Self {
        Self::with_clock(Clock::system())
    }

    /// An empty table whose leases use this clock.
    pub fn with_clock(clock: Clock) -> Self {
        let rows = Rows { by_owner: HashMap::new(), wakes: Moment::NEVER, closed: false };
        Self { rows: Mutex::new(rows), clock, changed: Notify::new() }
    }

    fn rows(&self) -> MutexGuard<'_, Rows<T>> {
        lock(&self.rows)
    }

    /// Inserts a claim, which has no lease yet, with its value. The value replaces an earlier one.
    pub fn insert(&self, owner: OwnerId, kept: Arc<T>) {
        self.rows().by_owner.insert(owner, Row { kept, until: None, ended: false });
    }

    /// The value of a claim that is not being released.
    pub fn get(&self, owner: OwnerId) -> Option<Arc<T>> {
        self.rows().by_owner.get(&owner).filter(|row| !row.ended).map(|row| Arc::clone(&row.kept))
    }

    /// The value of a claim, even while it is being released.
    pub fn find(&self, owner: OwnerId) -> Option<Arc<T>> {
        self.rows().by_owner.get(&owner).map(|row| Arc::clone(&row.kept))
    }

    /// Sets the end of a claim's lease to `until`, unless it is later already. `false`: the claim is not in
    /// the table, or is being released.
    #[must_use]
    pub fn extend(&self, owner: OwnerId, until: Moment) -> bool {
        let mut rows = self.rows();
        let Some(row) = rows.by_owner.get_mut(&owner).filter(|row| !row.ended) else { return false };
        row.until = Some(row.until.map_or(until, |old| old.max(until)));
        if until < rows.wakes {
            rows.wakes = until;
            self.changed.notify_one();
        }
        true
    }

    /// Marks a claim for its release: from now on its lease cannot be extended. It stays in the table until
    /// it is [removed](Self::remove).
    pub fn end(&self, owner: OwnerId) -> Option<Arc<T>> {
        let mut rows = self.rows();
        let row = rows.by_owner.get_mut(&owner)?;
        row.ended = true;
        Some(Arc::clone(&row.kept))
    }

    /// Removes a claim.
    pub fn remove(&self, owner: OwnerId) {
        self.rows().by_owner.remove(&owner);
    }

    /// Resolves with a claim whose lease has ended, and which must be released. `None`: the table was closed.
    /// Only one task may wait at a time.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost.
    pub async fn expired(&self) -> Option<(OwnerId, Arc<T>)> {
        loop {
            let wakes = {
                let mut rows = self.rows();
                if rows.closed {
                    return None;
                }
                let (now, mut wakes) = (self.clock.now(), Moment::NEVER);
                for (owner, row) in &mut rows.by_owner {
                    match row.until.filter(|_| !row.ended) {
                        Some(until) if until <= now => {
                            row.ended = true;
                            return Some((*owner, Arc::clone(&row.kept)));
                        }
                        Some(until) => wakes = wakes.min(until),
                        None => (),
                    }
                }
                rows.wakes = wakes;
                wakes
            };
            tokio::select! {
                () = self.clock.sleep_until(wakes) => (),
                () = self.changed.notified() => (),
            }
        }
    }

    /// Ends [`expired`](Self::expired), and removes all claims.
    pub fn close(&self) {
        let forgotten = {
            let mut rows = self.rows();
            rows.closed = true;
            std::mem::take(&mut rows.by_owner)
        };
        // Outside of the lock, since what is kept may have a destructor.
        drop(forgotten);
        self.changed.notify_one();
    }
}

impl<T> Default for LeaseTable<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for LeaseTable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseTable").field("claims", &self.rows().by_owner.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::TestClock;
    use crate::system::poll_once;

    const SOON: Duration = Duration::from_millis(30);

    #[tokio::test]
    async fn leases_that_nobody_extends_expire_in_their_order() {
        let table = Arc::new(LeaseTable::new());
        let owners = [OwnerId::random(), OwnerId::random(), OwnerId::random()];
        for (number, owner) in owners.into_iter().enumerate() {
            table.insert(owner, Arc::new(number));
        }
        let expiring = tokio::spawn({
            let table = Arc::clone(&table);
            async move { [table.expired().await.unwrap(), table.expired().await.unwrap()] }
        });
        tokio::task::yield_now().await;
        let began = Moment::now();
        // The first waits still. The later one is noted first, so the other must wake the sweep.
        assert!(table.extend(owners[2], began.after(SOON * 3)));
        tokio::task::yield_now().await;
        assert!(table.extend(owners[1], began.after(SOON)));
        assert!(table.extend(owners[1], began), "an earlier end changes nothing");
        let [(first, one), (second, _)] = expiring.await.unwrap();
        assert_eq!((first, *one, second), (owners[1], 1, owners[2]));
        assert!(began.after(SOON * 3).has_passed());
        assert!(table.get(owners[0]).is_some() && table.get(owners[1]).is_none());
    }

    #[tokio::test]
    async fn a_claim_that_is_released_cannot_be_extended_and_does_not_expire() {
        let table = LeaseTable::new();
        let owner = OwnerId::random();
        assert!(!table.extend(owner, Moment::now()) && table.end(owner).is_none());
        table.insert(owner, Arc::new(()));
        assert!(table.extend(owner, Moment::now().after(SOON)));
        assert!(table.end(owner).is_some());
        assert!(!table.extend(owner, Moment::now().after(SOON)));
        assert!(table.get(owner).is_none() && table.find(owner).is_some());
        assert!(tokio::time::timeout(SOON * 3, table.expired()).await.is_err());
        table.remove(owner);
        assert!(table.find(owner).is_none());
        table.close();
        assert!(table.expired().await.is_none());
    }

    #[tokio::test]
    async fn leases_end_by_the_clock_of_the_table() {
        let test = TestClock::new();
        let table = LeaseTable::with_clock(test.clock());
        let owner = OwnerId::random();
        table.insert(owner, Arc::new(()));
        let hour = Duration::from_secs(3_600);
        assert!(table.extend(owner, test.clock().now().after(hour)));
        let mut expired = Box::pin(table.expired());
        assert!(poll_once(&mut expired).await.is_pending());
        test.advance(hour);
        assert_eq!(expired.await.unwrap().0, owner);
    }
}
