//! The questions of an administrator to PostgreSQL.

use std::time::{Duration, SystemTime};

use lockwell_core::{Finding, Severity};
use sqlx::postgres::PgConnection;

use super::driver::Postgres;
use crate::dialect::examine::{Examine, persistence, time};

impl Examine for Postgres {
    async fn names(&self, conn: &mut PgConnection) -> sqlx::Result<Vec<String>> {
        self.statement(&self.sql.names).values(conn).await
    }

    async fn examine(&self, conn: &mut PgConnection) -> sqlx::Result<Vec<Finding>> {
        let asked = SystemTime::now();
        let about = self.statement(&self.sql.about).row(conn).await?;
        let answered = SystemTime::now();
        let (now, fsync, pages, replicas, standbys): (i64, String, String, i64, String) =
            about.ok_or(sqlx::Error::RowNotFound)?;
        let mut findings = vec![Finding::clock(time(now), asked, answered)];
        let persistence = persistence(&[("fsync", &fsync, &["on"]), ("full_page_writes", &pages, &["on"])]);
        match self.durability(conn).await? {
            // A lost grant is granted to nobody else, also at a replica.
            Some(durability) if persistence.severity == Severity::Good => findings.push(durability),
            Some(durability) => findings.extend([persistence, durability]),
            None => findings.extend([persistence, replication(replicas, &standbys)]),
        }
        if self.pooled || self.session.is_shared() {
            let remedy = "connect past the pooler, or let it pool sessions, if waits should be short";
            let text = "a pooler gives us sessions that are not ours alone, so waiters ask for their turn";
            findings.push(Finding::doubtful("pooler", text, remedy));
        } else {
            findings.push(Finding::good("pooler", "sessions are ours alone"));
        }
        Ok(findings)
    }

    async fn grace_left(&self, conn: &mut PgConnection) -> sqlx::Result<Option<Duration>> {
        self.closed_for(conn).await
    }

    async fn begin_grace(&self, conn: &mut PgConnection) -> sqlx::Result<Option<Duration>> {
        self.make_mark_by_hand(conn).await
    }
}

fn replication(replicas: i64, standbys: &str) -> Finding {
    let remedy = "name the replicas that may take over in synchronous_standby_names, or fence by the token";
    match (replicas, standbys) {
        (0, "") => Finding::good("replication", "no replica streams from it"),
        (_, "") => Finding::doubtful(
            "replication",
            format!("{replicas} replicas, and commits wait for none: a failover can grant a lock twice"),
            remedy,
        ),
        _ => Finding::good("replication", format!("{replicas} replicas; commits wait for {standbys}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_that_commits_do_not_wait_for_are_doubtful() {
        assert_eq!(replication(0, "").severity, Severity::Good);
        // One that is named and away: commits wait until it is back.
        assert_eq!(replication(0, "one").severity, Severity::Good);
        let found = replication(2, "ANY 1 (one, two)");
        assert_eq!(found.severity, Severity::Good);
        assert!(
            found.message.contains("2 replicas") && found.message.contains("ANY 1 (one, two)"),
            "{found:?}"
        );
        let found = replication(1, "");
        assert_eq!(found.severity, Severity::Doubtful);
        assert!(
            found.message.starts_with("1 replicas, ") && found.remedy.contains("synchronous_standby_names"),
            "{found:?}"
        );
    }
}
