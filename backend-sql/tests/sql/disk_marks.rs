//! Tables of PostgreSQL on which no grant is lazy: a crash loses none, so nobody needs a mark.

use std::num::NonZeroU32;
use std::time::Duration;

use lockwell_core::{DistributedLock, Grant, Mode, Renewal};
use lockwell_sql::PostgresVerify;
use sqlx::Connection;
use testbed::Proxy;

use crate::crash::crash;
use crate::grace::{LONGEST, is_closed, is_granted_later, left_behind, without_tables};
use crate::lazy_since::both;
use crate::servers::{Kind, backend, claim, client, permit, session, soon};

/// More tokens than the clock counts while a test runs.
const TOKENS: NonZeroU32 = NonZeroU32::new(600_000_000).expect("not zero");

async fn taken(lock: &dyn DistributedLock) -> Grant {
    lock.acquire(&claim("a", Mode::Exclusive, LONGEST)).await.expect("an answer").expect("a free lock")
}

/// The later holder has a higher token, and keeps the lock when the one before renews.
async fn is_after(lock: &dyn DistributedLock, later: Grant, before: Grant) {
    assert!(later.token() > before.token(), "{} after {}", later.token(), before.token());
    assert!(matches!(lock.renew(&[before], soon()).await[..], [Renewal::Lost]));
    assert!(matches!(lock.renew(&[later], soon()).await[..], [Renewal::Renewed(_)]));
}

/// The replica that is promoted lacks the mark of after the crash, and the grant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_of_durable_grants_rise_over_a_crash_and_a_failover() {
    let Some((old, durable, _)) = both("followed").await else { return };
    let Some(new) = left_behind(&old).await else { return };
    let proxy = Proxy::start(old.addr()).await.expect("a proxy");
    let url = durable.replace(&old.addr().to_string(), &proxy.addr().to_string());
    crash(&old).await;
    let lock = backend(Kind::Postgres, &url).await.expect("a connection");
    let at_the_old = taken(&*lock).await;
    old.kill().expect("it runs");
    new.promote().await.expect("it takes writes");
    proxy.redirect(new.addr());
    let lock = backend(Kind::Postgres, &url).await.expect("a connection");
    let at_the_new = taken(&*lock).await;
    is_after(&*lock, at_the_new, at_the_old).await;
}

/// What it lacks of tables that were made so shortly before waited for the disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_replica_that_lacks_new_tables_grants_at_once() {
    let Some((old, lazy)) = without_tables("made_twice").await else { return };
    let Some(new) = left_behind(&old).await else { return };
    let lock = backend(Kind::Postgres, &lazy).await.expect("new tables");
    let at_the_old = taken(&*lock).await;
    old.kill().expect("it runs");
    new.promote().await.expect("it takes writes");
    let durable = format!("{}?table=made_twice", new.url());
    let lock = backend(Kind::Postgres, &durable).await.expect("new tables");
    let at_the_new = taken(&*lock).await;
    is_after(&*lock, at_the_new, at_the_old).await;
}

/// The rows are those of before the crash, in other files.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_of_durable_grants_rise_over_a_crash_and_a_restore() {
    let Some((server, durable, _)) = both("restored").await else { return };
    let save = "CREATE TABLE saved AS TABLE restored; CREATE TABLE saved_state AS TABLE restored_state";
    server.admin_sql(save).await.expect("saved");
    crash(&server).await;
    let lock = backend(Kind::Postgres, &durable).await.expect("a connection");
    let before = taken(&*lock).await;
    let restore = "BEGIN; TRUNCATE restored, restored_members, restored_state, restored_mark;
        INSERT INTO restored SELECT * FROM saved; INSERT INTO restored_state SELECT * FROM saved_state; COMMIT";
    server.admin_sql(restore).await.expect("restored");
    let later = taken(&*lock).await;
    is_after(&*lock, later, before).await;
}

/// A failover has lost the grant with a block of tokens that ends ahead of the clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_only_a_failover_can_lose_is_not_reclaimed() {
    let Some((server, durable, lazy)) = both("ahead").await else { return };
    let lock = backend(Kind::Postgres, &durable).await.expect("a connection");
    let block = claim("a", Mode::Exclusive, LONGEST * 60).reserving(TOKENS);
    let block = lock.acquire(&block).await.expect("an answer").expect("a free lock");
    server.admin_sql("DELETE FROM ahead").await.expect("as on a replica that lacks it");
    let later = taken(&*lock).await;
    assert!(later.token() < block.last_token(), "the clock has passed the block");
    let keeps = async || {
        assert!(matches!(lock.renew(std::slice::from_ref(&block), soon()).await[..], [Renewal::Lost]));
        assert!(matches!(lock.renew(std::slice::from_ref(&later), soon()).await[..], [Renewal::Renewed(_)]));
    };
    keeps().await;
    // Nor later, when a crash can lose grants, and has lost the mark.
    is_granted_later(&client(Kind::Postgres, &lazy).await, "first").await;
    keeps().await;
    server.admin_sql("UPDATE ahead_state SET lazy_since = 0").await.expect("an administrator");
    keeps().await;
    crash(&server).await;
    keeps().await;
    is_closed(&client(Kind::Postgres, &durable).await, "b").await;
    keeps().await;
}

/// The crash has lost the answer, and not the grant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_asks_again_after_a_crash_finds_its_own_grant() {
    let Some((server, durable, _)) = both("asked_again").await else { return };
    for mode in [Mode::Exclusive, Mode::Shared, permit(2)] {
        let lock = backend(Kind::Postgres, &durable).await.expect("a connection");
        let claim = claim(&mode.to_string(), mode, Duration::from_mins(5));
        let first = lock.acquire(&claim).await.expect("an answer").expect("a free lock");
        crash(&server).await;
        let again = lock.acquire(&claim).await.expect("an answer").expect("its own");
        assert_eq!(again.token(), first.token(), "{mode:?}");
    }
}

/// An earlier mark has come back, and a client has seen a later one that was closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_mark_that_is_not_trusted_is_replaced_once_by_a_closed_one() {
    let Some((server, durable, lazy)) = both("distrusted").await else { return };
    let locks = client(Kind::Postgres, &durable).await;
    is_granted_later(&client(Kind::Postgres, &lazy).await, "a").await;
    server.admin_sql("DELETE FROM distrusted_mark").await.expect("as after a crash");
    is_closed(&locks, "a").await;
    let earlier = "UPDATE distrusted_mark SET id = gen_random_uuid(), is_open = true";
    server.admin_sql(earlier).await.expect("an administrator");
    let is_known = async || assert!(locks.grace_left().await.expect("an answer").is_some());
    let mark = async || {
        let sql = "SELECT id, is_open, token_bound FROM distrusted_mark, distrusted_state";
        server.admin_sql(sql).await.expect("an answer")
    };
    is_known().await;
    let made = mark().await;
    for _ in 0..3 {
        is_known().await;
    }
    assert_eq!(mark().await, made);
    is_closed(&client(Kind::Postgres, &durable).await, "a").await;
}

/// Somebody has locked the row of the state, and not everybody may read the number of the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_needs_a_mark() {
    let Some((server, durable, _)) = both("plain").await else { return };
    let rights = "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC; CREATE ROLE app LOGIN;
        GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO app";
    server.admin_sql(rights).await.expect("a role");
    let url = durable.replace("postgres@", "app@") + "&create=false";
    let (mut other, mut session) = (session(&durable).await, session(&url).await);
    for pooled in ["", "&pooled=true"] {
        let lock = backend(Kind::Postgres, &format!("{url}{pooled}")).await.expect("a connection");
        sqlx::raw_sql("BEGIN; SELECT FROM plain_state FOR UPDATE").execute(&mut other).await.expect("locked");
        for mode in [Mode::Exclusive, Mode::Shared, permit(2)] {
            let claim = claim(&format!("{mode}{pooled}"), mode, Duration::from_mins(5));
            let grant = lock.acquire(&claim).await.expect("an answer").expect("a free lock");
            server.admin_sql("VACUUM FULL plain").await.expect("an administrator");
            let mut transaction = session.begin().await.expect("a transaction");
            grant.verify_in(&mut transaction).await.expect("held");
            transaction.rollback().await.expect("it ends");
            let renewed = lock.renew(std::slice::from_ref(&grant), soon()).await;
            assert!(matches!(renewed[..], [Renewal::Renewed(_)]), "{renewed:?}");
            lock.release(&claim).await.expect("an answer");
        }
        sqlx::raw_sql("ROLLBACK").execute(&mut other).await.expect("it ends");
    }
    assert_eq!(server.admin_sql("SELECT count(*) FROM plain_mark").await.expect("an answer").trim(), "0");
}
