//! Rows that somebody's transaction has locked.

use std::time::{Duration, Instant};

use lockwell_core::{Locks, Mode};
use lockwell_sql::MySqlVerify;
use sqlx::{Connection, MySqlConnection};
use testbed::{MariaDb, Proxy};

use super::{RELEASES, connect, counted, options, start};
use crate::servers::{Kind, claim, client, permit, wait_for};

/// Asks for a lock in every way.
async fn ask(locks: &Locks, name: &str, others: &[&str]) {
    for _ in 0..3 {
        assert!(locks.lock(name).try_now().await.expect("an answer").is_none(), "the row is locked");
        assert!(locks.read(name).try_now().await.is_ok_and(|guard| guard.is_none()), "the row is locked");
        let mut claims = vec![claim(name, Mode::Exclusive, Duration::from_secs(20))];
        claims.extend(others.iter().map(|name| claim(name, Mode::Exclusive, Duration::from_secs(20))));
        let answers = locks.backend().acquire_each(&claims).await;
        let granted: Vec<bool> =
            answers.into_iter().map(|answer| answer.expect("an answer").is_some()).collect();
        assert!(!granted[0] && granted[1..].iter().all(|granted| *granted), "{granted:?}");
        for claim in &claims {
            locks.backend().release(claim).await.expect("an answer");
        }
    }
}

async fn waits(server: &MariaDb) -> u64 {
    counted(server, "Innodb_row_lock_waits").await
}

/// A transaction that has verified a lock keeps its row. Who asks for that lock is refused without waiting
/// for the row, and so does not hold up the other requests of its process; before its lease has ended, and
/// afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_a_row_that_a_transaction_has_verified() {
    for release in RELEASES {
        let Some(server) = start(release, options(release)).await else { continue };
        let (holder, other) = (connect(&server, "blocked").await, connect(&server, "blocked").await);
        let mine = claim("a", Mode::Exclusive, Duration::from_millis(1500));
        let grant = holder.backend().acquire(&mine).await.expect("an answer").expect("a free lock");
        let mut connection = MySqlConnection::connect(&server.url()).await.expect("a connection");
        let mut transaction = connection.begin().await.expect("a transaction");
        MySqlVerify::verify_in(&grant, &mut transaction).await.expect("held");
        let before = waits(&server).await;
        ask(&other, "a", &["b", "c"]).await;
        assert_eq!(waits(&server).await, before, "{release}: a row was waited for while the lease lasts");
        tokio::time::sleep(Duration::from_secs(2)).await;
        ask(&other, "a", &["b", "c"]).await;
        assert_eq!(waits(&server).await, before, "{release}: a row was waited for after the lease");
        let slot = claim("a", permit(2), Duration::from_secs(20));
        assert!(other.backend().acquire(&slot).await.is_ok_and(|granted| granted.is_none()), "{release}");
        assert_eq!(waits(&server).await, before, "{release}: a row was waited for by a permit");
        transaction.rollback().await.expect("rolled back");
        other.lock("a").await.expect("the lease has ended").release().await.expect("held");
    }
}

/// Claims that ask again after a lost answer, together, while somebody has locked the row of one of them: its
/// lease has ended and does not begin anew, so it is not granted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_has_not_begun_anew_is_not_granted_again() {
    for release in RELEASES {
        let Some(server) = start(release, options(release)).await else { continue };
        let locks = connect(&server, "skipped").await;
        let ttl = Duration::from_millis(500);
        let claims = ["a", "b"].map(|name| claim(name, Mode::Exclusive, ttl));
        for (is_locked, expected) in [(false, [true, true]), (true, [false, true])] {
            let mut connection = MySqlConnection::connect(&server.url()).await.expect("a connection");
            let mut transaction = connection.begin().await.expect("a transaction");
            if is_locked {
                tokio::time::sleep(ttl * 2).await;
                let row = sqlx::query("SELECT 1 FROM skipped WHERE name = 'a' FOR UPDATE");
                row.execute(&mut *transaction).await.expect("the row is locked");
            }
            let answers = locks.backend().acquire_each(&claims).await;
            let granted: Vec<bool> =
                answers.into_iter().map(|answer| answer.expect("an answer").is_some()).collect();
            assert_eq!(granted, expected, "{release}");
            transaction.rollback().await.expect("rolled back");
        }
    }
}

/// A claim that gives up in front of a locked row leaves no place behind, although its last request and its
/// release go over different connections. A place of a client that waits for something else is kept alive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_gives_up_leaves_no_place() {
    const LONG: Duration = Duration::from_mins(2);
    for release in RELEASES {
        let Some(server) = start(release, options(release)).await else { continue };
        let holder = connect(&server, "given_up").await;
        let proxy = Proxy::start(server.addr()).await.expect("a proxy");
        let address = format!("{}?table=given_up", server.url_via(proxy.addr()));
        let far = client(Kind::MariaDb, &address).await;
        let other = holder.lock("other").ttl(LONG).await.expect("a free lock");
        let waiting = tokio::spawn(far.lock("other").wait(LONG).into_future());
        wait_for(&holder, "other", 1).await;
        let guard = holder.lock("a").ttl(LONG).await.expect("a free lock");
        let mut connection = MySqlConnection::connect(&server.url()).await.expect("a connection");
        let mut transaction = connection.begin().await.expect("a transaction");
        MySqlVerify::verify_in(&guard, &mut transaction).await.expect("held");
        proxy.delay(Duration::from_millis(15));
        for turn in 0..12_u32 {
            let wait = Duration::from_millis(500) + Duration::from_millis(11) * turn;
            far.lock("a").wait(wait).await.expect_err("it is held");
        }
        proxy.delay(Duration::ZERO);
        wait_for(&holder, "a", 0).await;
        // Nobody comes back.
        tokio::time::sleep(Duration::from_millis(500)).await;
        wait_for(&holder, "a", 0).await;
        transaction.rollback().await.expect("rolled back");
        guard.release().await.expect("held");
        other.release().await.expect("held");
        waiting.await.expect("no panic").expect("its turn").release().await.expect("held");
    }
}

/// Readers who come while a transaction has locked the row cannot mark it, so the release does not look for
/// them. They have the lock soon all the same, and not only when their client looks by itself, once a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_behind_a_locked_row_have_their_turn_soon() {
    for release in RELEASES {
        let Some(server) = start(release, options(release)).await else { continue };
        let holder = connect(&server, "unmarked").await;
        let mut connection = MySqlConnection::connect(&server.url()).await.expect("a connection");
        let mut took = Vec::new();
        // A new lock, whose row is not marked, and a new client: one that has missed a turn looks more often.
        for name in ["a", "b", "c", "d", "e"] {
            let other = connect(&server, "unmarked").await;
            let guard = holder.lock(name).ttl(Duration::from_secs(20)).await.expect("a free lock");
            let mut transaction = connection.begin().await.expect("a transaction");
            MySqlVerify::verify_in(&guard, &mut transaction).await.expect("held");
            let waiting = tokio::spawn(other.read(name).wait(Duration::from_secs(20)).into_future());
            wait_for(&holder, name, 1).await;
            // Its first tries are over by then.
            tokio::time::sleep(Duration::from_millis(100)).await;
            transaction.rollback().await.expect("rolled back");
            let released = Instant::now();
            guard.release().await.expect("held");
            let reader = waiting.await.expect("no panic").expect("its turn");
            took.push(released.elapsed());
            reader.release().await.expect("held");
        }
        took.sort_unstable();
        println!("{release}: {took:?}");
        // The middle one, since the others tell how busy the machine is.
        assert!(took[took.len() / 2] < Duration::from_millis(500), "{release}: {took:?}");
    }
}
