//! What a request costs where the tables are large: scans, and on PostgreSQL versions of rows.

use std::time::Duration;

use lockwell_core::{DistributedLock, Locks, Mode};
use lockwell_sql::{MySqlLock, PostgresLock};
use testbed::{MariaDb, Postgres, if_installed};

use crate::servers::{Kind, backend, claim, client, options, permit, wait_for};

/// How many locks nobody uses, and how many members and waiters other locks have.
const IDLE: u32 = 200_000;
const OTHERS: u32 = 5_000;
const TIMES: u64 = 12;
const LONG: Duration = Duration::from_secs(30);

async fn start() -> Option<Postgres> {
    // Only what is asked for here changes the tables.
    if_installed(Postgres::start_with(&options().setting("autovacuum", "off")).await)
}

async fn fill(server: &Postgres) {
    let columns = "(name, owner, token, ends_at, acquired_at, label, mode, members)";
    let sql = format!(
        "INSERT INTO large (name, owner, token, acquired_at, label)
             SELECT 'idle/' || n, gen_random_uuid(), n, now(), '' FROM generate_series(1, {IDLE}) AS n;
         INSERT INTO large {columns} SELECT 'group/' || n, '00000000-0000-0000-0000-000000000000', n, '9999-12-31', now(), '', -1, 1
             FROM generate_series(1, {OTHERS}) AS n;
         INSERT INTO large_members SELECT 'group/' || n, gen_random_uuid(), n, now() + interval '1 hour', now(), '', -1
             FROM generate_series(1, {OTHERS}) AS n;
         INSERT INTO large_clients VALUES ('00000000-0000-0000-0000-000000000001', now() + interval '1 hour', 1);
         INSERT INTO large_waiters (name, owner, client, number, label, mode, tokens)
             SELECT 'group/' || n, gen_random_uuid(), '00000000-0000-0000-0000-000000000001', n, '', 0, 1
             FROM generate_series(1, {OTHERS}) AS n;
         ANALYZE"
    );
    server.admin_sql(&sql).await.expect("an administrator");
}

/// A number that the server counts for a table. The sessions that have changed it are closed.
async fn counted(server: &Postgres, table: &str, counter: &str) -> u64 {
    // A session reports when it ends.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let sql = format!("SELECT {counter} FROM pg_stat_user_tables WHERE relname = '{table}'");
    server.admin_sql(&sql).await.expect("an answer").trim().parse().expect("a number")
}

/// A lock goes from one client to the other.
async fn pass(one: &Locks, two: &Locks, name: &str) {
    let guard = one.lock(name).await.expect("a free lock");
    let waiting = tokio::spawn(two.lock(name).wait(LONG).into_future());
    wait_for(one, name, 1).await;
    guard.release().await.expect("held");
    waiting.await.expect("no panic").expect("its turn").release().await.expect("held");
}

/// What the tests of this file count: requests of each kind, so often that their plans are the ones that the
/// server keeps.
async fn use_all(kind: Kind, url: &str) {
    let lock = backend(kind, url).await.expect("connects");
    for turn in 0..TIMES {
        for mode in [Mode::Exclusive, Mode::Shared, permit(2)] {
            let claims = || (0..3).map(|n| claim(&format!("{mode} {n}"), mode, LONG)).collect::<Vec<_>>();
            let mine = claims();
            let grant = lock.acquire(&mine[0]).await.expect("an answer").expect("a free lock");
            let other = claim(mine[0].name().as_str(), Mode::Exclusive, LONG);
            drop(lock.acquire(&other).await);
            drop(lock.renew(&[grant], crate::servers::soon()).await);
            lock.release(&mine[0]).await.expect("an answer");
            let mine = claims();
            for answer in lock.acquire_each(&mine).await {
                answer.expect("an answer").expect("a free lock");
            }
            futures_util::future::join_all(mine.iter().map(|one| lock.release(one))).await;
            // A new lock, and a member that is dead.
            let dead = claim(&format!("{mode} new {turn}"), mode, Duration::from_millis(1));
            lock.acquire(&dead).await.expect("an answer").expect("a free lock");
            tokio::time::sleep(Duration::from_millis(5)).await;
            let next = claim(dead.name().as_str(), Mode::Exclusive, LONG);
            lock.acquire(&next).await.expect("an answer").expect("the lease has ended");
            lock.inspect(next.name()).await.expect("an answer");
            lock.force_release(next.name()).await.expect("an answer");
        }
    }
    lock.close().await;
    let (one, two) = (client(kind, url).await, client(kind, url).await);
    for _ in 0..TIMES {
        pass(&one, &two, "passed").await;
    }
    // Readers and a writer in the queue, and looks of the waiters.
    let reader = one.read("book").await.expect("a free lock");
    let writing = tokio::spawn(two.write("book").wait(LONG).into_future());
    wait_for(&one, "book", 1).await;
    let reading = tokio::spawn(one.read("book").wait(LONG).into_future());
    wait_for(&one, "book", 2).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    reader.release().await.expect("held");
    writing.await.expect("no panic").expect("its turn").release().await.expect("held");
    reading.await.expect("no panic").expect("its turn").release().await.expect("held");
    one.close().await.expect("closed");
    two.close().await.expect("closed");
}

/// No request scans a table of locks, members or waiters, and the purge scans that of the locks by its key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_scans_a_large_table() {
    let Some(server) = start().await else { return };
    let url = server.url() + "?table=large&purge_after=0s";
    drop(client(Kind::Postgres, &url).await);
    fill(&server).await;
    let mut before = Vec::new();
    for table in ["large", "large_members", "large_waiters"] {
        before.push((table, counted(&server, table, "seq_scan").await));
    }
    use_all(Kind::Postgres, &url).await;
    for (table, before) in before {
        let scans = counted(&server, table, "seq_scan").await - before;
        assert_eq!(scans, 0, "scans of {table}");
    }
    let before = counted(&server, "large", "seq_scan").await;
    let lock = PostgresLock::connect(&url.parse().expect("an address")).await.expect("connects");
    // Nothing is old enough.
    assert_eq!(lock.purge(Duration::from_hours(1)).await.expect("an answer"), 0);
    lock.close().await;
    assert_eq!(counted(&server, "large", "seq_scan").await - before, 0, "scans by the purge");
}

/// The same on MariaDB, which counts the rows that scans have read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_scans_a_large_table_of_mariadb() {
    let Some(server) = if_installed(MariaDb::start_with(&options()).await) else { return };
    let url = server.url() + "?table=large&purge_after=0s";
    drop(client(Kind::MariaDb, &url).await);
    let sql = format!(
        "SET @now = UNIX_TIMESTAMP() * 1000000;
         SET @later = @now + 3600000000;
         INSERT INTO large (name, owner, token, acquired_at, label)
             SELECT CONCAT('idle/', seq), UNHEX(MD5(seq)), seq, @now, '' FROM seq_1_to_{IDLE};
         INSERT INTO large (name, owner, token, expires_at, acquired_at, label, mode, members)
             SELECT CONCAT('group/', seq), REPEAT(CHAR(0), 16), seq, @later, @now, '', -1, 1 FROM seq_1_to_{OTHERS};
         INSERT INTO large_members
             SELECT CONCAT('group/', seq), UNHEX(MD5(seq)), seq, @later, @now, '', -1 FROM seq_1_to_{OTHERS};
         INSERT INTO large_clients VALUES (UNHEX(MD5('client')), @later, 1);
         INSERT INTO large_waiters (owner, name, client, number, label, mode, tokens, entered_at)
             SELECT UNHEX(MD5(seq)), CONCAT('group/', seq), UNHEX(MD5('client')), seq, '', 0, 1, @now
             FROM seq_1_to_{OTHERS};
         ANALYZE TABLE large, large_members, large_waiters"
    );
    server.admin_sql(&sql).await.expect("an administrator");
    let read = async || {
        let sql = "SHOW GLOBAL STATUS LIKE 'Handler_read_rnd_next'";
        let answer = server.admin_sql(sql).await.expect("an answer");
        answer.split_whitespace().next_back().expect("a number").parse::<u64>().expect("a number")
    };
    let before = read().await;
    use_all(Kind::MariaDb, &url).await;
    let rows = read().await - before;
    let lock = MySqlLock::connect(&url.parse().expect("an address")).await.expect("connects");
    assert_eq!(lock.purge(Duration::from_hours(1)).await.expect("an answer"), 0);
    lock.close().await;
    let purged = read().await - before - rows;
    println!("{rows} rows were read by scans, and then {purged} by the purge");
    // Arguments, and what another step has found.
    assert!(rows < u64::from(OTHERS * 4), "{rows} rows read by scans");
    // The names of its portions, each once.
    assert!(purged < u64::from(IDLE + OTHERS * 4), "{purged} rows read by the purge");
}

/// What a hand-over leaves behind: versions of rows that are in the page of the row, so that the next use of
/// the page removes them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_leaves_few_versions_of_rows() {
    const PASSES: u64 = 200;
    let Some(server) = start().await else { return };
    let url = server.url() + "?table=versions&purge_after=0s";
    let (one, two) = (client(Kind::Postgres, &url).await, client(Kind::Postgres, &url).await);
    for _ in 0..PASSES {
        pass(&one, &two, "passed").await;
    }
    one.close().await.expect("closed");
    two.close().await.expect("closed");
    let mut numbers = Vec::new();
    for counter in ["n_tup_upd", "n_tup_hot_upd", "n_dead_tup"] {
        numbers.push(counted(&server, "versions", counter).await);
    }
    let [updates, hot, dead] = numbers[..] else { unreachable!("three") };
    let places = counted(&server, "versions_waiters", "n_dead_tup").await;
    println!(
        "{PASSES} hand-overs: {updates} updates of the lock's row, {hot} of them HOT, {dead} dead; {places} dead places"
    );
    // An acquire, a place, the release that hands over, and the last release.
    assert!(updates <= 5 * PASSES, "{updates} updates");
    assert!(hot * 10 >= updates * 9, "{hot} of {updates} updates are HOT");
    assert!(dead < 200, "{dead} dead versions");
}
