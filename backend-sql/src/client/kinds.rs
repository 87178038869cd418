//! The kinds of requests that all databases have.

use lockwell_core::{Claim, Grant};

use crate::client::batch;
use crate::client::requests::{JobContext, Kind};
use crate::dialect::Dialect;
use crate::words::{Extension, Freed, LockRequest, TakeRequest, TryAcquire};

/// Takes a lock if it is free.
impl<D: Dialect> Kind<D> for TakeRequest {
    type Answer = TryAcquire;

    async fn carry_out(on: JobContext<'_, D>, batch: &[&Self]) -> sqlx::Result<Vec<TryAcquire>> {
        let requests: Vec<_> = batch.iter().copied().cloned().collect();
        batch::take(on.dialect, on.waiters, on.conn, &requests).await
    }

    fn about(&self) -> Option<LockRequest<'_>> {
        Some(LockRequest::Take(&self.claim))
    }

    fn blocked(&self, _: &sqlx::Error) -> Option<TryAcquire> {
        Some(TryAcquire::Blocked)
    }
}

/// Leaves the queue.
pub(crate) struct Leave(pub(crate) Claim);

impl<D: Dialect> Kind<D> for Leave {
    type Answer = Freed;

    async fn carry_out(on: JobContext<'_, D>, batch: &[&Self]) -> sqlx::Result<Vec<Freed>> {
        let claims: Vec<_> = batch.iter().map(|one| one.0.clone()).collect();
        on.dialect.leave_each(on.conn, &claims, on.waiters).await
    }
}

/// Frees a lock that is held exclusively.
pub(crate) struct Release(pub(crate) Claim);

impl<D: Dialect> Kind<D> for Release {
    type Answer = Freed;

    async fn carry_out(on: JobContext<'_, D>, batch: &[&Self]) -> sqlx::Result<Vec<Freed>> {
        let claims: Vec<_> = batch.iter().map(|one| one.0.clone()).collect();
        on.dialect.release(on.conn, &claims, on.waiters).await
    }

    fn urgency(&self) -> u8 {
        2
    }

    fn about(&self) -> Option<LockRequest<'_>> {
        Some(LockRequest::Release(&self.0))
    }

    fn blocked(&self, cause: &sqlx::Error) -> Option<Freed> {
        Some(still_held(cause))
    }
}

/// Leaves a group. It does not share a statement with releases, since a batch that is repeated must not have
/// been applied in part.
pub(crate) struct LeaveGroup(pub(crate) Claim);

impl<D: Dialect> Kind<D> for LeaveGroup {
    type Answer = Freed;

    async fn carry_out(on: JobContext<'_, D>, batch: &[&Self]) -> sqlx::Result<Vec<Freed>> {
        let claims: Vec<_> = batch.iter().map(|one| one.0.clone()).collect();
        on.dialect.leave_group(on.conn, &claims, on.waiters).await
    }

    fn urgency(&self) -> u8 {
        3
    }

    fn blocked(&self, cause: &sqlx::Error) -> Option<Freed> {
        Some(still_held(cause))
    }
}

/// The answer to a release when a transaction has locked the row. It is no error: that would not say whether
/// an earlier try, whose answer was lost, may have freed the lock.
fn still_held(cause: &sqlx::Error) -> Freed {
    tracing::debug!(error = %cause, "the row of a lock that is released is locked");
    Freed { blocked: true, ..Freed::default() }
}

/// Extends leases. It shares no statement with other requests.
pub(crate) struct Renew(pub(crate) Vec<Grant>);

impl<D: Dialect> Kind<D> for Renew {
    type Answer = Vec<Extension>;

    async fn carry_out(on: JobContext<'_, D>, batch: &[&Self]) -> sqlx::Result<Vec<Vec<Extension>>> {
        Ok(vec![batch::renew(on.dialect, on.conn, &batch[0].0).await?])
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn urgency(&self) -> u8 {
        0
    }
}
