//! A queue whose places the database numbers. Each waiter gives its own heartbeats. A release notifies the
//! first waiter, which asks again, or may have been granted the lock.

use std::future::Future;

use lockwell_core::backend::PushedGrant;
use lockwell_core::{Claim, Moment};

use crate::dialect::Dialect;
use crate::words::TryAcquire;

/// The requests about places. All of them are idempotent for a given owner.
pub(crate) trait TicketQueue: Dialect {
    /// Takes a place at the end of the queue, and then requests the lock, as far as reading can refuse it. A
    /// repeated request returns the same place. `receives`: whether notifications arrive at this process, so
    /// that a release may grant the lock to the claim. Returns what [`Entered`](super::requests::Answer) has.
    fn enqueue(
        &self,
        conn: &mut Self::Conn,
        claim: &Claim,
        receives: bool,
    ) -> impl Future<Output = sqlx::Result<(i64, Option<TryAcquire>)>> + Send;

    /// From when until when a grant is valid that a release is said to have made for this claim. `None`: the
    /// claim sends a request, which may read the grant.
    fn accept(&self, conn: &Self::Conn, claim: &Claim, pushed: &PushedGrant) -> Option<(Moment, Moment)>;

    /// Gives a heartbeat for the waiters with these tickets. Returns for each whether it still has its place.
    fn keep(
        &self,
        conn: &mut Self::Conn,
        tickets: &[i64],
    ) -> impl Future<Output = sqlx::Result<Vec<bool>>> + Send;

    /// Deletes the places of waiters that have their locks.
    fn forget_places(
        &self,
        conn: &mut Self::Conn,
        tickets: &[i64],
    ) -> impl Future<Output = sqlx::Result<()>> + Send;
}
