//! Leases that the client itself has to end, since the server keeps the records of its claims for as long as
//! the session lives.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use lockwell_core::backend::{Clock, Moment, OwnerId, lock};
use tokio::sync::Notify;

/// How often a claim that waits is given [`MORE`] time before it is given up. If the whole process was
/// stopped, its task needs a moment to go on. A stop that comes meanwhile costs one of these times only.
const CHANCES: u32 = 5;

const MORE: Duration = Duration::from_secs(1);

/// The claims of a client with the ends of their leases, and a value for each claim.
///
/// A claim that is not renewed must not hold its lock for longer than its lease, even if the client is alive.
/// Nor must a claim whose task is not polled any more keep its place in a queue. The client gets such claims
/// from [`expired`](Self::expired) and releases them.
pub(crate) struct LeaseTable<T> {
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
    /// When the lease ends. While the claim waits, when it is given up; `None`: never.
    until: Option<Moment>,
    state: RowState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RowState {
    /// The claim has no lease yet. So often it is given more time.
    Waiting(u32),
    Leased,
    /// The claim is being released.
    Ended,
    /// The claim is being released since its time was over.
    Expired,
}

impl<T> Row<T> {
    fn is_waiting(&self) -> bool {
        matches!(self.state, RowState::Waiting(_))
    }

    fn is_ended(&self) -> bool {
        matches!(self.state, RowState::Ended | RowState::Expired)
    }
}

impl<T> LeaseTable<T> {
    /// How long after its time a claim that waits expires.
    pub(crate) const EXTRA: Duration = MORE.saturating_mul(CHANCES);

    /// An empty table.
    pub(crate) fn new() -> Self {
        Self::with_clock(Clock::system())
    }

    /// An empty table whose leases use this clock.
    pub(crate) fn with_clock(clock: Clock) -> Self {
        let rows = Rows { by_owner: HashMap::new(), wakes: Moment::NEVER, closed: false };
        Self { rows: Mutex::new(rows), clock, changed: Notify::new() }
    }

    fn rows(&self) -> MutexGuard<'_, Rows<T>> {
        lock(&self.rows)
    }

    /// `expired` has to look again at this moment.
    fn wake_by(&self, rows: &mut Rows<T>, until: Moment) {
        if until < rows.wakes {
            rows.wakes = until;
            self.changed.notify_one();
        }
    }

    /// Inserts a claim, which has no lease yet, with its value. The value replaces an earlier one.
    pub(crate) fn insert(&self, owner: OwnerId, kept: Arc<T>) {
        self.rows().by_owner.insert(owner, Row { kept, until: None, state: RowState::Waiting(CHANCES) });
    }

    /// Inserts a claim, which has no lease yet, with its value. It expires [`EXTRA`](Self::EXTRA) after
    /// `until`, unless [`keep`](Self::keep) puts that off or it gets a lease. The value replaces an earlier
    /// one. `false`: this owner's claim is still being released, and nothing is inserted.
    #[must_use]
    pub(crate) fn begin(&self, owner: OwnerId, kept: Arc<T>, until: Moment) -> bool {
        let mut rows = self.rows();
        if rows.by_owner.get(&owner).is_some_and(Row::is_ended) {
            return false;
        }
        let row = Row { kept, until: Some(until), state: RowState::Waiting(CHANCES) };
        let replaced = rows.by_owner.insert(owner, row);
        self.wake_by(&mut rows, until);
        drop(rows);
        // Outside of the lock, since what is kept may have a destructor.
        drop(replaced);
        true
    }

    /// Puts off the moment at which a claim expires that has no lease yet.
    pub(crate) fn keep(&self, owner: OwnerId, until: Moment) {
        let mut rows = self.rows();
        let Some(row) = rows.by_owner.get_mut(&owner).filter(|row| row.is_waiting()) else { return };
        (row.until, row.state) = (Some(until), RowState::Waiting(CHANCES));
        self.wake_by(&mut rows, until);
    }

    /// The value of a claim that is not being released.
    pub(crate) fn get(&self, owner: OwnerId) -> Option<Arc<T>> {
        self.rows().by_owner.get(&owner).filter(|row| !row.is_ended()).map(|row| Arc::clone(&row.kept))
    }

    /// The value of a claim, even while it is being released.
    pub(crate) fn find(&self, owner: OwnerId) -> Option<Arc<T>> {
        self.rows().by_owner.get(&owner).map(|row| Arc::clone(&row.kept))
    }

    /// Sets the end of a claim's lease to `until`, unless it is later already. `false`: the claim is not in
    /// the table, or is being released.
    #[must_use]
    pub(crate) fn extend(&self, owner: OwnerId, until: Moment) -> bool {
        let mut rows = self.rows();
        let Some(row) = rows.by_owner.get_mut(&owner).filter(|row| !row.is_ended()) else { return false };
        let end = match (row.state, row.until) {
            (RowState::Leased, Some(old)) => old.max(until),
            // The time for which a claim may wait is no part of its lease.
            _ => until,
        };
        (row.until, row.state) = (Some(end), RowState::Leased);
        self.wake_by(&mut rows, until);
        true
    }

    /// Marks a claim for its release: from now on its lease cannot be extended. It stays in the table until
    /// it is [removed](Self::remove).
    pub(crate) fn end(&self, owner: OwnerId) -> Option<Arc<T>> {
        let mut rows = self.rows();
        let row = rows.by_owner.get_mut(&owner)?;
        if !row.is_ended() {
            row.state = RowState::Ended;
        }
        Some(Arc::clone(&row.kept))
    }

    /// Whether [`expired`](Self::expired) has returned the claim, which is still in the table.
    pub(crate) fn has_expired(&self, owner: OwnerId) -> bool {
        self.rows().by_owner.get(&owner).is_some_and(|row| row.state == RowState::Expired)
    }

    /// Removes a claim.
    pub(crate) fn remove(&self, owner: OwnerId) {
        self.rows().by_owner.remove(&owner);
    }

    /// Removes a claim, unless it is being released.
    pub(crate) fn withdraw(&self, owner: OwnerId) {
        let mut rows = self.rows();
        if rows.by_owner.get(&owner).is_some_and(|row| !row.is_ended()) {
            rows.by_owner.remove(&owner);
        }
    }

    /// Resolves with a claim whose lease has ended, or that nobody has kept while it waited. It must be
    /// released. `None`: the table was closed. Only one task may wait at a time.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost.
    pub(crate) async fn expired(&self) -> Option<(OwnerId, Arc<T>)> {
        loop {
            let wakes = {
                let mut rows = self.rows();
                if rows.closed {
                    return None;
                }
                let (now, mut wakes) = (self.clock.now(), Moment::NEVER);
                for (owner, row) in &mut rows.by_owner {
                    let Some(mut until) = row.until.filter(|_| !row.is_ended()) else { continue };
                    if until <= now {
                        match row.state {
                            RowState::Waiting(chances) if chances > 0 => {
                                until = now.after(MORE);
                                (row.until, row.state) = (Some(until), RowState::Waiting(chances - 1));
                            }
                            _ => {
                                row.state = RowState::Expired;
                                return Some((*owner, Arc::clone(&row.kept)));
                            }
                        }
                    }
                    wakes = wakes.min(until);
                }
                // An earlier time that was set stays. So most claims that come and go need not wake this.
                if rows.wakes > now {
                    wakes = wakes.min(rows.wakes);
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
    pub(crate) fn close(&self) {
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
    use std::future::Future;
    use std::task::{Context, Poll, Waker};

    use lockwell_core::TestClock;

    use super::*;

    /// Polls a future once.
    fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
        std::pin::Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
    }

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
        assert!(poll_once(&mut expired).is_pending());
        test.advance(hour);
        assert_eq!(expired.await.unwrap().0, owner);
    }

    #[tokio::test]
    async fn a_claim_that_waits_is_given_up_when_nobody_keeps_it() {
        let test = TestClock::new();
        let table = LeaseTable::with_clock(test.clock());
        let after = |secs| test.clock().now().after(Duration::from_secs(secs));
        let [kept, left, granted] = [1, 2, 3].map(OwnerId::from_u128);
        for owner in [kept, left, granted] {
            assert!(table.begin(owner, Arc::new(()), after(30)));
        }
        assert!(table.extend(granted, after(10)), "the lease may be shorter than the wait");
        table.keep(granted, after(30));
        let mut expired = Box::pin(table.expired());
        assert!(poll_once(&mut expired).is_pending());
        test.advance(Duration::from_secs(10));
        assert_eq!(expired.await.unwrap().0, granted);
        // The process was stopped for an hour; then one of the tasks goes on.
        let mut expired = Box::pin(table.expired());
        test.advance(Duration::from_secs(3_600));
        assert!(poll_once(&mut expired).is_pending());
        table.keep(kept, after(30));
        for _ in 0..CHANCES {
            assert!(poll_once(&mut expired).is_pending());
            test.advance(MORE);
        }
        assert_eq!(expired.await.unwrap().0, left);
        assert!(table.has_expired(left) && !table.has_expired(kept));
        assert!(table.get(kept).is_some() && table.get(left).is_none());
        // It begins again when it has been released.
        table.withdraw(left);
        assert!(!table.begin(left, Arc::new(()), after(30)) && !table.extend(left, after(30)));
        table.remove(left);
        assert!(table.begin(left, Arc::new(()), after(30)) && !table.has_expired(left));
        table.withdraw(left);
        assert!(table.find(left).is_none());
    }
}
