//! What must be true of the tables before a lock is granted: the bound of tokens, and the disk.

use std::time::Duration;

use sqlx_core::row::Row;

use super::boot;
use super::connection::{Bound, Connection};
use super::driver::{Sqlite, json};
use super::durability::LOOK_EVERY;
use crate::dialect::error::disk_failed;
use crate::words::{TakeRequest, TryAcquire, block, micros, span};

/// How often the state of the tables is raised for one request. Once is enough, unless the clock steps.
pub(super) const RAISES: u32 = 3;

/// The answers to some claims. `None`: the state of the tables must be raised first. Claims of the batch may
/// have been granted; the same answer is given when they ask again.
pub(super) type Answers = Option<Vec<TryAcquire>>;

impl Sqlite {
    /// Fails while leases may be lost on a disk that has refused a sync.
    pub(super) async fn check_disk(&self, conn: &mut Connection) -> sqlx_core::Result<()> {
        conn.look_at_disk().await?;
        let durability = &self.opening.durability;
        let Some(failed) = durability.failed() else { return Ok(()) };
        let longest: i64 =
            sqlx_core::query_scalar::query_scalar(self.sql.longest_ttl.get()).fetch_one(conn.get()).await?;
        let left = span(longest).saturating_sub(failed.elapsed());
        // What the log has lost unnoticed is in the database file after a checkpoint of all of it.
        if left.is_zero() && conn.checkpoint_all().await? {
            durability.recovered(failed);
            return Ok(());
        }
        Err(disk_failed(left))
    }

    /// For how long nothing is granted, since the file was moved here from another host.
    pub(super) async fn closed_for(&self, conn: &mut Connection) -> sqlx_core::Result<Option<Duration>> {
        let closed = sqlx_core::query_scalar::query_scalar(self.sql.closed_for.get())
            .bind(&self.opening.durability.boot);
        let left: Option<i64> = closed.fetch_optional(conn.get()).await?;
        Ok(left.map(span))
    }

    /// Makes the state of the tables allow all these claims. It is one statement, which is on the disk when
    /// this returns: the runtime of the caller may stop at any moment, and a transaction would then stay
    /// open.
    pub(super) async fn raise(
        &self,
        conn: &mut Connection,
        requests: &[TakeRequest],
    ) -> sqlx_core::Result<()> {
        let claims: Vec<_> = requests
            .iter()
            .map(|TakeRequest { claim, .. }| (claim.name().as_str(), micros(claim.ttl()), block(claim)))
            .collect();
        let claims = json(&claims)?;
        let durability = &self.opening.durability;
        let raise = |query: Bound<'static>| {
            query
                .bind(claims.clone())
                .bind(durability.boot.clone())
                .bind(durability.host.clone())
                .bind(micros(boot::uptime()))
                .bind(!durability.syncs_grants)
                .bind(micros(LOOK_EVERY))
        };
        let raised = conn.write_several(&self.sql.raise, 2, raise).await?;
        let bound = raised.rows.first().map(|row| row.try_get(0)).transpose()?;
        conn.is_known(bound);
        Ok(())
    }
}

/// The error if the state of the tables does not allow a grant, however often it is raised.
pub(super) fn not_raised() -> sqlx_core::Error {
    sqlx_core::Error::Protocol("the clock steps, or hosts with other boots use the file as well".into())
}
