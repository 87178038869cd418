//! Many writers on few names: the database must never have to break a deadlock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lockwell_core::{ErrorKind, Locks, Mode};

use crate::servers::{Kind, admin, client, count, mariadb, postgres, url, waiters};

const WRITERS: usize = 16;
const NAMES: usize = 4;
const ACQUIRES: usize = 10_000;
const MIXED: usize = 4_000;
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

/// What is inside a lock, so that two who must not meet are found out.
#[derive(Debug, Default)]
struct Room {
    readers: AtomicU64,
    writers: AtomicU64,
    permits: AtomicU64,
}

impl Room {
    /// Goes in, looks around, and out again.
    async fn visit(&self, mode: Mode) {
        let mine = match mode {
            Mode::Shared => &self.readers,
            Mode::Permit { .. } => &self.permits,
            _ => &self.writers,
        };
        mine.fetch_add(1, Ordering::SeqCst);
        // Long enough for those who must not be here to come in.
        tokio::time::sleep(Duration::from_millis(1)).await;
        let [readers, writers, permits] =
            [&self.readers, &self.writers, &self.permits].map(|one| one.load(Ordering::SeqCst));
        mine.fetch_sub(1, Ordering::SeqCst);
        let fits = match mode {
            Mode::Shared => writers == 0 && permits == 0,
            Mode::Permit { limit } => permits <= u64::from(limit.get()) && readers + writers == 0,
            _ => writers == 1 && readers + permits == 0,
        };
        assert!(fits, "{mode}: {readers} readers, {writers} writers, {permits} permits");
    }
}

/// Readers, writers who become readers, and semaphores; at random, by several clients, waiting and not.
async fn mixed_storm(kind: Kind, table: &str) {
    let Some(url) = url(kind, table).await else { return };
    let began = Instant::now();
    let rooms: Arc<Vec<Room>> = Arc::new((0..NAMES).map(|_| Room::default()).collect());
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(client(kind, &url).await);
    }
    let visitors: Vec<_> = (0..WRITERS)
        .map(|visitor| {
            let (locks, rooms) = (clients[visitor % CLIENTS].clone(), Arc::clone(&rooms));
            tokio::spawn(async move {
                for turn in 0..MIXED / WRITERS {
                    let at = (visitor + turn) % NAMES;
                    visit(&locks, at, &rooms[at], visitor * 7 + turn).await;
                }
            })
        })
        .collect();
    for visitor in visitors {
        visitor.await.expect("no visitor fails");
    }
    println!("{kind:?}: {MIXED} visits in {:?}", began.elapsed());
    // Claims whose callers have left are cleaned up in the background.
    let end = Instant::now() + Duration::from_secs(30);
    for table in [format!("{table}_members"), waiters(kind, table)] {
        while count(kind, &url, &table).await != "0" {
            if Instant::now() > end {
                let rows = admin(kind, &url, &format!("SELECT * FROM {table}")).await;
                let stats: Vec<_> = clients.iter().map(Locks::stats).collect();
                panic!("rows are left in {table}: {rows} {stats:?}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    for at in 0..NAMES {
        let guard = loop {
            // A writer whose caller has left may still be on its way out.
            match clients[0].permit(format!("room {at}"), 1).try_now().await {
                Ok(Some(guard)) => break guard,
                Ok(None) => assert!(Instant::now() < end, "somebody is left in room {at}"),
                Err(error) => {
                    assert!(error.kind() == ErrorKind::KindClash && Instant::now() < end, "{error:#}");
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        guard.release().await.expect("held");
    }
}

async fn visit(locks: &Locks, at: usize, room: &Room, dice: usize) {
    let name = format!("room {at}");
    let request = match (at % 2, dice % 3) {
        (0, _) => locks.permit(name, 3),
        (_, 0) => locks.write(name),
        _ => locks.read(name),
    };
    let guard = match dice % 5 {
        0 => request.try_now().await.expect("no error under contention"),
        // Whoever leaves after a moment is in the queue or just coming in.
        1 => tokio::time::timeout(Duration::from_millis(2), request.into_future())
            .await
            .ok()
            .map(|it| it.expect("no error under contention")),
        _ => Some(request.await.expect("no error under contention")),
    };
    let Some(guard) = guard else { return };
    room.visit(guard.mode()).await;
    let guard = if guard.mode() == Mode::Exclusive && dice.is_multiple_of(2) {
        let reader = guard.downgrade().await.expect("no error under contention");
        room.visit(Mode::Shared).await;
        reader
    } else {
        guard
    };
    guard.release().await.expect("no error under contention");
}

async fn postgres_deadlocks() -> String {
    let Some(server) = postgres().await else { return "0".to_owned() };
    server
        .admin_sql("SELECT sum(deadlocks) FROM pg_stat_database")
        .await
        .expect("an answer")
        .trim()
        .to_owned()
}

async fn mariadb_deadlocks() -> String {
    let Some(server) = mariadb().await else { return "0".to_owned() };
    let status = server.admin_sql("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'").await.expect("an answer");
    status.split_whitespace().last().expect("a number").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_breaks_no_deadlock() {
    storm(Kind::Postgres, "storm").await;
    assert_eq!(postgres_deadlocks().await, "0");
    mixed_storm(Kind::Postgres, "mixed").await;
    assert_eq!(postgres_deadlocks().await, "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_breaks_no_deadlock() {
    storm(Kind::MariaDb, "storm").await;
    assert_eq!(mariadb_deadlocks().await, "0");
    mixed_storm(Kind::MariaDb, "mixed").await;
    assert_eq!(mariadb_deadlocks().await, "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_keeps_groups_apart() {
    mixed_storm(Kind::Sqlite, "mixed").await;
}
