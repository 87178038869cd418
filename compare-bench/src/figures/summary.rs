//! One backend of each kind, for a reader who has a minute.

use super::cell;
use super::runs::Evidence;
use super::tables::{most, table};
use crate::error::Result;
use crate::view::show;

/// The runs of the table.
pub(super) const RUNS: [&str; 3] = ["disk", "slow-disk", "default"];

/// The run, the backend, and its name for people; SYNC stands for how long a sync of the disk takes.
const ROWS: [(&str, &str, &str); 7] = [
    ("disk", "sqlite", "SQLite"),
    ("disk", "postgres", "PostgreSQL, syncs of SYNC"),
    ("slow-disk", "postgres", "PostgreSQL, syncs of SYNC"),
    ("disk", "mariadb", "MariaDB"),
    ("default", "redis", "Redis as installed"),
    ("disk", "zookeeper3", "ZooKeeper of 3"),
    ("disk", "etcd3", "etcd of 3"),
];

/// The table.
pub(super) fn summary(evidence: &Evidence) -> Result<String> {
    let disk = evidence.named(RUNS[0])?;
    let head = [
        String::new(),
        "a free lock".to_owned(),
        format!("hand-over, {} processes", disk.parties("handoff")),
        "its holder was killed".to_owned(),
    ];
    let mut rows = Vec::new();
    for (run, backend, name) in ROWS {
        let run = evidence.named(run)?;
        let of = |workload| most(run, backend, workload).map_or_else(String::new, cell::ours);
        let sync = run.sync_us().map_or_else(|| "?".to_owned(), show::time);
        // No disk decides how long a lease is.
        let killed = run.killed(backend).or_else(|| disk.killed(backend));
        rows.push(vec![
            name.replace("SYNC", &sync),
            of("uncontended"),
            of("handoff"),
            killed.map_or_else(String::new, cell::range),
        ]);
    }
    Ok(table(&head, rows))
}
