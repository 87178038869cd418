//! The questions of an administrator to PostgreSQL.

use std::time::{Duration, SystemTime};

use lockwell_core::backend::closed_for;
use lockwell_core::{Finding, Severity};

use super::driver::{Conn, Postgres};
use crate::dialect::examine::{persistence, takes_no_writes, time};

type About = (i64, String, String, i64, String, String, String);

impl Postgres {
    /// What the database says about itself.
    pub(super) async fn findings(&self, conn: &mut Conn) -> sqlx_core::Result<Vec<Finding>> {
        let asked = SystemTime::now();
        let about = self.statement(&self.sql.about).row(conn).await?;
        let answered = SystemTime::now();
        let (now, fsync, pages, replicas, standbys, commits, read_only): About =
            about.ok_or(sqlx_core::Error::RowNotFound)?;
        let mut findings = vec![Finding::clock(time(now), asked, answered)];
        let persistence = persistence(&[("fsync", &fsync, &["on"]), ("full_page_writes", &pages, &["on"])]);
        let period = self.period(conn).await?;
        let durability = period.map(|(period, closed, ahead)| durability(period, closed, periods(ahead)));
        // A lost grant of a lease that is short enough is granted to nobody else, also at a replica.
        if self.grace.lazy.is_none() {
            findings.extend([persistence, replication(replicas, &standbys, &commits)]);
        } else if persistence.severity != Severity::Good {
            findings.push(persistence);
        }
        findings.extend(durability);
        if read_only == "on" {
            let remedy = "connect to the primary, or set default_transaction_read_only to off";
            findings.push(takes_no_writes(remedy));
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
}

/// `commits` is `synchronous_commit` of our user. Grants raise `off` to `on`, and keep all other values.
fn replication(replicas: i64, standbys: &str, commits: &str) -> Finding {
    let doubtful = |what: &str, remedy: &str| {
        let message =
            format!("{replicas} replicas, and commits wait for {what}: a failover can grant a lock twice");
        Finding::doubtful("replication", message, remedy)
    };
    let names = "name the replicas that may take over in synchronous_standby_names, or fence by the token";
    let waits = "set synchronous_commit of this user to on, or fence by the token";
    match (replicas, standbys, commits) {
        (0, "", _) => Finding::good("replication", "no replica streams from it"),
        (_, "", _) => doubtful("none", names),
        (_, _, "local") => doubtful("none, since synchronous_commit is local", waits),
        (_, _, "remote_write") => doubtful("no disk of a replica (remote_write)", waits),
        _ => Finding::good("replication", format!("{replicas} replicas; commits wait for {standbys}")),
    }
}

/// How many grace periods have begun lately, at least, if the floor of tokens is so far ahead of the clock,
/// in microseconds. Each raises the floor by up to 2^33, which the clock makes up for in 2.4 hours.
fn periods(ahead: i64) -> i64 {
    (ahead - (1 << 31)).max(0) / (1 << 33) + i64::from(ahead > 1 << 31)
}

/// The finding about tables on which a grace period lasts for this time, and is not over for another.
fn durability(period: Duration, closed: Option<Duration>, periods: i64) -> Finding {
    let often = if periods > 1 {
        format!("; in the last hours {periods} grace periods have begun, or more")
    } else {
        String::new()
    };
    let remedy = "look in the log of the server for crashes, killed backends, and stops that were not clean: by SIGQUIT, or by SIGKILL \
                  after a stop that took too long";
    if let Some(left) = closed {
        let text = closed_for(left) + &often;
        return Finding::doubtful("grace period", text, format!("wait; if it happens often, {remedy}"));
    }
    let text = format!(
        "some clients' grants wait for no disk; after a crash or a failover nothing is granted for {period:.1?}"
    );
    match often.as_str() {
        "" => Finding::good("durability", text),
        often => Finding::doubtful("durability", text + often, remedy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grace_periods_are_counted_by_the_floor_of_tokens() {
        // Hundredths of an hour.
        let micros = |hundredths: i64| hundredths * 36_000_000;
        for (ahead, many) in [(-500, 0), (0, 0), (240, 1), (400, 2), (470, 2), (710, 3), (950, 4)] {
            assert_eq!(periods(micros(ahead)), many, "{ahead}");
        }
    }

    #[test]
    fn repeated_grace_periods_are_doubtful() {
        let (period, left) = (Duration::from_secs(31), Duration::from_secs(7));
        assert_eq!(durability(period, None, 1).severity, Severity::Good);
        let often = durability(period, None, 3);
        assert_eq!((often.subject, often.severity), ("durability", Severity::Doubtful));
        assert!(
            often.message.ends_with("in the last hours 3 grace periods have begun, or more"),
            "{often:?}"
        );
        let closed = durability(period, Some(left), 1);
        assert_eq!((closed.subject, closed.severity), ("grace period", Severity::Doubtful));
        assert!(
            closed.message.ends_with("another 7.0s, which pass while a client waits or holds a lock"),
            "{closed:?}"
        );
    }

    #[test]
    fn replicas_that_commits_do_not_wait_for_are_doubtful() {
        assert_eq!(replication(0, "", "on").severity, Severity::Good);
        // One that is named and away: commits wait until it is back.
        assert_eq!(replication(0, "one", "on").severity, Severity::Good);
        let found = replication(2, "ANY 1 (one, two)", "on");
        assert_eq!(found.severity, Severity::Good);
        assert!(
            found.message.contains("2 replicas") && found.message.contains("ANY 1 (one, two)"),
            "{found:?}"
        );
        let found = replication(1, "", "on");
        assert_eq!(found.severity, Severity::Doubtful);
        assert!(
            found.message.starts_with("1 replicas, ") && found.remedy.contains("synchronous_standby_names"),
            "{found:?}"
        );
    }

    #[test]
    fn commits_that_do_not_wait_for_the_disk_of_a_named_replica_are_doubtful() {
        for commits in ["local", "remote_write"] {
            let found = replication(1, "one", commits);
            assert_eq!(found.severity, Severity::Doubtful);
            assert!(
                found.message.contains(commits) && found.remedy.contains("synchronous_commit"),
                "{found:?}"
            );
        }
        // Grants raise `off`.
        for commits in ["off", "on", "remote_apply"] {
            assert_eq!(replication(1, "one", commits).severity, Severity::Good);
        }
    }
}
