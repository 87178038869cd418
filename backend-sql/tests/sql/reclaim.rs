//! Tables of PostgreSQL on which grants wait for no disk: holders whose records a crash has lost.

use std::time::Duration;

use lockwell_core::{DistributedLock, ErrorKind, Grant, Mode, RecordKind, RecordWrite, Renewal};
use lockwell_sql::{PostgresLock, PostgresVerify};
use sqlx::Connection;
use testbed::{Postgres, if_installed};

use crate::crash::crash;
use crate::grace::{LONGEST, forgetful_for, is_closed, is_granted_later, lazy_at_once, record, write_out};
use crate::servers::{Kind, backend, claim, client, options, session, soon};

/// No lease ends while a test runs.
const LONG: Duration = Duration::from_mins(5);

/// A server that writes out nothing by itself, and the address of tables with a long grace period.
async fn long(table: &str) -> Option<(Postgres, String)> {
    forgetful_for(table, "5m").await
}

async fn granted(lock: &dyn DistributedLock, name: &str) -> Grant {
    lock.acquire(&claim(name, Mode::Exclusive, LONG)).await.expect("an answer").expect("a free lock")
}

/// What the renewal of each says, in words.
async fn renewed(lock: &dyn DistributedLock, grants: &[Grant]) -> Vec<&'static str> {
    let word = |renewal: &Renewal| match renewal {
        Renewal::Renewed(_) => "renewed",
        Renewal::Lost => "lost",
        _ => "unknown",
    };
    lock.renew(grants, soon()).await.iter().map(word).collect()
}

/// The record of the holder before is back, and is what the administrator sees.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forced_release_of_an_old_record_stands() {
    let Some((server, url)) = long("old").await else { return };
    let lock = backend(Kind::Postgres, &url).await.expect("a connection");
    let before = granted(&*lock, "a").await;
    write_out(&server).await;
    lock.release(before.claim()).await.expect("an answer");
    let later = granted(&*lock, "a").await;
    crash(&server).await;
    assert_eq!(record(&server, "old", "a").await, before.token().to_string());
    assert_eq!(lock.force_release(later.claim().name()).await.expect("an answer"), 1);
    assert_eq!(renewed(&*lock, &[later]).await, ["lost"]);
    // A second crash changes nothing.
    crash(&server).await;
    assert_eq!(renewed(&*lock, &[before]).await, ["lost"]);
}

/// The row of a lock that was held for long is old. Without it the holder could reclaim the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forced_release_stands_when_the_purge_comes() {
    let Some((server, url)) = long("purged").await else { return };
    let lock = PostgresLock::connect(&url.parse().expect("an address")).await.expect("a connection");
    let held = granted(&lock, "a").await;
    let long_ago = "UPDATE purged SET acquired_at = acquired_at - interval '2 hours' WHERE name = 'a'";
    server.admin_sql(long_ago).await.expect("changed");
    assert_eq!(lock.force_release(held.claim().name()).await.expect("an answer"), 1);
    assert_eq!(lock.purge(Duration::from_hours(1)).await.expect("an answer"), 0);
    assert_eq!(renewed(&lock, &[held]).await, ["lost"]);
}

/// What a failover takes without a trace may be another's by now. A crash leaves the mark of before it nowhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_granted_under_the_present_mark_is_not_reclaimed() {
    let Some((server, url)) = long("present").await else { return };
    let lock = backend(Kind::Postgres, &url).await.expect("a connection");
    let [gone, lost] = [granted(&*lock, "a").await, granted(&*lock, "b").await];
    server.admin_sql("DELETE FROM present WHERE name = 'a'").await.expect("as on a replica that lacks it");
    assert_eq!(renewed(&*lock, &[gone]).await, ["lost"]);
    crash(&server).await;
    server.admin_sql("DELETE FROM present WHERE name = 'b'").await.expect("it may be there");
    assert_eq!(renewed(&*lock, &[lost]).await, ["renewed"]);
}

/// Nobody else can have had the lock. A renewal that is on its way does not take it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_released_before_it_is_reclaimed_was_held() {
    let Some((server, url)) = long("let_go").await else { return };
    let locks = client(Kind::Postgres, &url).await;
    write_out(&server).await;
    let writer = locks.lock("a").ttl(LONG).await.expect("a free lock");
    let reader = locks.read("b").ttl(LONG).await.expect("a free lock");
    let grant = writer.grant().clone();
    crash(&server).await;
    // A release whose answer is lost with the old connection would be in doubt anyway.
    is_closed(&locks, "c").await;
    for guard in [writer, reader] {
        guard.release().await.expect("held");
    }
    assert_eq!(renewed(&**locks.backend(), &[grant]).await, ["lost"]);
    assert!(!locks.inspect("a").await.expect("an answer").is_held(), "nobody would release it");
}

/// The record of a reader that has left is back. It is not one of those who hold the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_has_left_goes_when_the_next_holder_comes_back() {
    let Some((server, url)) = long("left").await else { return };
    let lock = backend(Kind::Postgres, &url).await.expect("a connection");
    let reader = claim("a", Mode::Shared, LONG);
    lock.acquire(&reader).await.expect("an answer").expect("a free lock");
    write_out(&server).await;
    lock.release(&reader).await.expect("an answer");
    let writer = granted(&*lock, "a").await;
    crash(&server).await;
    assert_eq!(renewed(&*lock, std::slice::from_ref(&writer)).await, ["renewed"]);
    for _ in 0..2 {
        let status = lock.inspect(writer.claim().name()).await.expect("an answer");
        assert_eq!(status.holders.len(), 1, "{status:?}");
        lock.downgrade(&writer).await.expect("held");
    }
}

/// Nor are they lost. A hold whose row is there reads, since no record was lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_wait_for_a_holder_that_has_lost_its_row() {
    let Some((server, url)) = long("unread").await else { return };
    let lock = backend(Kind::Postgres, &url).await.expect("a connection");
    let read = async |grant: &Grant| {
        let read = lock.read_record(grant.claim().name(), RecordKind::Value, Some(grant)).await;
        read.map(|record| record.map(|record| record.value)).map_err(|error| error.kind())
    };
    let write = RecordWrite { kind: RecordKind::Value, number: 1, value: b"x" };
    let before = granted(&*lock, "a").await;
    lock.write_record(&before, write).await.expect("held");
    lock.release(before.claim()).await.expect("an answer");
    write_out(&server).await;
    let writer = granted(&*lock, "a").await;
    let reader = claim("b", Mode::Shared, LONG);
    let reader = lock.acquire(&reader).await.expect("an answer").expect("a free lock");
    crash(&server).await;
    let error = lock.write_record(&writer, write).await.expect_err("nobody knows");
    assert_eq!(error.kind(), ErrorKind::GracePeriod, "{error:#}");
    for grant in [&writer, &reader] {
        assert_eq!(read(grant).await, Err(ErrorKind::GracePeriod));
    }
    assert_eq!(renewed(&*lock, std::slice::from_ref(&writer)).await, ["renewed"]);
    assert_eq!(read(&writer).await, Ok(Some(b"x".to_vec())));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_verified_before_a_holder_has_its_record_again() {
    let Some((server, url)) = long("unverified").await else { return };
    let lock = backend(Kind::Postgres, &url).await.expect("a connection");
    write_out(&server).await;
    let grant = granted(&*lock, "a").await;
    crash(&server).await;
    for _ in 0..2 {
        let mut session = session(&url).await;
        let mut transaction = session.begin().await.expect("a transaction");
        let error = grant.verify_in(&mut transaction).await.expect_err("nobody knows");
        assert_eq!(error.kind(), ErrorKind::GracePeriod, "{error:#}");
        assert_eq!(renewed(&*lock, std::slice::from_ref(&grant)).await, ["renewed"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_whose_record_is_lost_becomes_a_reader() {
    let Some((server, url)) = long("downgraded").await else { return };
    let locks = client(Kind::Postgres, &url).await;
    write_out(&server).await;
    let writer = locks.write("a").ttl(LONG).await.expect("a free lock");
    let forced = granted(&**locks.backend(), "b").await;
    crash(&server).await;
    let reader = writer.downgrade().await.expect("held");
    assert_eq!(record(&server, "downgraded_members", "a").await, reader.token().to_string());
    locks.force_release("b").await.expect("an answer");
    let error = locks.backend().downgrade(&forced).await.expect_err("it was freed");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error:#}");
    reader.release().await.expect("held");
}

/// One is another's by now, who has verified it, and two are the same lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_lease_is_no_harm_to_the_others() {
    let Some((server, url)) = long("batch").await else { return };
    let lock = backend(Kind::Postgres, &url).await.expect("a connection");
    let mut grants = Vec::new();
    for name in ["known", "taken", "twice"] {
        grants.push(granted(&*lock, name).await);
    }
    let end = "UPDATE batch SET ends_at = clock_timestamp() WHERE name IN ('taken', 'twice')";
    server.admin_sql(end).await.expect("ended");
    let other = granted(&*lock, "taken").await;
    grants.push(granted(&*lock, "twice").await);
    let mut session = session(&url).await;
    let mut transaction = session.begin().await.expect("a transaction");
    other.verify_in(&mut transaction).await.expect("it is held");
    let lose = "DELETE FROM batch WHERE name = 'twice'; DELETE FROM batch_mark";
    server.admin_sql(lose).await.expect("as after a crash");
    assert_eq!(renewed(&*lock, &grants).await, ["renewed", "lost", "lost", "renewed"]);
    transaction.rollback().await.expect("it ends");

    // The record of the holder before is back, and a transaction has locked it.
    let back = "UPDATE batch SET token = 1, owner = gen_random_uuid() WHERE name = 'twice'";
    server.admin_sql(back).await.expect("changed");
    let mut transaction = session.begin().await.expect("a transaction");
    let lock_row = sqlx::query("SELECT FROM batch WHERE name = 'twice' FOR SHARE");
    lock_row.execute(&mut *transaction).await.expect("locked");
    assert_eq!(renewed(&*lock, &grants).await, ["renewed", "lost", "lost", "unknown"]);
    transaction.rollback().await.expect("it ends");
    assert_eq!(renewed(&*lock, &grants).await, ["renewed", "lost", "lost", "renewed"]);
}

/// It is not lost with the session, nor with the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prepared_transaction_that_has_verified_a_lock_excludes_others_over_a_crash() {
    let settings = options().setting("wal_writer_delay", "10s").setting("max_prepared_transactions", "2");
    let Some(server) = if_installed(Postgres::start_with(&settings).await) else { return };
    let url = format!("{}?table=prepared&durability=grace&longest_ttl=4s", server.url());
    lazy_at_once(&server, &url, "prepared").await;
    let lock = backend(Kind::Postgres, &url).await.expect("a connection");
    write_out(&server).await;
    let claim = claim("a", Mode::Exclusive, LONGEST);
    let grant = lock.acquire(&claim).await.expect("an answer").expect("a free lock");
    let mut session = session(&url).await;
    let mut transaction = session.begin().await.expect("a transaction");
    grant.verify_in(&mut transaction).await.expect("held");
    sqlx::raw_sql("PREPARE TRANSACTION 'verified'").execute(&mut *transaction).await.expect("prepared");
    drop(transaction);
    crash(&server).await;
    assert_eq!(record(&server, "prepared", "a").await, grant.token().to_string(), "it is on the disk");
    let locks = client(Kind::Postgres, &url).await;
    is_granted_later(&locks, "another").await;
    let early = locks.lock("a").wait(LONGEST).await.expect_err("the transaction has not ended");
    assert_eq!(early.kind(), ErrorKind::TimedOut, "{early:#}");
    server.admin_sql("COMMIT PREPARED 'verified'").await.expect("committed");
    locks.lock("a").wait(Duration::from_mins(1)).await.expect("its turn").release().await.expect("held");
}
