//! `ZooKeeper`: the packets that it received, and the watches that fired.

use crate::error::Result;
use crate::measure::counter::count::Count;
use crate::measure::floor::words::Words;

/// What all servers have counted. `None` if they do not answer.
pub(super) async fn count(words: &Words) -> Result<Option<Count>> {
    let mut sum = Count { requests: 0, wakeups: Some(0) };
    for host in &words.hosts {
        let Some(requests) = received(&words.ask(host, "srvr").await?) else { return Ok(None) };
        let wakeups = fired(&words.ask(host, "mntr").await?);
        sum = sum.and(Count { requests, wakeups });
    }
    Ok(Some(sum))
}

fn received(srvr: &str) -> Option<u64> {
    srvr.lines().find_map(|line| line.strip_prefix("Received:"))?.trim().parse().ok()
}

/// The watches that fired: for nodes that were made, changed or deleted, and for lists of children. Each is
/// counted as the mean of how many an operation fired, and as their sum.
fn fired(mntr: &str) -> Option<u64> {
    let fields = ["node_created", "node_deleted", "node_changed", "node_children"];
    let value = |name: &str| {
        let prefix = format!("zk_sum_{name}_watch_count");
        let line = mntr.lines().find_map(|line| line.strip_prefix(&*prefix))?;
        line.trim().split('.').next()?.parse::<u64>().ok()
    };
    fields.into_iter().map(value).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_found_or_missing() {
        assert_eq!(received("Zookeeper version: 3.8.0\nReceived: 42\nSent: 41\n"), Some(42));
        assert_eq!(received("srvr is not executed because it is not in the whitelist.\n"), None);
        let mntr = "zk_sum_node_created_watch_count\t1\nzk_sum_node_deleted_watch_count\t20\n\
                    zk_sum_node_changed_watch_count\t300\nzk_sum_node_children_watch_count\t4000\n";
        assert_eq!(fired(mntr), Some(4321));
        assert_eq!(fired("mntr is not executed because it is not in the whitelist.\n"), None);
    }
}
