//! Whether a server may lose locks, according to its settings.

use lockwell_core::{Finding, Severity};
use redis::{RedisResult, Value};

use crate::wire::link::Link;
use crate::words::error::{STRICT, UNCHECKED, is_denied};
use crate::words::info::{Info, config, setting_is};

/// What a server that keeps locks must fulfil: with `strict=true` on every connection, otherwise for a
/// warning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demands {
    /// How many replicas must have a grant before it counts.
    pub(crate) wait_replicas: u32,
    /// Whether sentinels put a replica in the place of the master, also where none is connected just now.
    pub(crate) by_sentinels: bool,
    /// Whether nothing is granted after a restart or a failover until all leases have ended.
    pub(crate) grace: bool,
}

impl Demands {
    /// Why locks may be lost on this server. `every_change`: whether the server answers only after its change
    /// is on the disk; `None` if it does not say.
    pub(crate) fn doubts(self, info: &Info, every_change: Option<bool>) -> Vec<String> {
        let findings = self.findings(info, every_change).into_iter();
        let wrong = findings.filter(|finding| finding.severity > Severity::Good);
        wrong.map(|finding| format!("{}: {}", finding.message, finding.remedy)).collect()
    }

    /// What an operator is to know, including settings that are fine.
    pub(crate) fn findings(self, info: &Info, every_change: Option<bool>) -> Vec<Finding> {
        if self.grace {
            let text = "after a restart or a failover nothing is granted until all leases have ended";
            return vec![eviction(info), Finding::good("grace period", text)];
        }
        vec![eviction(info), persistence(info, every_change), self.replication(info)]
    }

    fn replication(self, info: &Info) -> Finding {
        let replicas: u32 = info.get("connected_slaves").parse().unwrap_or(0);
        let can_move = replicas > 0 || (self.by_sentinels && info.is_master());
        // A failover takes any replica: each must have confirmed a grant.
        if can_move && (self.wait_replicas == 0 || self.wait_replicas < replicas) {
            let waits = self.wait_replicas;
            let mut text = format!(
                "it has replicas, {replicas} just now, and grants wait for {waits} of them: a failover to one that lags \
                 behind can grant a lock twice"
            );
            // A server to which this does not apply has no such field.
            if self.by_sentinels && info.is_master() && info.get("min_slaves_good_slaves").is_empty() {
                text += "; min-replicas-to-write is 0, so it goes on granting when it is cut off from its replicas";
            }
            let remedy = "use durability=grace, or see wait_replicas and min-replicas-to-write";
            return Finding::doubtful("replication", text, remedy);
        }
        Finding::good("replication", format!("{replicas} replicas; grants wait for {}", self.wait_replicas))
    }

    /// Refuses the server behind a new connection if it may lose locks, or does not say.
    pub(crate) async fn examine(self, link: &mut Link) -> RedisResult<()> {
        let refuse = |code: &str, text: String| Err(redis::make_extension_error(code.to_owned(), Some(text)));
        let unchecked =
            || refuse(UNCHECKED, "strict=true needs the rights to INFO and CONFIG GET".to_owned());
        let info = match Info::of_loaded(link.query(&redis::cmd("INFO")).await) {
            Err(error) if is_denied(&error) => return unchecked(),
            info => info?,
        };
        // A server that is no master gets an error of its own.
        if !info.is_master() || info.is_sentinel() {
            return Ok(());
        }
        let every_change = match link.query(&config()).await {
            Err(error) if !error.is_io_error() => None,
            answer => keeps_every_change(&answer?),
        };
        let doubts = self.doubts(&info, every_change);
        if !doubts.is_empty() {
            return refuse(
                STRICT,
                format!("strict=true, and this server may lose locks: {}", doubts.join("; ")),
            );
        }
        if every_change.is_none() { unchecked() } else { Ok(()) }
    }
}

fn eviction(info: &Info) -> Finding {
    // Every lock has an expiry, so that the policies which evict "volatile" keys evict locks.
    let policy = info.get("maxmemory_policy");
    if matches!(policy, "" | "noeviction") || info.get("maxmemory") == "0" {
        return Finding::good("eviction", "locks are not evicted");
    }
    // Records have none.
    let records = if policy.starts_with("allkeys-") { ", and the records of locks" } else { "" };
    let text = format!("its maxmemory-policy lets it evict locks that are held{records}");
    Finding::bad("eviction", text, "set it to noeviction")
}

fn persistence(info: &Info, every_change: Option<bool>) -> Finding {
    if info.get("aof_enabled") == "0" {
        let text = "it has no append-only file: locks and queues are lost when it restarts";
        return Finding::bad("persistence", text, "set appendonly and appendfsync to yes and always");
    }
    if every_change == Some(false) {
        let text = "it answers before its change is on the disk";
        let remedy = "set appendfsync to always and no-appendfsync-on-rewrite to no";
        return Finding::doubtful("persistence", text, remedy);
    }
    let text = match every_change {
        Some(_) => "grants are on the disk before they are answered",
        None => "it has an append-only file, as far as it says",
    };
    Finding::good("persistence", text)
}

/// Whether the server answers only after its change is on the disk, by its answer to [`config`].
pub(crate) fn keeps_every_change(answer: &Value) -> Option<bool> {
    let always = setting_is(answer, "appendfsync", "always")?;
    // While the file is rewritten, such a server does not wait for the disk.
    Some(always && setting_is(answer, "no-appendfsync-on-rewrite", "yes") != Some(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demands(wait_replicas: u32, by_sentinels: bool) -> Demands {
        Demands { wait_replicas, by_sentinels, grace: false }
    }

    #[test]
    fn doubts_are_told() {
        let none = demands(0, false);
        let doubts = |info: &str, every_change| none.doubts(&Info::parse(info), every_change);
        let safe = "role:master\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\nconnected_slaves:0\r\n";
        assert!(doubts(safe, Some(true)).is_empty() && doubts(safe, None).is_empty());
        assert!(doubts(safe, Some(false))[0].contains("always"));
        assert!(doubts("", None).is_empty());
        let evicts = "maxmemory:1000\r\nmaxmemory_policy:volatile-lru\r\naof_enabled:0\r\n";
        let found = doubts(evicts, Some(false));
        assert!(found.len() == 2 && found[0].contains("noeviction") && found[1].contains("append-only"));
        assert!(!found[0].contains("records"));
        let all = evicts.replace("volatile", "allkeys");
        assert!(doubts(&all, Some(false))[0].contains("locks that are held, and the records"));
    }

    #[test]
    fn only_a_server_that_tells_of_its_file_keeps_locks_over_a_restart() {
        let survives = |text: &str| Info::parse(text).survives_restart();
        assert!(survives("loading:0\r\naof_enabled:1\r\n"));
        assert!(!survives("loading:0\r\naof_enabled:0\r\n") && !survives(""));
    }

    #[test]
    fn replicas_are_a_doubt_unless_all_confirm() {
        let of = |replicas: u32, demands: Demands| {
            let info = format!("role:master\r\nconnected_slaves:{replicas}\r\naof_enabled:1\r\n");
            demands.doubts(&Info::parse(&info), Some(true)).len()
        };
        assert_eq!((of(0, demands(0, false)), of(0, demands(0, true)), of(0, demands(1, true))), (0, 1, 0));
        assert_eq!((of(1, demands(0, false)), of(1, demands(1, false)), of(1, demands(1, true))), (1, 0, 0));
        assert_eq!((of(2, demands(1, false)), of(2, demands(2, true)), of(1, demands(2, true))), (1, 0, 0));
    }

    #[test]
    fn a_master_that_may_go_on_alone_is_named_behind_sentinels() {
        let told = |more: &str, by_sentinels: bool| {
            let info = format!("role:master\r\nconnected_slaves:1\r\naof_enabled:1\r\n{more}");
            demands(0, by_sentinels).doubts(&Info::parse(&info), Some(true)).concat()
        };
        assert!(told("", true).contains("min-replicas-to-write is 0"));
        assert!(!told("min_slaves_good_slaves:1\r\n", true).contains("min-replicas-to-write is 0"));
        assert!(!told("", false).contains("min-replicas-to-write is 0"));
    }

    #[test]
    fn when_changes_reach_the_disk() {
        let text = |text: &str| Value::BulkString(text.into());
        let answer = |sync: &str, lapse: &str| {
            let names = [text("no-appendfsync-on-rewrite"), text(lapse), text("appendfsync"), text(sync)];
            keeps_every_change(&Value::Array(names.into()))
        };
        assert_eq!((answer("always", "no"), answer("everysec", "no")), (Some(true), Some(false)));
        assert_eq!((answer("always", "yes"), keeps_every_change(&Value::Nil)), (Some(false), None));
        let map = Value::Map(vec![(text("appendfsync"), text("always"))]);
        assert_eq!(keeps_every_change(&map), Some(true));
    }
}
