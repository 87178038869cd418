//! One backend of each kind, for a reader who has a minute.

use super::cell;
use super::markdown::table;
use super::runs::Evidence;
use super::tables::most;
use crate::error::Result;
use crate::view::show;

/// The runs of the table.
pub(super) const RUNS: [&str; 3] = ["disk", "slow-disk", "default"];

/// The run, the backend, and its name for people; SYNC stands for how long a sync of the disk takes. That of the
/// first run is said of all.
const ROWS: [(&str, &str, &str); 7] = [
    ("disk", "sqlite", "SQLite"),
    ("disk", "postgres", "PostgreSQL"),
    ("slow-disk", "postgres", "PostgreSQL, syncs of SYNC"),
    ("disk", "mariadb", "MariaDB"),
    ("default", "redis", "Redis, no syncs"),
    ("disk", "zookeeper3", "ZooKeeper of 3"),
    ("disk", "etcd3", "etcd of 3"),
];

/// The table, and before it what its figures are.
pub(super) fn summary(evidence: &Evidence) -> Result<String> {
    let disk = evidence.named(RUNS[0])?;
    let head = [
        String::new(),
        "a free lock".to_owned(),
        format!("hand-over, {} processes", disk.parties("handoff")),
        "free after a kill".to_owned(),
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
            killed.map_or_else(String::new, cell::our_range),
        ]);
    }
    let sync = disk.sync_us().map_or_else(|| "?".to_owned(), show::time);
    let about = format!(
        "Medians, {} cores, syncs of {sync} (`~`: noisy, 95 % interval); a kill at a lease of 4 s: shortest and longest time (ZooKeeper: one \
         draw of 4 to 6 s):",
        disk.reports[0].machine.cores
    );
    Ok(format!("{about}\n\n{}", table(&head, rows)))
}
