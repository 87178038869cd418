//! Questions of operators to a server: which locks are held, and whether it is safe for locks.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lockwell_core::{Finding, LockName, RecordKind, Result, Severity};
use redis::Value;

use crate::checks::{ask, info, keeps_every_change};
use crate::wire::Wire;
use crate::wire::doubts::Demands;
use crate::words::error::fatal;
use crate::words::keys::{Keys, SEPARATOR};

/// About how many keys the server scans before it serves others again.
const PORTION: usize = 500;

/// The names of the locks at a server, or of those that have a record. The server scans all keys of its
/// database.
pub(crate) async fn names(
    wire: &Arc<Wire>,
    keys: &Keys,
    timeout: Duration,
    recorded: Option<RecordKind>,
) -> Result<Vec<LockName>> {
    let namespace = keys.namespace();
    let (mut names, mut cursor) = (Vec::new(), "0".to_owned());
    loop {
        let mut scan = redis::cmd("SCAN");
        scan.arg(&cursor).arg("MATCH").arg(format!("{}*", escaped(namespace)));
        // A lock is a string. Ours is beside those of other programs, where the namespace is empty.
        scan.arg("COUNT").arg(PORTION).arg("TYPE").arg("string");
        let answer = ask(wire, &scan, timeout).await?.map_err(|error| fatal(&error, None))?;
        let (next, found): (String, Vec<String>) =
            redis::from_redis_value(answer).map_err(|error| fatal(&error.into(), None))?;
        let name = |key: &String| {
            let name = match recorded {
                Some(kind) => keys.recorded(kind, key)?,
                None => key.strip_prefix(namespace).filter(|name| !name.starts_with(SEPARATOR))?,
            };
            LockName::new(name).ok()
        };
        names.extend(found.iter().filter_map(name));
        if next == "0" {
            return Ok(names);
        }
        cursor = next;
    }
}

/// Escapes a text for a pattern.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        if "*?[]^\\".contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// Examines a server.
pub(crate) async fn examine(wire: &Arc<Wire>, demands: Demands, timeout: Duration) -> Result<Vec<Finding>> {
    let info = info(wire, timeout).await?;
    let mut findings = if info.get("role").is_empty() {
        let text = "INFO is not to be had: persistence, eviction and replication are unknown";
        vec![Finding::doubtful(
            "examination",
            text,
            "allow the user +info and +config|get, at least for this, and rename neither",
        )]
    } else {
        demands.findings(&info, keeps_every_change(wire, timeout).await?)
    };
    let asked = SystemTime::now();
    if let Ok(Value::Array(time)) = ask(wire, &redis::cmd("TIME"), timeout).await?
        && let Ok((seconds, micros)) = redis::from_redis_value::<(u64, u64)>(Value::Array(time))
    {
        let server = Duration::from_secs(seconds) + Duration::from_micros(micros);
        findings.push(Finding::clock(SystemTime::UNIX_EPOCH + server, asked, SystemTime::now()));
    }
    Ok(findings)
}

/// The finding about a server that may have forgotten grants.
pub(crate) fn closed(left: Duration) -> Finding {
    let text =
        format!("it may have forgotten grants, as after a restart: it grants nothing for another {left:.1?}");
    Finding::doubtful(
        "grace period",
        text,
        "nothing need be done; if this recurs, see why it restarts or fails over",
    )
}

/// The findings of one node among several: what it forgets in a restart it has no vote about until all leases
/// have ended.
pub(crate) fn of_node(mut findings: Vec<Finding>) -> Vec<Finding> {
    for finding in &mut findings {
        if finding.subject == "persistence" && finding.severity == Severity::Bad {
            finding.severity = Severity::Doubtful;
            finding.message.push_str("; it has no vote then for as long as the longest lease");
        }
    }
    findings
}

/// The findings of several servers, each with the name of its server where there are several.
pub(crate) fn of_each(all: Vec<(&Arc<Wire>, Vec<Finding>)>) -> Vec<Finding> {
    let several = all.len() > 1;
    let mut named = Vec::new();
    for (wire, findings) in all {
        for mut finding in findings {
            if several {
                finding.message = format!("{}: {}", wire.address.topology, finding.message);
            }
            named.push(finding);
        }
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_no_pattern() {
        assert_eq!(escaped("lockwell:"), "lockwell:");
        assert_eq!(escaped("a*[b]?\\"), "a\\*\\[b\\]\\?\\\\");
    }
}
