//! Wake-ups between processes. Two clients are two processes here, as far as the database can tell.

use std::time::{Duration, Instant};

use lockwell_core::Locks;
use sqlx::{Connection, MySqlConnection};
use testbed::MariaDb;

use super::{RELEASES, connect, counted, options, start};
use crate::servers::{Kind, client, wait_for};

/// Behind the looks of a waiter that has just come.
const SETTLED: Duration = Duration::from_millis(400);

/// The lock is held by one and waited for by the other; then it changes hands.
async fn hand_over(holder: &Locks, waiter: &Locks) -> Duration {
    let guard = holder.lock("a").wait(Duration::from_secs(30)).await.expect("a free lock");
    let waiting = {
        let request = waiter.lock("a").wait(Duration::from_secs(30));
        tokio::spawn(async move { request.await.map(|guard| (guard, Instant::now())) })
    };
    wait_for(holder, "a", 1).await;
    tokio::time::sleep(SETTLED).await;
    let released = Instant::now();
    guard.release().await.expect("held");
    let (guard, taken) = waiting.await.expect("no panic").expect("its turn comes");
    guard.release().await.expect("held");
    taken.duration_since(released)
}

/// A waiter asks about once a second and is woken all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_wakes_a_waiter_of_another_process() {
    const ROUNDS: usize = 12;
    for release in RELEASES {
        let Some(server) = start(release, options(release)).await else { continue };
        let (one, two) = (connect(&server, "pushed").await, connect(&server, "pushed").await);
        hand_over(&one, &two).await;
        let mut took = Vec::new();
        for _ in 0..ROUNDS {
            took.push(hand_over(&one, &two).await);
        }
        took.sort_unstable();
        println!(
            "{release}: handed over in {:?} to {:?}, median {:?}",
            took[0],
            took[ROUNDS - 1],
            took[ROUNDS / 2]
        );
        // Without a push, half a second on average.
        assert!(took[ROUNDS / 2] < Duration::from_millis(250), "{release}: {took:?}");

        let guard = one.lock("a").await.expect("a free lock");
        let waiting = tokio::spawn(two.lock("a").wait(Duration::from_mins(1)).into_future());
        tokio::time::sleep(Duration::from_secs(1)).await;
        let before = counted(&server, "Questions").await;
        tokio::time::sleep(Duration::from_secs(4)).await;
        let asked = counted(&server, "Questions").await - before;
        println!("{release}: {asked} statements while one waits for four seconds");
        // Sleeps of a second, the waiter's heartbeats, a renewal.
        assert!(asked < 40, "{release}: {asked} statements while one waits");
        guard.release().await.expect("held");
        waiting.await.expect("no panic").expect("its turn comes").release().await.expect("held");
    }
}

/// Readers come in together, permits one by one, and those behind a waiter who leaves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_are_woken_as_well() {
    for release in RELEASES {
        let Some(server) = start(release, options(release)).await else { continue };
        let (one, two, three) = (
            connect(&server, "groups").await,
            connect(&server, "groups").await,
            connect(&server, "groups").await,
        );
        let mut took = Vec::new();
        for _ in 0..6 {
            let writer = one.write("a").await.expect("a free lock");
            let readers: Vec<_> = [&two, &three, &three]
                .map(|locks| tokio::spawn(locks.read("a").wait(Duration::from_secs(30)).into_future()))
                .into();
            wait_for(&one, "a", 3).await;
            tokio::time::sleep(SETTLED).await;
            let released = Instant::now();
            writer.release().await.expect("held");
            let mut guards = Vec::new();
            for reader in readers {
                guards.push(reader.await.expect("no panic").expect("they come in together"));
            }
            took.push(released.elapsed());
            let waiting = tokio::spawn(one.write("a").wait(Duration::from_secs(30)).into_future());
            tokio::time::sleep(SETTLED).await;
            let released = Instant::now();
            for guard in guards {
                guard.release().await.expect("held");
            }
            waiting.await.expect("no panic").expect("its turn comes").release().await.expect("held");
            took.push(released.elapsed());
        }
        took.sort_unstable();
        println!("{release}: {took:?}");
        assert!(took[took.len() / 2] < Duration::from_millis(250), "{release}: {took:?}");
    }
}

/// Statements of others with the same account, which run, begin and end meanwhile, are left alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_elses_statement_is_killed() {
    for release in RELEASES {
        let Some(server) = start(release, options(release)).await else { continue };
        let (one, two) = (connect(&server, "strangers").await, connect(&server, "strangers").await);
        let until = Instant::now() + Duration::from_secs(8);
        let strangers: Vec<_> = (0..8_i32)
            .map(|n| {
                let url = server.url();
                tokio::spawn(async move {
                    let mut connection = MySqlConnection::connect(&url).await.expect("a connection");
                    let mut answered = 0;
                    while Instant::now() < until {
                        let sleep =
                            sqlx::query_scalar("SELECT CAST(SLEEP(?) AS SIGNED)").bind(0.01 * f64::from(n));
                        let interrupted: i64 =
                            sleep.fetch_one(&mut connection).await.expect("not interrupted");
                        assert_eq!(interrupted, 0, "a sleep was interrupted");
                        answered += 1;
                    }
                    answered
                })
            })
            .collect();
        let mut handed = 0;
        while Instant::now() < until {
            hand_over(&one, &two).await;
            hand_over(&two, &one).await;
            handed += 2;
        }
        for stranger in strangers {
            assert!(stranger.await.expect("no stranger is disturbed") > 0);
        }
        println!("{release}: {handed} hand-overs");
    }
}

/// Whether the client of the only waiter has a parked connection.
async fn is_parked(server: &MariaDb, client: &str) -> bool {
    let sql = format!("SELECT IS_USED_LOCK('lockwell_{client}') IS NOT NULL");
    server.admin_sql(&sql).await.expect("an answer").trim() == "1"
}

/// When a process that waits is gone, so is its connection, and the next one's turn comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_waiter_is_noticed() {
    for release in RELEASES {
        let Some(server) = start(release, options(release)).await else { continue };
        let one = connect(&server, "dead").await;
        let guard = one.lock("a").await.expect("a free lock");
        let url = server.url();
        let dying = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let dying = dying.expect("a runtime");
        dying.spawn(async move {
            let locks = client(Kind::MariaDb, &format!("{url}?table=dead")).await;
            locks.lock("a").wait(Duration::from_mins(1)).await.map(drop)
        });
        let hex = loop {
            let sql = "SELECT LOWER(HEX(client)) FROM dead_waiters";
            let found = server.admin_sql(sql).await.expect("an answer").trim().to_owned();
            if !found.is_empty() {
                break found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        assert!(is_parked(&server, &hex).await, "{release}: a waiter is parked before it queues");
        dying.shutdown_background();
        let gone = Instant::now() + Duration::from_secs(30);
        while is_parked(&server, &hex).await {
            assert!(Instant::now() < gone, "{release}: the connection of the dead is still there");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let two = connect(&server, "dead").await;
        let waiting = tokio::spawn(two.lock("a").wait(Duration::from_secs(30)).into_future());
        tokio::time::sleep(SETTLED).await;
        guard.release().await.expect("held");
        waiting.await.expect("no panic").expect("its turn comes").release().await.expect("held");
    }
}

/// An account that may not kill the other's statements: waiters are not woken, and ask often enough soon.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_account_cannot_wake_and_nothing_is_lost() {
    for release in RELEASES {
        let Some(server) = start(release, options(release)).await else { continue };
        let sql = "CREATE USER app@'%'; GRANT ALL ON lockwell.* TO app@'%';";
        server.admin_sql(sql).await.expect("an administrator");
        let (root, url) = (connect(&server, "mixed").await, server.url().replace("root@", "app@"));
        let app = client(Kind::MariaDb, &format!("{url}?table=mixed")).await;
        let mut took = Vec::new();
        for _ in 0..6 {
            took.push(hand_over(&app, &root).await);
        }
        println!("{release}: handed over in {took:?}");
        assert!(took.iter().all(|one| *one < Duration::from_secs(5)), "{release}: {took:?}");
    }
}
