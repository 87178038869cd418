//! Tables of PostgreSQL on which grants wait for no disk: what a mark must not be taken for, and what must not
//! be lost with it.

use std::time::{Duration, Instant};

use lockwell_core::{DistributedLock, ErrorKind, Locks, Mode, Renewal};
use lockwell_sql::PostgresLock;

use crate::crash::crash;
use crate::grace::{LONGEST, forgetful, is_closed, is_granted_later, write_out};
use crate::servers::{Kind, backend, claim, client, session, soon};

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

/// A row whose lease seems to have ended long ago may be that of a holder whose renewals were lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_purged_until_the_mark_is_open() {
    let Some((server, url)) = forgetful("swept").await else { return };
    let lock = PostgresLock::connect(&url.parse().expect("an address")).await.expect("a connection");
    let purged = async || lock.purge(Duration::from_hours(1)).await.expect("an answer");
    let held = claim("a", Mode::Exclusive, LONGEST);
    lock.acquire(&held).await.expect("an answer").expect("a free lock");
    let long_ago = "UPDATE swept SET acquired_at = acquired_at - interval '2 hours', ends_at = ends_at - interval '2 hours'
        WHERE name = 'a'";
    server.admin_sql(long_ago).await.expect("changed");
    server.admin_sql("DELETE FROM swept_mark").await.expect("as after a crash");
    assert_eq!(purged().await, 0, "there is no mark");
    let locks = client(Kind::Postgres, &url).await;
    is_closed(&locks, "b").await;
    assert_eq!(purged().await, 0, "it is closed");
    is_granted_later(&locks, "b").await;
    assert_eq!(purged().await, 1);
}

/// Nobody else comes by.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holders_that_renew_open_the_mark() {
    let Some((server, url)) = forgetful("counted").await else { return };
    let lock = backend(Kind::Postgres, &url).await.expect("a connection");
    let held = claim("a", Mode::Exclusive, LONGEST);
    let held = lock.acquire(&held).await.expect("an answer").expect("a free lock");
    server.admin_sql("DELETE FROM counted_mark").await.expect("as after a crash");
    let begun = Instant::now();
    let mut is_open = false;
    while !is_open {
        assert!(begun.elapsed() < Duration::from_secs(30), "the mark is never open");
        assert!(matches!(lock.renew(std::slice::from_ref(&held), soon()).await[..], [Renewal::Renewed(_)]));
        tokio::time::sleep(LONGEST / 20).await;
        let open = server.admin_sql("SELECT count(*) FROM counted_mark WHERE is_open").await;
        is_open = open.expect("an answer").trim() == "1";
    }
    assert!(begun.elapsed() > LONGEST, "{:?}", begun.elapsed());
}

/// Who waits for a reader that has died is the only one who comes by.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_dead_members_opens_the_mark() {
    let Some((server, url)) = forgetful("dead").await else { return };
    for pooled in ["", "&pooled=true"] {
        let url = format!("{url}{pooled}");
        let lock = backend(Kind::Postgres, &url).await.expect("a connection");
        let name = format!("a{pooled}");
        let reader = claim(&name, Mode::Shared, Duration::from_millis(300));
        let locks = client(Kind::Postgres, &url).await;
        lock.acquire(&reader).await.expect("an answer").expect("a free lock");
        server.admin_sql("DELETE FROM dead_mark").await.expect("as after a crash");
        is_granted_later(&locks, &name).await;
    }
}

/// Another raises the bound of tokens, and waits for a slow disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bound_that_is_being_raised_is_waited_for() {
    let Some((server, url)) = forgetful("raised").await else { return };
    let mut other = session(&url).await;
    for pooled in ["", "&pooled=true"] {
        let locks = client(Kind::Postgres, &format!("{url}{pooled}")).await;
        let near = "UPDATE raised_state SET token_bound = 4294967297; UPDATE raised_mark SET token_limit = 1";
        server.admin_sql(near).await.expect("an administrator");
        let raise =
            "BEGIN; UPDATE raised_state SET token_bound = extract(epoch FROM now()) * 1e6 + 8589934592";
        sqlx::raw_sql(raise).execute(&mut other).await.expect("raised");
        let refused = locks.lock("a").try_now().await;
        assert!(matches!(&refused, Ok(None)), "{refused:?}");
        let granted = tokio::spawn(locks.lock("a").wait(Duration::from_secs(30)).into_future());
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(!granted.is_finished(), "{:?}", granted.await);
        let bound = "SELECT token_bound FROM raised_state";
        let raised: i64 = sqlx::query_scalar(bound).fetch_one(&mut other).await.expect("an answer");
        sqlx::raw_sql("COMMIT").execute(&mut other).await.expect("it is on the disk");
        granted.await.expect("no panic").expect("its turn").release().await.expect("held");
        let now: i64 = sqlx::query_scalar(bound).fetch_one(&mut other).await.expect("an answer");
        assert_eq!(now, raised, "once is enough");
    }
}

/// The bound of tokens in such a dump is the floor of after the crash. A period that is begun by hand raises it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_over_a_restore_from_before_a_crash() {
    let Some((server, url)) = forgetful("dumped").await else { return };
    let save = "CREATE TABLE saved AS TABLE dumped; CREATE TABLE saved_state AS TABLE dumped_state";
    server.admin_sql(save).await.expect("saved");
    crash(&server).await;
    let token = async |locks: Locks| {
        let guard = locks.lock("a").wait(Duration::from_mins(1)).await.expect("its turn");
        let token = guard.token();
        guard.release().await.expect("held");
        token
    };
    let before = token(client(Kind::Postgres, &url).await).await;
    let restore = "BEGIN; TRUNCATE dumped, dumped_members, dumped_state, dumped_mark;
        INSERT INTO dumped SELECT * FROM saved; INSERT INTO dumped_state SELECT * FROM saved_state; COMMIT";
    server.admin_sql(restore).await.expect("restored");
    let locks = client(Kind::Postgres, &url).await;
    locks.begin_grace().await.expect("it begins");
    let later = token(locks).await;
    assert!(later > before, "{later} after {before}");
}
