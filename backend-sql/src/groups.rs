//! Locks that several hold together: readers, and the permits of a semaphore.
//!
//! While a group holds a lock, the lock's row is occupied: its `mode` is the group's, `members` counts it, the owner is
//! nobody, and the lease has no end. So a statement that takes the lock alone refuses it as it refuses any lock that
//! is held, and knows nothing of groups. Each member has a row of its own with owner, token and lease.
//!
//! * Whoever adds or removes members locks the lock's row first, then the members' rows. So the count is right, two of
//!   them cannot deadlock, and no decision rests on a count that was read before the lock's row was locked.
//! * A renewal and `verify_in` lock the member's row alone: they hold up nobody who comes or goes.
//! * A member whose lease has ended still counts. Who is refused for that reason takes the dead out
//!   ([`reap`](Groups::reap)) and asks again; a dead member whose row a transaction has locked stays in.

use std::future::Future;
use std::time::Duration;

use lockcore::backend::Waiters;
use lockcore::{Claim, LockName, Mode};
use sqlx::Result as Answer;

use crate::database::Database;
use crate::dialect::{Ask, Freed, SEVERAL, Took};

/// What a database does for locks that are held together. All of it is idempotent for a given owner.
pub trait Groups: Database {
    /// Lets each claim into the group that holds its lock, or makes it the first member. All are of this mode, in the
    /// order of their names and tickets. A claim that is let in has left the queue.
    fn join(
        &self,
        conn: &mut Self::Conn,
        mode: Mode,
        asks: &[Ask],
    ) -> impl Future<Output = Answer<Vec<Took>>> + Send;

    /// Takes each claim out of its group, and finds who is next.
    fn part(
        &self,
        conn: &mut Self::Conn,
        claims: &[Claim],
        waiters: &Waiters,
    ) -> impl Future<Output = Answer<Vec<Freed>>> + Send;

    /// Takes members whose leases have ended out of these groups, and finds who is next.
    fn reap(
        &self,
        conn: &mut Self::Conn,
        names: &[LockName],
        waiters: &Waiters,
    ) -> impl Future<Output = Answer<Vec<i64>>> + Send;

    /// The locks that have members whose leases ended longer ago than `idle`.
    fn deserted(
        &self,
        conn: &mut Self::Conn,
        idle: Duration,
    ) -> impl Future<Output = Answer<Vec<LockName>>> + Send;

    /// Turns the one holder into the first of a group of readers. False: it holds nothing.
    fn downgrade(&self, conn: &mut Self::Conn, claim: &Claim) -> impl Future<Output = Answer<bool>> + Send;

    /// The head of the queue, if its turn has come: its ticket if it waits in this process, or [`SEVERAL`] if it may not
    /// be the only one. One of another process is told, where the database can do that.
    fn head(
        &self,
        conn: &mut Self::Conn,
        name: &LockName,
        waiters: &Waiters,
    ) -> impl Future<Output = Answer<Option<i64>>> + Send;

    /// All whose turn it is: the tickets of those who wait in this process. The others are told, where the database can
    /// do that.
    fn call(
        &self,
        conn: &mut Self::Conn,
        name: &LockName,
        waiters: &Waiters,
    ) -> impl Future<Output = Answer<Vec<i64>>> + Send;

    /// Finds who is next, behind a head that is known.
    fn behind(
        &self,
        conn: &mut Self::Conn,
        name: &LockName,
        head: Option<i64>,
        waiters: &Waiters,
    ) -> impl Future<Output = Answer<Vec<i64>>> + Send {
        async move {
            match head {
                Some(SEVERAL) => self.call(conn, name, waiters).await,
                head => Ok(head.into_iter().collect()),
            }
        }
    }

    /// Finds who is next.
    fn next(
        &self,
        conn: &mut Self::Conn,
        name: &LockName,
        waiters: &Waiters,
    ) -> impl Future<Output = Answer<Vec<i64>>> + Send {
        async move {
            let head = self.head(conn, name, waiters).await?;
            self.behind(conn, name, head, waiters).await
        }
    }

    /// Finds who is next on each lock that its claim has given up.
    fn freed(
        &self,
        conn: &mut Self::Conn,
        claims: &[Claim],
        released: &[bool],
        waiters: &Waiters,
    ) -> impl Future<Output = Answer<Vec<Freed>>> + Send {
        async move {
            let mut answers = Vec::with_capacity(claims.len());
            for (claim, &released) in claims.iter().zip(released) {
                let next = if released { self.next(conn, claim.name(), waiters).await? } else { Vec::new() };
                answers.push(Freed::new(released, next));
            }
            Ok(answers)
        }
    }
}
