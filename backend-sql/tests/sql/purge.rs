//! The purge, beside those who use the tables.

use std::time::{Duration, Instant};

use lockwell_sql::{MySqlLock, PostgresLock, SqliteLock};

use crate::servers::{ALL, Kind, admin, client, count, url};

/// How many rows nobody has used for long.
const IDLE: u32 = 60_000;

fn fill(kind: Kind) -> String {
    let columns = "INSERT INTO idle (name, owner, token, acquired_at, label)";
    match kind {
        Kind::Postgres => format!(
            "{columns} SELECT 'idle/' || n, '00000000-0000-0000-0000-000000000001'::uuid, n, now() - interval '2 days', ''
            FROM generate_series(1, {IDLE}) AS n"
        ),
        Kind::MariaDb => format!(
            "SET SESSION max_recursive_iterations = {IDLE}; {columns}
            WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {IDLE})
            SELECT CONCAT('idle/', n), REPEAT('x', 16), n, 1000, '' FROM s"
        ),
        Kind::Sqlite => format!(
            "{columns} WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {IDLE})
            SELECT 'idle/' || n, zeroblob(16), n, 1000, '' FROM s"
        ),
    }
}

/// What purges, and nothing else.
pub(crate) enum Purger {
    Sqlite(SqliteLock),
    Postgres(PostgresLock),
    MariaDb(MySqlLock),
}

impl Purger {
    pub(crate) async fn connect(kind: Kind, url: &str) -> Self {
        let url = url.parse().expect("an address");
        match kind {
            Kind::Sqlite => Self::Sqlite(SqliteLock::connect(&url).await.expect("connects")),
            Kind::Postgres => Self::Postgres(PostgresLock::connect(&url).await.expect("connects")),
            Kind::MariaDb => Self::MariaDb(MySqlLock::connect(&url).await.expect("connects")),
        }
    }

    pub(crate) async fn purge(&self, idle: Duration) -> u64 {
        match self {
            Self::Sqlite(lock) => lock.purge(idle).await,
            Self::Postgres(lock) => lock.purge(idle).await,
            Self::MariaDb(lock) => lock.purge(idle).await,
        }
        .expect("an answer")
    }
}

/// The purge of many rows goes on beside requests of the same process and of others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_a_purge() {
    for kind in ALL {
        let Some(url) = url(kind, "idle").await else { continue };
        let locks = client(kind, &url).await;
        admin(kind, &url, &fill(kind)).await;
        assert_eq!(count(kind, &url, "idle").await, IDLE.to_string(), "{kind:?}");
        let used = locks.lock("in use").await.expect("free");
        let purger = Purger::connect(kind, &url).await;
        let purging = tokio::spawn(async move {
            let began = Instant::now();
            (purger.purge(Duration::from_hours(1)).await, began.elapsed())
        });
        let (mut longest, mut pairs) = (Duration::ZERO, 0);
        while !purging.is_finished() {
            let began = Instant::now();
            locks.lock("beside").await.expect("free").release().await.expect("ours");
            longest = longest.max(began.elapsed());
            pairs += 1;
        }
        let (gone, took) = purging.await.expect("no panic");
        println!("{kind:?}: {gone} rows in {took:?}; {pairs} pairs beside, the longest {longest:?}");
        assert_eq!(gone, u64::from(IDLE), "{kind:?}");
        assert!(longest < took / 4, "{kind:?}: {longest:?} of {took:?}");
        used.release().await.expect("it was spared");
    }
}

/// A row that a transaction has locked is not waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_in_use_is_passed_over() {
    for kind in [Kind::Postgres, Kind::MariaDb] {
        let Some(url) = url(kind, "passed").await else { continue };
        let locks = client(kind, &url).await;
        locks.lock("a").await.expect("free").release().await.expect("ours");
        locks.lock("b").await.expect("free").release().await.expect("ours");
        let hold = match kind {
            Kind::Postgres => {
                "BEGIN; SELECT 1 FROM passed WHERE name = 'a' FOR UPDATE; SELECT pg_sleep(2); COMMIT"
            }
            _ => "BEGIN; SELECT 1 FROM passed WHERE name = 'a' FOR UPDATE; DO SLEEP(2); COMMIT",
        };
        let purger = Purger::connect(kind, &url).await;
        let holding = tokio::spawn({
            let url = url.clone();
            async move { admin(kind, &url, hold).await }
        });
        tokio::time::sleep(Duration::from_millis(500)).await;
        let began = Instant::now();
        assert_eq!(purger.purge(Duration::ZERO).await, 1, "{kind:?}");
        assert!(began.elapsed() < Duration::from_secs(1), "{kind:?}: {:?}", began.elapsed());
        holding.await.expect("no panic");
    }
}
