//! What a hand-over on PostgreSQL keeps locked, and for how long.

use std::time::{Duration, Instant};

use lockwell_core::{Mode, Released};
use testbed::{Postgres, if_installed};

use crate::servers::{Kind, backend, claim, client, options, postgres, session, wait_for};

const LONG: Duration = Duration::from_secs(30);

/// Transactions that notify commit one after the other, for the whole server. A hand-over waits for the disk
/// or for a replica, and others must be able to notify meanwhile. Here it waits for a replica that does not
/// exist, until that is not asked for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_that_waits_for_its_commit_holds_up_no_notification() {
    let Some(server) = if_installed(Postgres::start_with(&options()).await) else { return };
    for pooled in ["", "&pooled=true"] {
        let url = server.url() + "?table=notified";
        let holder = client(Kind::Postgres, &format!("{url}{pooled}")).await;
        let waiter = client(Kind::Postgres, &url).await;
        let hand_over = async || {
            let guard = holder.lock("a").ttl(LONG * 4).await.expect("a free lock");
            let waiting = tokio::spawn(waiter.lock("a").wait(LONG).into_future());
            wait_for(&holder, "a", 1).await;
            // Notifications are known to arrive by then, so the next release may grant.
            tokio::time::sleep(Duration::from_millis(500)).await;
            (guard, waiting)
        };
        let (guard, waiting) = hand_over().await;
        guard.release().await.expect("held");
        waiting.await.expect("no panic").expect("its turn").release().await.expect("held");
        let (guard, waiting) = hand_over().await;
        let strict = "ALTER SYSTEM SET synchronous_standby_names = 'nobody'; SELECT pg_reload_conf()";
        server.admin_sql(strict).await.expect("an administrator");
        let waiting_commits = async |many: u32| {
            let sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
            let end = Instant::now() + LONG;
            while server.admin_sql(sql).await.expect("an answer").trim() != many.to_string() {
                assert!(Instant::now() < end, "{pooled}: {many} commits never wait");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        // The setting is in force once another transaction waits.
        let other = tokio::spawn({
            let server = server.clone();
            async move { server.admin_sql("CREATE TABLE other (); DROP TABLE other").await }
        });
        waiting_commits(1).await;
        let releasing = tokio::spawn(guard.release());
        waiting_commits(2).await;
        let granted = server.admin_sql("SELECT count(*) FROM notified_waiters").await.expect("an answer");
        let notify = "SET synchronous_commit = off; SET lock_timeout = '5s'; NOTIFY another";
        let notified = server.admin_sql(notify).await;
        let lax = "ALTER SYSTEM RESET synchronous_standby_names; SELECT pg_reload_conf()";
        server.admin_sql(lax).await.expect("an administrator");
        assert_eq!(granted.trim(), "1", "the place is deleted by the grant, which is not committed");
        notified.unwrap_or_else(|error| panic!("{pooled}: nobody can notify: {error}"));
        other.await.expect("no panic").expect("an administrator");
        releasing.await.expect("no panic").expect("held");
        waiting.await.expect("no panic").expect("its turn").release().await.expect("held");
    }
}

/// A release whose row stays locked says what is known: that nobody got the row in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_is_held_up_says_why() {
    let Some(server) = postgres().await else { return };
    let url = server.url() + "?table=held_up";
    let lock = backend(Kind::Postgres, &url).await.expect("connects");
    let held = claim("a", Mode::Exclusive, LONG);
    lock.acquire(&held).await.expect("an answer").expect("a free lock");
    let mut one = session(&url).await;
    let row = "BEGIN; SELECT 1 FROM held_up WHERE name = 'a' FOR UPDATE";
    sqlx::raw_sql(row).execute(&mut one).await.expect("the row is locked");
    let error = lock.release(&held).await.expect_err("the row is locked");
    let text = format!("{error:#}");
    assert!(text.contains("stayed locked") && text.contains("or the database is slow"), "{text}");
    sqlx::raw_sql("COMMIT").execute(&mut one).await.expect("unlocked");
    assert_eq!(lock.release(&held).await.expect("an answer"), Released::Released);
}
