//! Rows that somebody's transaction has locked.

use std::time::Duration;

use lockwell_core::{Locks, Mode};
use lockwell_sql::MySqlVerify;
use sqlx::{Connection, MySqlConnection};
use testbed::MariaDb;

use super::{RELEASES, connect, counted, options, start};
use crate::servers::{claim, permit};

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
