//! The questions of an administrator to an SQLite file.

use lockwell_core::Finding;

use super::connection::Connection;
use super::driver::Sqlite;
use super::filesystem;

impl Sqlite {
    /// What the database says about itself.
    pub(super) async fn findings(&self, conn: &mut Connection) -> sqlx_core::Result<Vec<Finding>> {
        let mode: String =
            sqlx_core::query_scalar::query_scalar("PRAGMA journal_mode").fetch_one(conn.get()).await?;
        let journal = if mode.eq_ignore_ascii_case("wal") {
            Finding::good(
                "persistence",
                if self.opening.durability.syncs_grants {
                    "grants are synced to the disk before they are answered"
                } else {
                    "grants wait for no disk: no holder outlives a crash of this host, and tokens stay below a bound on the disk"
                },
            )
        } else {
            let remedy = "close all programs that use the file, and let lockwell open it first";
            Finding::doubtful(
                "persistence",
                format!("journal_mode is {mode}, not wal: locks are slow"),
                remedy,
            )
        };
        let file = self.opening.connect.get_filename();
        Ok(filesystem::reach(file).into_iter().chain([filesystem::finding(file), journal]).collect())
    }
}
