//! The questions of an administrator to MySQL and MariaDB.

use std::time::SystemTime;

use lockwell_core::Finding;
use sqlx_core::row::Row;

use super::driver::{Conn, MySql};
use super::statements::{ROWS, STATEMENTS};
use crate::dialect::answers::mysql::number;
use crate::dialect::examine::{persistence, takes_no_writes, time};

/// Whether commits wait for a replica: the names of MariaDB, of MySQL, and of MySQL before 8.0.26.
const SEMI_SYNC: [&str; 3] = [
    "SELECT CAST(@@rpl_semi_sync_master_enabled AS SIGNED)",
    "SELECT CAST(@@rpl_semi_sync_source_enabled AS SIGNED)",
    "SELECT 0",
];

impl MySql {
    /// What the database says about itself.
    pub(super) async fn findings(&self, conn: &mut Conn) -> sqlx_core::Result<Vec<Finding>> {
        let asked = SystemTime::now();
        let row = sqlx_core::query::query(self.sql.about.sql().get()).fetch_one(&mut conn.inner).await?;
        let answered = SystemTime::now();
        let text = |index: usize| -> sqlx_core::Result<String> {
            let bytes: Vec<u8> = row.try_get_unchecked(index)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        let (flush, double, replicas) = (text(1)?, text(2)?, row.try_get_unchecked::<i64, _>(3)?);
        let (logs, sync) = (row.try_get_unchecked::<i64, _>(4)? != 0, row.try_get_unchecked::<i64, _>(5)?);
        let waits = replicas > 0 && semi_sync(conn).await?;
        let mut findings = vec![
            Finding::clock(time(row.try_get_unchecked(0)?), asked, answered),
            persistence(&[
                ("innodb_flush_log_at_trx_commit", &flush, &["1"]),
                ("innodb_doublewrite", &double, &["1", "ON", "DETECT_AND_RECOVER"]),
            ]),
            replication(replicas, waits),
            rights(row.try_get_unchecked::<i64, _>(6)? > 0),
        ];
        if !matches!(&*text(7)?, "0" | "OFF") {
            findings.push(takes_no_writes("connect to the primary, or set read_only to 0"));
        }
        let format =
            sqlx_core::raw_sql::raw_sql(self.sql.log_format.get()).fetch_optional(&mut conn.inner).await?;
        let format: String = format.map_or_else(|| Ok(String::new()), |row| row.try_get_unchecked(1))?;
        findings.extend(binary_log(logs, sync, &format));
        Ok(findings)
    }
}

async fn semi_sync(conn: &mut Conn) -> sqlx_core::Result<bool> {
    for question in SEMI_SYNC {
        match sqlx_core::query_scalar::query_scalar::<_, i64>(question).fetch_one(&mut conn.inner).await {
            // This server does not know the variable.
            Err(sqlx_core::Error::Database(error)) if number(&*error) == 1193 => (),
            answer => return answer.map(|enabled| enabled != 0),
        }
    }
    Ok(false)
}

fn replication(replicas: i64, waits: bool) -> Finding {
    match (replicas, waits) {
        (0, _) => Finding::good("replication", "no replica reads from it, as far as this user may see"),
        (_, true) => {
            Finding::good("replication", format!("{replicas} replicas; commits wait for one of them"))
        }
        (_, false) => Finding::doubtful(
            "replication",
            format!("{replicas} replicas, and commits wait for none: a failover can grant a lock twice"),
            "switch semi-synchronous replication on, and fail over only to a replica that has everything; or fence by the \
             token",
        ),
    }
}

/// Whether the user may write on a server that is set to be read only, as for a switchover.
fn rights(ignores_read_only: bool) -> Finding {
    if !ignores_read_only {
        return Finding::good("read_only", "this user may not write once the server is set to be read only");
    }
    Finding::doubtful(
        "read_only",
        "this user may write although the server is set to be read only (SUPER, CONNECTION_ADMIN or READ ONLY ADMIN): lockwell \
         looks at `read_only` in each statement, but what is under way while it is set can be granted again by the next primary",
        "connect as a user without these rights",
    )
}

/// A server that has lost the end of its binary log in a crash has other grants than its replicas. `sync`:
/// after how many commits it is on the disk; 0: when the operating system likes.
fn binary_log(logs: bool, sync: i64, format: &str) -> Option<Finding> {
    match (logs, sync) {
        (false, _) => None,
        _ if format == "STATEMENT" => Some(Finding::bad("binlog", STATEMENTS, ROWS)),
        (true, 1) => {
            Some(Finding::good("binlog", "the binary log is on the disk before a grant is answered"))
        }
        (true, _) => Some(Finding::doubtful(
            "binlog",
            format!(
                "sync_binlog is {sync}: after a crash of the host, the server and its replicas can have different grants"
            ),
            "set sync_binlog to 1",
        )),
    }
}

#[cfg(test)]
mod tests {
    use lockwell_core::Severity;

    use super::*;

    #[test]
    fn commits_that_wait_for_no_replica_are_doubtful() {
        assert_eq!(replication(0, false).severity, Severity::Good);
        assert_eq!(replication(2, true).severity, Severity::Good);
        let found = replication(2, false);
        assert_eq!(found.severity, Severity::Doubtful);
        assert!(
            found.message.starts_with("2 replicas, ") && found.remedy.contains("semi-synchronous"),
            "{found:?}"
        );
    }

    #[test]
    fn a_binary_log_is_to_be_synced_with_each_commit() {
        assert_eq!(binary_log(false, 0, ""), None);
        assert_eq!(binary_log(true, 1, "ROW").map(|found| found.severity), Some(Severity::Good));
        assert_eq!(binary_log(true, 1, "STATEMENT").map(|found| found.severity), Some(Severity::Bad));
        for sync in [0, 2, 100] {
            let found = binary_log(true, sync, "MIXED").expect("a finding");
            assert_eq!(found.severity, Severity::Doubtful);
            assert!(found.message.starts_with(&format!("sync_binlog is {sync}: ")), "{found:?}");
        }
    }
}
