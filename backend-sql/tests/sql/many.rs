//! Ten thousand held locks in one process: few renewals, little memory.

use std::time::Duration;

use crate::servers::{Kind, admin, client, url};

const LOCKS: usize = 10_000;
const CHUNK: usize = 250;
/// Each renewal has a quarter of it, and all leases are due together, on a busy machine.
const TTL: Duration = Duration::from_secs(24);

/// Resident memory of this process in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: usize = statm.split_whitespace().nth(1).and_then(|text| text.parse().ok()).expect("a number");
    pages * 4096
}

async fn hold_many(kind: Kind) {
    let Some(url) = url(kind, "many").await else { return };
    let locks = client(kind, &url).await;
    // The first ones pay for buffers and statements.
    let mut guards = take(&locks, "warm", 2 * CHUNK).await;
    let before = resident();
    guards.extend(take(&locks, "held", LOCKS).await);
    let each = resident().saturating_sub(before) / LOCKS;
    println!("{kind:?}: {each} bytes for each held lock");
    let start = locks.stats();
    tokio::time::sleep(Duration::from_secs(13)).await;
    let lost = guards.iter().filter(|guard| !guard.is_held()).count();
    assert_eq!(lost, 0, "{lost} of {} locks were lost: {:?}", guards.len(), locks.stats());
    let stats = locks.stats();
    let (renewals, calls) = (stats.renewals - start.renewals, stats.renewal_calls - start.renewal_calls);
    println!("{kind:?}: {renewals} renewals in {calls} calls");
    assert!(renewals >= LOCKS as u64, "every lease was renewed: {stats:?}");
    // A batch has up to 500. How full it is depends on how many locks fall due together, thus on the speed of
    // the machine.
    assert!(renewals / calls >= 100, "{renewals} renewals took {calls} calls");
    // Requests under way count as well.
    assert!(each < 1536, "a held lock costs {each} bytes");
    while !guards.is_empty() {
        let some = guards.split_off(guards.len().saturating_sub(2 * CHUNK));
        let releases: Vec<_> = some.into_iter().map(|guard| tokio::spawn(guard.release())).collect();
        for release in releases {
            release.await.expect("no panic").expect("still held");
        }
    }
}

async fn take(locks: &lockwell_core::Locks, prefix: &str, many: usize) -> Vec<lockwell_core::LockGuard> {
    let mut guards = Vec::with_capacity(many);
    // Not all at once: what is to be measured is what holding costs, not what asking costs.
    for chunk in 0..many / CHUNK {
        let tasks: Vec<_> = (0..CHUNK)
            .map(|n| {
                let request = locks.lock(format!("{prefix} {chunk} {n}")).ttl(TTL);
                tokio::spawn(request.into_future())
            })
            .collect();
        for task in tasks {
            guards.push(task.await.expect("no panic").expect("a free lock"));
        }
    }
    guards
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_locks_on_every_database() {
    for kind in [Kind::Postgres, Kind::MariaDb, Kind::Sqlite] {
        hold_many(kind).await;
    }
}

/// Several locks at once are one statement: their rows are of one transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_locks_are_taken_in_one_statement() {
    let Some(url) = url(Kind::Postgres, "several").await else { return };
    let locks = client(Kind::Postgres, &url).await;
    for round in 0..50 {
        let names: Vec<String> = (0..30).map(|n| format!("{round}/{n}")).collect();
        let all = locks.lock_all(&names).await.expect("free locks");
        let sql =
            "SELECT CAST(count(DISTINCT CAST(xmin AS text)) AS text) FROM several WHERE ends_at > now()";
        assert_eq!(admin(Kind::Postgres, &url, sql).await.trim(), "1", "round {round}");
        all.release().await.expect("held");
    }
}

/// The log of an SQLite file is moved into the file when it has 16,000 pages of 4 KiB with 24 bytes each; it
/// does not grow with every lock.
#[tokio::test]
async fn the_log_of_an_sqlite_file_stays_small() {
    let Some(url) = url(Kind::Sqlite, "small").await else { return };
    let locks = client(Kind::Sqlite, &url).await;
    for _ in 0..9_000 {
        locks.lock("a").await.expect("a free lock").release().await.expect("held");
    }
    let file = url.trim_start_matches("sqlite://").split('?').next().expect("a path");
    let log = std::fs::metadata(format!("{file}-wal")).expect("a log").len();
    assert!(log < 66_500_000, "the log has {log} bytes");
}
