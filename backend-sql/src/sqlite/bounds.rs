//! What must be true of the tables before a lock is granted: the bound of tokens, and the disk.

use super::connection::Connection;
use super::driver::Sqlite;
use super::write::Commits;
use crate::dialect::error::disk_failed;
use crate::words::{TakeRequest, TryAcquire, block, micros, span};

/// The answers to some claims. `None`: the state of the tables must be raised first. Claims of the batch may
/// have been granted; the same answer is given when they ask again.
pub(super) type Answers = Option<Vec<TryAcquire>>;

impl Sqlite {
    /// Fails while leases may be lost on a disk that has refused a sync.
    pub(super) async fn check_disk(&self, conn: &mut Connection) -> sqlx::Result<()> {
        conn.look_at_disk().await?;
        let durability = &self.opening.durability;
        let Some(failed) = durability.failed() else { return Ok(()) };
        let longest: i64 = sqlx::query_scalar(self.sql.longest_ttl.get()).fetch_one(conn.get()).await?;
        let left = span(longest).saturating_sub(failed.elapsed());
        // What the log has lost unnoticed is in the database file after a checkpoint of all of it.
        if left.is_zero() && conn.checkpoint_all().await? {
            durability.recovered(failed);
            return Ok(());
        }
        Err(disk_failed(left))
    }

    /// Begins a transaction that is synced, and makes the state of the tables allow all these claims.
    pub(super) async fn begin_raised(
        &self,
        conn: &mut Connection,
        requests: &[TakeRequest],
    ) -> sqlx::Result<()> {
        conn.begin(Commits::Synced).await?;
        for TakeRequest { claim, .. } in requests {
            let raised = sqlx::query(self.sql.raise.get())
                .bind(claim.name().as_str())
                .bind(micros(claim.ttl()))
                .bind(block(claim))
                .bind(&self.opening.durability.boot)
                .execute(conn.get())
                .await;
            if let Err(error) = raised {
                return conn.end(Err(error)).await;
            }
        }
        Ok(())
    }
}

/// The answers of a transaction for which the state was raised.
pub(super) fn answered(answers: Answers) -> sqlx::Result<Vec<TryAcquire>> {
    answers.ok_or_else(|| sqlx::Error::Protocol("the clock has stepped within a transaction".into()))
}
