//! For operators: the names of locks, and whether the settings of the servers are safe for locks.

use lockwell_core::backend::unescape;
use lockwell_core::{Finding, LockName, Result};
use zookeeper_client as zk;

use crate::client::ClientInner;
use crate::error::explain;
use crate::queue::inspect::learn_time;
use crate::session::four_letters::{Fullest, ask_dump};
use crate::session::limits::Limits;

/// The names of all locks that have a node. The node stays for a while after the lock was released.
pub(crate) async fn names(inner: &ClientInner) -> Result<Vec<LockName>> {
    let session = inner.pool.any().await?;
    let base = &inner.options.base;
    match session.list_now(if base.is_empty() { "/" } else { base }).await {
        // Other nodes are not locks.
        Ok(nodes) => {
            let name = |node: &String| LockName::new(unescape(node)?).ok();
            // The servers' own node. The node of a lock with this name is escaped.
            let ours = |node: &&String| !base.is_empty() || *node != "zookeeper";
            Ok(nodes.iter().filter(ours).filter_map(name).collect())
        }
        Err(zk::Error::NoNode) => Ok(Vec::new()),
        Err(error) => Err(explain(&error)),
    }
}

/// What the client has learned, and whether it may create nodes.
pub(crate) async fn findings(inner: &ClientInner) -> Result<Vec<Finding>> {
    let mut findings = vec![session(inner.pool.limits()), replication(inner.pool.limits())];
    findings.extend(folders(inner).await?);
    findings.extend(ask_dump(&inner.options).await.map(|fullest| room(&fullest)));
    if learn_time(inner, &*inner.pool.any().await?).await? {
        findings.extend(inner.clock.finding());
    } else {
        findings.push(Finding::doubtful(
            "rights",
            "nodes cannot be created below the base path: it is missing, or this user has not the right CREATE",
            "create the path, and grant CREATE to users that take locks",
        ));
    }
    Ok(findings)
}

/// From so many on, the folders of locks are reported: what a server deletes in two minutes by default.
const MANY: i32 = 20_000;

/// How many folders there are, if many.
async fn folders(inner: &ClientInner) -> Result<Option<Finding>> {
    let session = inner.pool.any().await?;
    let base = &inner.options.base;
    let stat = session.client.check_stat(if base.is_empty() { "/" } else { base }).await;
    let folders = match stat {
        Ok(stat) => stat.map_or(0, |stat| stat.num_children),
        Err(zk::Error::NoAuth) => return Ok(None),
        Err(error) => return Err(explain(&error)),
    };
    Ok((folders >= MANY).then(|| {
        Finding::doubtful(
            "folders",
            format!("{folders} locks have a folder; of the idle ones the servers delete 10,000 a minute by default"),
            "if the number rises, use fewer names, or raise znode.container.maxPerMinute on the servers",
        )
    }))
}

/// From so many bytes of paths on, a session is reported: half of what the servers can read by default.
const FULL: usize = 1024 * 1024;

fn room(Fullest { session, nodes, bytes }: &Fullest) -> Finding {
    let size = format!("{nodes} ephemeral nodes with {} KiB of paths", bytes.div_ceil(1024));
    if *bytes < FULL {
        return Finding::good("sessions", format!("none has more than {size}; 2 MiB are too many"));
    }
    Finding::doubtful(
        "sessions",
        format!(
            "the session {session} has {size}: if it ends with more than jute.maxbuffer and its extra, 2 MiB by default, an \
             ensemble stops, and does not start again"
        ),
        "let its client, which the command cons names, delete nodes or open several sessions",
    )
}

fn session(limits: Limits) -> Finding {
    let Limits { least, ensemble, isolated, .. } = limits;
    match isolated {
        Some(isolated) if least <= isolated => Finding::doubtful(
            "session",
            format!(
                "leases from {least:?} to {isolated:?} (syncLimit x tickTime) can be lost when a server is cut off from its \
                 leader, before the server notices"
            ),
            format!("choose a --ttl above {isolated:?}; strict=true in the address refuses shorter ones"),
        ),
        None if ensemble => Finding::doubtful(
            "session",
            "the servers do not report tickTime and syncLimit, so the shortest safe lease is unknown",
            "allow the command conf (4lw.commands.whitelist), or set tick= or strict= in the address",
        ),
        _ => Finding::good("session", format!("leases from {least:?} are as long as the servers need")),
    }
}

fn replication(limits: Limits) -> Finding {
    if limits.ensemble {
        Finding::good("replication", "an ensemble: a majority has every grant")
    } else {
        Finding::good("replication", "one server, without replicas: no locks while it is down")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lockwell_core::Severity;

    use super::*;

    #[test]
    fn short_sessions_of_an_ensemble_are_doubtful() {
        let secs = Duration::from_secs;
        let limits = |least, ensemble, isolated| Limits {
            least: secs(least),
            most: secs(40),
            ensemble,
            granted: secs(least),
            tick: secs(2),
            isolated,
        };
        for (limits, severity) in [
            (limits(4, true, Some(secs(10))), Severity::Doubtful),
            (limits(12, true, Some(secs(10))), Severity::Good),
            (limits(4, true, None), Severity::Doubtful),
            (limits(4, false, None), Severity::Good),
        ] {
            assert_eq!(session(limits).severity, severity, "{limits:?}");
        }
    }
}
