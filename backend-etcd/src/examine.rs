//! For operators: whether the servers are safe for locks.

use lockwell_core::{Finding, Result};

use crate::client::ClientInner;
use crate::connection::Connection;
use crate::messages::{Alarms, Members, Status};

/// What one server says. Newer releases tell some of it to administrators only.
struct Report {
    members: Option<Members>,
    status: Option<Status>,
    alarms: Option<Alarms>,
}

/// `None` if this user may not ask.
fn if_allowed<T>(answer: Result<T, tonic::Status>) -> Result<Option<T>, tonic::Status> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(status) if status.code() == tonic::Code::PermissionDenied => Ok(None),
        Err(status) => Err(status),
    }
}

/// Whether a leader that has been replaced may end leases. `false` where this user may not ask, which only
/// newer releases refuse.
pub(crate) async fn old_leaders_end_leases(inner: &ClientInner) -> Result<bool> {
    let ask = |connection: Connection, _| async move {
        let Some(status) = if_allowed(connection.status().await)? else { return Ok(false) };
        if !ends_leases(&status.version) {
            return Ok(false);
        }
        Ok(!if_allowed(connection.members().await)?.is_some_and(|members| is_alone(&members)))
    };
    inner.ask(inner.soon(), ask).await
}

fn is_alone(members: &Members) -> bool {
    members.members.len() == 1
}

pub(crate) async fn findings(inner: &ClientInner) -> Result<Vec<Finding>> {
    let ask = |connection: Connection, _| async move {
        Ok(Report {
            members: if_allowed(connection.members().await)?,
            status: if_allowed(connection.status().await)?,
            alarms: if_allowed(connection.alarms().await)?,
        })
    };
    let report = inner.ask(inner.soon(), ask).await?;
    let mut findings = Vec::new();
    let is_alone = report.members.as_ref().is_some_and(is_alone);
    findings.extend(report.status.as_ref().map(|status| version(&status.version, is_alone)));
    findings.extend(report.members.as_ref().map(replication));
    findings.extend(report.alarms.as_ref().map(|alarms| space(alarms, report.status.as_ref())));
    if report.members.is_none() || report.status.is_none() || report.alarms.is_none() {
        findings.push(Finding::doubtful(
            "rights",
            "this user may not ask for the members, their states and alarms, so they were not checked",
            "let an administrator (role root) run `lockwell doctor --look-only`",
        ));
    }
    findings
        .push(Finding::good("clock", "leases are spans of time at the servers, whatever their clocks show"));
    let floor = inner.floor.known().number();
    if floor > 0 {
        let text = format!("fencing tokens begin above {floor}, which restored servers need");
        findings.push(Finding::good("tokens", text));
    }
    findings.push(match (&inner.options.login, &inner.options.tls) {
        (_, Some(_)) => Finding::good("transport", "TLS"),
        (None, None) => Finding::good("transport", "no TLS, and no password that it would protect"),
        (Some(_), None) => Finding::doubtful(
            "transport",
            "the password goes over the network as it is",
            "use etcds:// with ca=, and certificates at the servers",
        ),
    });
    Ok(findings)
}

fn numbers(version: &str) -> Vec<u32> {
    version.split('.').map_while(|number| number.parse().ok()).collect()
}

/// Whether a leader of this release whose disk has hung ends leases that another leader has extended (etcd
/// issue 15247). One before 3.4 is not tested, so it counts as such.
fn ends_leases(version: &str) -> bool {
    match numbers(version)[..] {
        [3, 0..=3, ..] => true,
        [3, 4, patch, ..] => patch < 31,
        [3, 5, patch, ..] => patch < 13,
        _ => false,
    }
}

pub(crate) fn version(version: &str, is_alone: bool) -> Finding {
    let numbers = numbers(version);
    if ends_leases(version) && !is_alone {
        let text = format!(
            "a leader of etcd {version} whose disk hangs for longer than a lease ends leases when it goes on, although \
             another leader has extended them: two can hold a lock for a moment"
        );
        Finding::doubtful("version", text, "use 3.4.31, 3.5.13 or a newer release")
    } else if numbers.as_slice() >= [3, 4].as_slice() {
        Finding::good("version", format!("etcd {version}"))
    } else {
        let text = format!("etcd {version} is older than 3.4, with which lockwell is tested");
        Finding::doubtful("version", text, "use a newer release")
    }
}

fn replication(members: &Members) -> Finding {
    let voters = members.members.iter().filter(|member| !member.is_learner).count();
    match voters {
        1 => Finding::good("replication", "one member, without replicas: no locks while it is down"),
        2 => Finding::doubtful(
            "replication",
            "two members: no locks while either of them is down",
            "add a third member",
        ),
        _ => Finding::good("replication", format!("{voters} members: a majority has every grant")),
    }
}

fn space(alarms: &Alarms, status: Option<&Status>) -> Finding {
    const NO_SPACE: i32 = 1;
    if alarms.alarms.iter().any(|alarm| alarm.kind == NO_SPACE) {
        return Finding::doubtful(
            "space",
            "the alarm NOSPACE is on: no new locks; those that are held are kept, and can be released",
            "compact, defragment, then `etcdctl alarm disarm`",
        );
    }
    if !alarms.alarms.is_empty() {
        return Finding::bad(
            "space",
            "the alarm CORRUPT is on: the data of the members differ",
            "remove the member whose data differ, and add it again",
        );
    }
    match status {
        Some(status) => Finding::good("space", format!("{} KiB in use, and no alarm", status.size / 1024)),
        None => Finding::good("space", "no alarm"),
    }
}

#[cfg(test)]
mod tests {
    use lockwell_core::Severity;

    use super::*;
    use crate::messages::{Alarm, Member};

    fn alarms(kinds: &[i32]) -> Alarms {
        Alarms { alarms: kinds.iter().map(|kind| Alarm { kind: *kind }).collect() }
    }

    #[test]
    fn what_weakens_locks_is_found() {
        let members = |count| Members { members: vec![Member::default(); count] };
        for (finding, severity) in [
            (version("3.4.23", true), Severity::Good),
            (version("3.4.23", false), Severity::Doubtful),
            (version("3.4.31", false), Severity::Good),
            (version("3.5.12", false), Severity::Doubtful),
            (version("3.5.13", false), Severity::Good),
            (version("3.10.0", false), Severity::Good),
            (version("3.3.25", true), Severity::Doubtful),
            (version("3.3.25", false), Severity::Doubtful),
            (replication(&members(1)), Severity::Good),
            (replication(&members(2)), Severity::Doubtful),
            (replication(&members(3)), Severity::Good),
            (space(&alarms(&[]), None), Severity::Good),
            (space(&alarms(&[1]), None), Severity::Doubtful),
            (space(&alarms(&[2]), None), Severity::Bad),
        ] {
            assert_eq!(finding.severity, severity, "{}", finding.message);
        }
        assert!(ends_leases("3.3.25") && ends_leases("3.4.30") && !ends_leases("3.10.0"));
    }
}
