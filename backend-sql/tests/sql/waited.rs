//! The mark in a lock's row that somebody may be waiting: when it is set again, and when it is cleared.

use std::time::{Duration, Instant};

use lockwell_core::Mode;
use sqlx::postgres::PgListener;
use testbed::Proxy;
use uuid::Uuid;

use crate::servers::{
    Kind, admin, backend, claim, client, count, postgres, session, until_count, url, wait_for,
};

/// How long anything may take on a busy machine.
const LONG: Duration = Duration::from_secs(30);

/// A process that was stopped for longer than its heartbeat lasts goes on waiting: releases hand the lock to
/// it, and newcomers do not get it first for ever. Here its heartbeat is made old between two of them, and
/// others use the lock at that moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_was_stopped_is_found_again() {
    for kind in [Kind::Postgres, Kind::MariaDb] {
        let Some(url) = url(kind, "stopped").await else { continue };
        let (holder, waiter) = (client(kind, &url).await, client(kind, &url).await);
        for name in ["alone", "book"] {
            let request = if name == "book" { waiter.read(name) } else { waiter.lock(name) };
            let unmarked = format!("stopped WHERE name = '{name}' AND NOT waited");
            let mut guard = holder.lock(name).ttl(LONG * 4).await.expect("a free lock");
            let waiting = tokio::spawn(request.wait(LONG * 4).into_future());
            wait_for(&holder, name, 1).await;
            let end = Instant::now() + LONG;
            loop {
                let old = match kind {
                    Kind::Postgres => "UPDATE stopped_clients SET alive_until = now() - interval '1 second'",
                    _ => "UPDATE stopped_clients SET alive_until = 0",
                };
                admin(kind, &url, old).await;
                guard.release().await.expect("held");
                let newcomer = holder.lock(name).ttl(LONG * 4).try_now().await.expect("an answer");
                guard = newcomer.expect("its heartbeat came in between: the test cannot go on");
                if count(kind, &url, &unmarked).await == "1" {
                    break;
                }
                assert!(Instant::now() < end, "{kind:?}: the mark is not cleared");
            }
            until_count(kind, &url, &unmarked, 0, LONG / 3).await;
            guard.release().await.expect("held");
            let newcomer = holder.lock(name).try_now().await.expect("an answer");
            assert!(newcomer.is_none() || waiting.is_finished(), "{kind:?} {name}: a newcomer is first");
            drop(newcomer);
            waiting.await.expect("no panic").expect("its turn").release().await.expect("held");
        }
    }
}

/// After one waiter, a release of a lock that only groups use is one statement again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_clears_the_mark() {
    const TIMES: u64 = 20;
    let Some(server) = postgres().await else { return };
    let proxy = Proxy::start(server.addr()).await.expect("a proxy");
    let near = client(Kind::Postgres, &(server.url() + "?table=cleared")).await;
    let lock =
        backend(Kind::Postgres, &(server.url_via(proxy.addr()) + "?table=cleared")).await.expect("connects");
    let permit = crate::servers::permit(1);
    let guard = near.permit("slots", 1).await.expect("a free permit");
    let waiting = tokio::spawn(near.permit("slots", 1).into_future());
    wait_for(&near, "slots", 1).await;
    guard.release().await.expect("held");
    waiting.await.expect("no panic").expect("its turn").release().await.expect("held");
    let pass = async || {
        let claim = claim("slots", permit, LONG);
        lock.acquire(&claim).await.expect("an answer").expect("a free permit");
        lock.release(&claim).await.expect("an answer");
    };
    // What is sent once for each connection, and the release that clears the mark.
    pass().await;
    let before = proxy.turns();
    for _ in 0..TIMES {
        pass().await;
    }
    assert_eq!(
        proxy.turns() - before,
        2 * TIMES,
        "statements of {TIMES} permits that are taken and released"
    );
}

/// The first waiter leaves while a release waits for the lock's row: the next one is notified, and the
/// release does not notify the one that has left. The waiters are rows of clients that this test plays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_has_just_left_is_not_notified() {
    let Some(url) = url(Kind::Postgres, "leaving").await else { return };
    let lock = backend(Kind::Postgres, &url).await.expect("connects");
    let (gone, next) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let mut listener =
        PgListener::connect(url.split('?').next().expect("an address")).await.expect("connects");
    listener.listen(&format!("lockwell_{}", next.simple())).await.expect("listens");
    let (mut one, mut two) = (session(&url).await, session(&url).await);
    for (round, mode) in [Mode::Shared, crate::servers::permit(1)].repeat(8).into_iter().enumerate() {
        let name = format!("{mode} {round}");
        let held = claim(&name, mode, LONG * 4);
        lock.acquire(&held).await.expect("an answer").expect("a free lock");
        let places = format!(
            "INSERT INTO leaving_clients VALUES ('{gone}', now() + interval '1 hour', 1), ('{next}', now() + interval '1 hour', 1)
                 ON CONFLICT DO NOTHING;
             INSERT INTO leaving_waiters (name, owner, client, number, label, mode, tokens) VALUES
                 ('{name}', gen_random_uuid(), '{gone}', 1, '', 0, 1), ('{name}', gen_random_uuid(), '{next}', {round}, '', 0, 1);
             UPDATE leaving SET waited = true WHERE name = '{name}'"
        );
        admin(Kind::Postgres, &url, &places).await;
        let row = format!("BEGIN; SELECT 1 FROM leaving WHERE name = '{name}' FOR UPDATE");
        sqlx::raw_sql(sqlx::AssertSqlSafe(row)).execute(&mut one).await.expect("the row is locked");
        let (releasing, deadline) = (
            tokio::spawn({
                let lock = std::sync::Arc::clone(&lock);
                async move { lock.release(&held).await }
            }),
            Instant::now() + LONG,
        );
        // It waits for the row, for at most 50 ms, and then again.
        let waits =
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%leaving%'";
        while sqlx::query_scalar::<_, i64>(waits).fetch_one(&mut two).await.expect("an answer") == 0 {
            assert!(Instant::now() < deadline, "the release does not wait");
        }
        let leave = format!("DELETE FROM leaving_waiters WHERE client = '{gone}' AND name = '{name}'");
        sqlx::raw_sql(sqlx::AssertSqlSafe(leave)).execute(&mut two).await.expect("it leaves");
        sqlx::raw_sql("COMMIT").execute(&mut one).await.expect("unlocked");
        releasing.await.expect("no panic").expect("held");
        let told = tokio::time::timeout(LONG / 6, listener.recv()).await;
        let told =
            told.unwrap_or_else(|_| panic!("{name}: the next waiter is not notified")).expect("connected");
        assert_eq!(told.payload(), round.to_string(), "{name}");
    }
}
