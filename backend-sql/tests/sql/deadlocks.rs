//! Many writers on few names: the database must never have to break a deadlock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::servers::{Kind, client, mariadb, postgres, url};

const WRITERS: usize = 16;
const NAMES: usize = 4;
const ACQUIRES: usize = 10_000;
const CLIENTS: usize = 4;

async fn storm(kind: Kind, table: &str) {
    let Some(url) = url(kind, table).await else { return };
    let counters: Arc<Vec<AtomicU64>> = Arc::new((0..NAMES).map(|_| AtomicU64::new(0)).collect());
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(client(kind, &url).await);
    }
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (locks, counters) = (clients[writer % CLIENTS].clone(), Arc::clone(&counters));
            tokio::spawn(async move {
                for turn in 0..ACQUIRES / WRITERS {
                    let at = (writer + turn) % NAMES;
                    let guard = locks.lock(format!("name {at}")).await.expect("no error under contention");
                    // Two steps that another holder would tear apart.
                    let seen = counters[at].load(Ordering::Relaxed);
                    tokio::task::yield_now().await;
                    counters[at].store(seen + 1, Ordering::Relaxed);
                    guard.release().await.expect("no error under contention");
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.expect("no writer fails");
    }
    let counted: u64 = counters.iter().map(|counter| counter.load(Ordering::Relaxed)).sum();
    assert_eq!(counted, (ACQUIRES / WRITERS * WRITERS) as u64, "updates were lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_breaks_no_deadlock() {
    storm(Kind::Postgres, "storm").await;
    let Some(server) = postgres().await else { return };
    let deadlocks = server.admin_sql("SELECT sum(deadlocks) FROM pg_stat_database").await.expect("an answer");
    assert_eq!(deadlocks.trim(), "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_breaks_no_deadlock() {
    storm(Kind::MariaDb, "storm").await;
    let Some(server) = mariadb().await else { return };
    let status = server.admin_sql("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'").await.expect("an answer");
    assert_eq!(status.split_whitespace().last(), Some("0"), "{status}");
}
