//! Locks that several claims hold at once: readers, and the permits of a semaphore.
//!
//! While a group holds a lock, the lock's row has the `mode` of the group, the number of its `members`, an
//! owner that is no claim, and a lease without an end. So a statement for exclusive locks sees a lock that is
//! held, and needs no case for groups. Each member has its own row with owner, token and lease.
//!
//! * A statement that adds or removes members locks the lock's row first, then the members' rows. So the
//!   count is right, two such statements cannot deadlock, and none decides by a count that was read before
//!   the lock's row was locked.
//! * A renewal and `verify_in` lock only the member's row, so they do not delay claims that join or leave.
//! * A member whose lease has ended still counts. A claim that is refused for that reason removes such
//!   members ([`reap`](Groups::reap)) and asks again. A member whose row is locked by a transaction stays.

use std::future::Future;
use std::time::Duration;

use lockwell_core::{Claim, Grant, LockName, Mode};

use crate::dialect::database::Database;
use crate::dialect::follow_up::FollowUp;
use crate::words::{Freed, SEVERAL, TakeRequest, TryAcquire};

/// The requests about locks that groups hold. All of them are idempotent for a given owner.
pub trait Groups: Database {
    /// Adds each claim to the group that holds its lock, or makes it the first member. All claims have this
    /// mode, and are sorted by name and ticket. A claim that becomes a member leaves the queue.
    fn join(
        &self,
        conn: &mut Self::Conn,
        mode: Mode,
        requests: &[TakeRequest],
    ) -> impl Future<Output = sqlx::Result<Vec<TryAcquire>>> + Send;

    /// Removes each claim from its group, and finds the next waiters.
    fn leave_group(
        &self,
        conn: &mut Self::Conn,
        claims: &[Claim],
    ) -> impl Future<Output = sqlx::Result<Vec<Freed>>> + Send;

    /// Removes members whose leases have ended from these groups, and finds the next waiters.
    fn reap(
        &self,
        conn: &mut Self::Conn,
        names: &[LockName],
    ) -> impl Future<Output = sqlx::Result<Vec<i64>>> + Send;

    /// The locks that have members whose leases ended longer ago than `idle`.
    fn stale_groups(
        &self,
        conn: &mut Self::Conn,
        idle: Duration,
    ) -> impl Future<Output = sqlx::Result<Vec<LockName>>> + Send;

    /// Turns the one holder into the first of a group of readers. False: it holds nothing.
    fn downgrade(
        &self,
        conn: &mut Self::Conn,
        grant: &Grant,
    ) -> impl Future<Output = sqlx::Result<bool>> + Send;

    /// The head of the queue, if it can have the lock: its ticket if it waits in this process, or [`SEVERAL`]
    /// if other waiters may be next as well. A head of another process is notified, where the database can do
    /// that.
    fn head(
        &self,
        conn: &mut Self::Conn,
        name: &LockName,
    ) -> impl Future<Output = sqlx::Result<Option<i64>>> + Send;

    /// All waiters whose turn it is: returns the tickets of those of this process. The others are notified,
    /// where the database can do that.
    fn due_waiters(
        &self,
        conn: &mut Self::Conn,
        name: &LockName,
    ) -> impl Future<Output = sqlx::Result<Vec<i64>>> + Send;

    /// Finds the next waiters when the head of the queue is known.
    fn behind(
        &self,
        conn: &mut Self::Conn,
        name: &LockName,
        head: Option<i64>,
    ) -> impl Future<Output = sqlx::Result<Vec<i64>>> + Send {
        async move {
            match head {
                Some(SEVERAL) => self.due_waiters(conn, name).await,
                head => Ok(head.into_iter().collect()),
            }
        }
    }

    /// Finds the next waiters.
    fn next(
        &self,
        conn: &mut Self::Conn,
        name: &LockName,
    ) -> impl Future<Output = sqlx::Result<Vec<i64>>> + Send {
        async move {
            let head = self.head(conn, name).await?;
            self.behind(conn, name, head).await
        }
    }

    /// Finds the next waiters of each lock that its claim has released.
    fn freed(
        &self,
        conn: &mut Self::Conn,
        claims: &[Claim],
        released: &[bool],
    ) -> impl Future<Output = sqlx::Result<Vec<Freed>>> + Send {
        async move {
            let mut answers = Vec::with_capacity(claims.len());
            for (claim, &released) in claims.iter().zip(released) {
                let mut freed = Freed::new(released, Vec::new());
                if released {
                    let mut follow_up = FollowUp::default();
                    freed.next = loop {
                        let next = self.next(conn, claim.name()).await;
                        if let Some(next) = follow_up.settle(self, next) {
                            break next?;
                        }
                    };
                }
                answers.push(freed);
            }
            Ok(answers)
        }
    }
}
