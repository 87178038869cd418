//! What a hand-over on PostgreSQL keeps locked, and for how long.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lockwell_core::{Mode, Released};
use testbed::{Postgres, Proxy, if_installed};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

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

/// Counts lockwell's warnings in a thread.
#[derive(Clone, Default)]
pub(crate) struct Warnings(pub(crate) Arc<AtomicUsize>);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN && metadata.target().starts_with("lockwell")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        println!("{event:?}");
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// As by a load balancer that closes idle connections: notifications arrive again each time.
#[tokio::test]
async fn connections_that_are_cut_now_and_then_are_one_warning() {
    let Some(server) = postgres().await else { return };
    let warnings = Warnings::default();
    let _of_this_thread = tracing::subscriber::set_default(warnings.clone());
    let proxy = Proxy::start(server.addr()).await.expect("a proxy");
    let holder = client(Kind::Postgres, &(server.url() + "?table=balanced")).await;
    let waiter = client(Kind::Postgres, &(server.url_via(proxy.addr()) + "?table=balanced")).await;
    let guard = holder.lock("a").ttl(LONG * 4).await.expect("a free lock");
    let waiting = tokio::spawn(waiter.lock("a").wait(LONG * 2).into_future());
    wait_for(&holder, "a", 1).await;
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_secs(3)).await;
        proxy.cut_existing();
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(warnings.0.load(Ordering::Relaxed), 1);
    guard.release().await.expect("held");
    waiting.await.expect("no panic").expect("its turn").release().await.expect("held");
}
