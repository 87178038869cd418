//! Tables of PostgreSQL on which grants wait for no disk: what a mark must not be taken for, and what must not
//! be lost with it.

use std::time::Duration;

use lockwell_core::{DistributedLock, ErrorKind, Mode, Renewal};
use testbed::{Proxy, if_installed};

use crate::crash::crash;
use crate::grace::{LONGEST, forgetful, is_closed, is_granted_later, write_out};
use crate::servers::{Kind, backend, claim, client, options, soon};

/// A mark in a table that is LOGGED would stay open over a crash.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mark_that_a_crash_would_keep_is_none() {
    let Some((server, url)) = forgetful("logged").await else { return };
    for pooled in ["", "&pooled=true"] {
        let url = format!("{url}{pooled}");
        let locks = client(Kind::Postgres, &url).await;
        is_granted_later(&locks, "a").await;
        server.admin_sql("ALTER TABLE logged_mark SET LOGGED").await.expect("an administrator");
        let errors = [
            locks.lock("a").wait(Duration::from_secs(1)).await.expect_err("it is LOGGED"),
            backend(Kind::Postgres, &url).await.map(drop).expect_err("it is LOGGED"),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
            assert!(error.to_string().contains("SET UNLOGGED"), "{error:#}");
        }
        // Nobody knows what has happened meanwhile.
        server.admin_sql("ALTER TABLE logged_mark SET UNLOGGED").await.expect("an administrator");
        is_closed(&client(Kind::Postgres, &url).await, "a").await;
    }
}

/// A copy of a database has the rows of a mark, also those that are UNLOGGED, and the numbers of the files.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_mark_of_another_database_is_none() {
    let Some((server, url)) = forgetful("copied").await else { return };
    let lock = backend(Kind::Postgres, &url).await.expect("a connection");
    lock.acquire(&claim("a", Mode::Exclusive, LONGEST)).await.expect("an answer").expect("a free lock");
    lock.close().await;
    drop(lock);
    // All changes are in the files of the tables.
    write_out(&server).await;
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'postgres' AND pid <> pg_backend_pid()";
    let copy = "CREATE DATABASE copy TEMPLATE postgres STRATEGY file_copy";
    server.admin_sql(&format!("{end};\n\\c template1\n{copy}")).await.expect("an administrator");
    let copy = client(Kind::Postgres, &url.replace("/postgres?", "/copy?")).await;
    is_closed(&copy, "b").await;
    is_granted_later(&copy, "b").await;
    is_granted_later(&client(Kind::Postgres, &url).await, "b").await;
}

/// The tables were made when the replica did not follow any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_replica_that_lacks_the_tables_grants_nothing_at_first() {
    let Some((old, url)) = forgetful("lacking").await else { return };
    let Some(new) = if_installed(old.start_standby(&options()).await) else { return };
    old.wait_for_standby(&new).await.expect("an answer");
    new.admin_sql("ALTER SYSTEM SET primary_conninfo = ''; SELECT pg_reload_conf()").await.expect("set");
    while new.admin_sql("SELECT count(*) FROM pg_stat_wal_receiver").await.expect("an answer").trim() != "0" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let proxy = Proxy::start(old.addr()).await.expect("a proxy");
    let url = url.replace(&old.addr().to_string(), &proxy.addr().to_string());
    let one = client(Kind::Postgres, &url).await;
    // A crash lets the tokens run ahead of the clock.
    crash(&old).await;
    is_granted_later(&one, "b").await;
    let held = one.lock("a").ttl(LONGEST).await.expect("a free lock");
    old.kill().expect("it runs");
    new.promote().await.expect("it takes writes");
    proxy.redirect(new.addr());
    let two = client(Kind::Postgres, &url).await;
    // Not the lock that is held: its holder may have reclaimed it by now.
    is_closed(&two, "c").await;
    assert!(held.is_held(), "{:?}", held.lease_state());
    let later = two.lock("b").wait(Duration::from_secs(30)).await.expect("its turn");
    assert!(later.token() > held.token(), "{} after {}", later.token(), held.token());
    held.release().await.expect("held");
}

/// A claim whose answer was lost asks again, and finds its own record of before a crash. The server has lost the
/// grant of a later holder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_own_record_of_before_a_crash_gets_a_higher_token() {
    let Some((server, url)) = forgetful("again").await else { return };
    // Several claims are asked for with another statement.
    for (name, mode, several) in
        [("a", Mode::Exclusive, false), ("many", Mode::Exclusive, true), ("readers", Mode::Shared, false)]
    {
        let lock = backend(Kind::Postgres, &url).await.expect("a connection");
        let early = claim(name, mode, Duration::from_millis(200));
        let first = granted(&*lock, &early).await;
        assert_eq!(granted(&*lock, &early).await, first, "as long as nothing was lost");
        write_out(&server).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        let later = granted(&*lock, &claim(name, Mode::Exclusive, Duration::from_millis(200))).await;
        assert!(later > first);
        crash(&server).await;
        is_granted_later(&client(Kind::Postgres, &url).await, "another").await;
        let again = if several {
            let others = [early.clone(), claim("b", Mode::Exclusive, LONGEST)];
            let each = lock.acquire_each(&others).await;
            each[0].as_ref().expect("an answer").as_ref().expect("its own").token()
        } else {
            granted(&*lock, &early).await
        };
        assert!(again > later, "{mode:?}: {again} after {later}");
    }
}

async fn granted(lock: &dyn DistributedLock, claim: &lockwell_core::Claim) -> lockwell_core::FencingToken {
    lock.acquire(claim).await.expect("an answer").expect("a free lock").token()
}

/// The renewal of a reader is lost, so its record has ended when the server comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_whose_renewal_was_lost_stays() {
    let Some((server, url)) = forgetful("renewed").await else { return };
    let lock = backend(Kind::Postgres, &url).await.expect("a connection");
    let reader = claim("a", Mode::Shared, LONGEST);
    let reader = lock.acquire(&reader).await.expect("an answer").expect("a free lock");
    write_out(&server).await;
    tokio::time::sleep(LONGEST / 4 * 3).await;
    assert!(matches!(lock.renew(std::slice::from_ref(&reader), soon()).await[..], [Renewal::Renewed(_)]));
    tokio::time::sleep(LONGEST / 4).await;
    crash(&server).await;
    let other = client(Kind::Postgres, &url).await;
    is_closed(&other, "b").await;
    // Who waits looks for members whose leases have ended.
    let waited = other.lock("a").wait(Duration::from_millis(500)).await;
    assert!(waited.is_err(), "{waited:?}");
    assert!(matches!(lock.renew(std::slice::from_ref(&reader), soon()).await[..], [Renewal::Renewed(_)]));
}
