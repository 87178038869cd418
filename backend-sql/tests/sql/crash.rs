//! What a crash of PostgreSQL leaves: all that was granted and renewed, and nothing else has to be there.

use std::time::{Duration, Instant};

use lockwell_core::{Locks, Mode};
use testbed::{Durability, Options, Postgres, if_installed};

use crate::servers::{Kind, backend, claim, client, options, soon, wait_for};

/// A server whose log stays in its memory for as long as nobody asks for more, and a role that never asks.
async fn careless() -> Option<(Postgres, String)> {
    let server = if_installed(Postgres::start_with(&options().setting("wal_writer_delay", "10s")).await)?;
    server
        .admin_sql(
            "CREATE ROLE careless LOGIN; ALTER ROLE careless SET synchronous_commit = off;
             GRANT CREATE ON SCHEMA public TO careless; CHECKPOINT",
        )
        .await
        .expect("a role");
    let url = server.url().replace("postgres@", "careless@") + "?table=crashed";
    Some((server, url))
}

pub(crate) async fn crash(server: &Postgres) {
    server.kill().expect("it runs");
    server.restart().await.expect("it starts again");
}

async fn is_free(locks: &Locks, name: &str) -> bool {
    match locks.lock(name).try_now().await.expect("an answer") {
        Some(guard) => guard.release().await.map(|()| true).expect("held"),
        None => false,
    }
}

/// Whatever the role says, a lease that was confirmed to its holder is known after a crash.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grants_and_renewals_survive() {
    let Some((server, url)) = careless().await else { return };
    let ttl = Duration::from_mins(5);
    for pooled in ["", "&pooled=true"] {
        let url = format!("{url}{pooled}");
        let lock = backend(Kind::Postgres, &url).await.expect("a connection");
        let locks = client(Kind::Postgres, &url).await;
        // Alone and together; new, known and several at once.
        for round in 0..2 {
            for mode in [Mode::Exclusive, Mode::Shared] {
                for many in [1, 3] {
                    let claims: Vec<_> =
                        (0..many).map(|n| claim(&format!("{mode:?} {n}"), mode, ttl)).collect();
                    let granted = lock.acquire_each(&claims).await;
                    assert!(granted.iter().all(|grant| matches!(grant, Ok(Some(_)))), "{granted:?}");
                    crash(&server).await;
                    for claim in &claims {
                        assert!(
                            !is_free(&locks, claim.name().as_str()).await,
                            "{round} {mode:?} {many}: forgotten"
                        );
                        lock.release(claim).await.expect("an answer");
                    }
                }
            }
        }
        // What was released last may be held again after a crash, so each round has names of its own.
        let named = |what: &str| format!("{what}{pooled}");
        let renewed = claim(&named("renewed"), Mode::Exclusive, ttl);
        let grant = lock.acquire(&renewed).await.expect("an answer").expect("a free lock");
        let sql = "UPDATE crashed SET ends_at = clock_timestamp() + interval '4s' WHERE name LIKE 'renewed%'; CHECKPOINT";
        server.admin_sql(sql).await.expect("a short lease");
        let outcome = lock.renew(&[grant], soon()).await;
        assert!(matches!(outcome[..], [lockwell_core::Renewal::Renewed(_)]), "{outcome:?}");
        let writer = claim(&named("downgraded"), Mode::Exclusive, ttl);
        let grant = lock.acquire(&writer).await.expect("an answer").expect("a free lock");
        lock.downgrade(&grant).await.expect("held");
        crash(&server).await;
        let reader = locks.read(named("downgraded")).try_now().await.expect("an answer");
        reader.expect("the downgrade is known").release().await.expect("held");
        assert!(!is_free(&locks, &named("downgraded")).await);
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert!(!is_free(&locks, &named("renewed")).await, "the renewal is known");
    }
}

/// A release that grants to a waiter is a grant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_by_a_release_survives() {
    let Some((server, url)) = careless().await else { return };
    for pooled in ["", "&pooled=true"] {
        let url = format!("{url}{pooled}");
        let (one, two) = (client(Kind::Postgres, &url).await, client(Kind::Postgres, &url).await);
        for round in 0..3 {
            let name = format!("{round}{pooled}");
            let guard = one.lock(&*name).ttl(Duration::from_mins(1)).await.expect("a free lock");
            let waiting = tokio::spawn(two.lock(&*name).ttl(Duration::from_mins(1)).into_future());
            wait_for(&one, &name, 1).await;
            guard.release().await.expect("held");
            let next = waiting.await.expect("no panic").expect("its turn");
            crash(&server).await;
            let sql = format!("SELECT token FROM crashed WHERE name = '{name}'");
            let token = server.admin_sql(&sql).await.expect("an answer").trim().to_owned();
            assert_eq!(token, next.token().to_string(), "the grant is forgotten");
            next.release().await.expect("held");
        }
    }
}

/// Waiters lose their places, and enter again; holders hold; a release that is forgotten costs no more than
/// the lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_go_on() {
    let Some((server, url)) = careless().await else { return };
    let (one, two) = (client(Kind::Postgres, &url).await, client(Kind::Postgres, &url).await);
    for _ in 0..3 {
        let guard = one.lock("a").ttl(Duration::from_secs(30)).await.expect("a free lock");
        let waiting: Vec<_> = [&one, &two, &two]
            .into_iter()
            .map(|locks| {
                let request = locks.lock("a").wait(Duration::from_mins(1));
                tokio::spawn(async move { request.await?.release().await })
            })
            .collect();
        wait_for(&one, "a", 3).await;
        crash(&server).await;
        let began = Instant::now();
        while one.inspect("a").await.expect("an answer").waiters < 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
            assert!(began.elapsed() < Duration::from_secs(20), "the waiters have not entered again");
        }
        println!("all waiters are back after {:?}", began.elapsed());
        assert!(guard.is_held());
        guard.release().await.expect("held");
        for waiter in waiting {
            waiter.await.expect("no panic").expect("its turn");
        }
    }
    let guard = one.lock("b").ttl(Duration::from_secs(3)).await.expect("a free lock");
    guard.release().await.expect("held");
    crash(&server).await;
    two.lock("b")
        .wait(Duration::from_secs(30))
        .await
        .expect("by the end of the lease")
        .release()
        .await
        .expect("held");
}

/// A replica that is promoted has an empty queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_go_on_at_a_promoted_replica() {
    let Some(old) = if_installed(Postgres::start_with(&options()).await) else { return };
    let Some(new) = if_installed(old.start_standby(&options()).await) else { return };
    let proxy = testbed::Proxy::start(old.addr()).await.expect("a proxy");
    let url = old.url_via(proxy.addr()) + "?table=promoted";
    let (one, two) = (client(Kind::Postgres, &url).await, client(Kind::Postgres, &url).await);
    let guard = one.lock("a").ttl(Duration::from_mins(1)).await.expect("a free lock");
    let waiting = tokio::spawn(two.lock("a").wait(Duration::from_mins(1)).into_future());
    wait_for(&one, "a", 1).await;
    old.wait_for_standby(&new).await.expect("an answer");
    old.kill().expect("it runs");
    new.promote().await.expect("it takes writes");
    proxy.redirect(new.addr());
    let began = Instant::now();
    while one.inspect("a").await.expect("an answer").waiters == 0 {
        assert!(began.elapsed() < Duration::from_secs(20), "the waiter has not entered again");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    guard.release().await.expect("held");
    waiting.await.expect("no panic").expect("its turn").release().await.expect("held");
}

/// A server on a disk that counts the flushes of its log, and makes none by itself for a while.
pub(crate) async fn counting() -> Option<Postgres> {
    let options = Options::new().durability(Durability::Disk).setting("wal_writer_delay", "10s");
    let server = if_installed(Postgres::start_with(&options).await)?;
    if server.admin_sql("SELECT wal_sync FROM pg_stat_wal").await.is_err() {
        testbed::cannot_run("", "this release does not count its flushes so");
        return None;
    }
    Some(server)
}

/// How many flushes there were.
pub(crate) async fn syncs(server: &Postgres) -> u64 {
    // Each session reports with its end, or after a while.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let count = server.admin_sql("SELECT wal_sync FROM pg_stat_wal").await.expect("a count");
    count.trim().parse().expect("a number")
}

/// One flush of the log for a lock that is taken and released, and none for a place in the queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_grants_wait_for_the_disk() {
    let Some(server) = counting().await else { return };
    let url = server.url() + "?table=flushed";
    drop(client(Kind::Postgres, &url).await);
    for mode in [Mode::Exclusive, Mode::Shared] {
        let lock = backend(Kind::Postgres, &url).await.expect("a connection");
        let known = claim("a", mode, Duration::from_secs(30));
        lock.acquire(&known).await.expect("an answer").expect("a free lock");
        lock.release(&known).await.expect("an answer");
        let before = syncs(&server).await;
        for _ in 0..100 {
            let claim = claim("a", mode, Duration::from_secs(30));
            lock.acquire(&claim).await.expect("an answer").expect("a free lock");
            lock.release(&claim).await.expect("an answer");
        }
        lock.close().await;
        let count = syncs(&server).await - before;
        println!("{mode:?}: {count} flushes for 100 locks");
        assert!((100..150).contains(&count), "{mode:?}: {count} flushes for 100 locks");
    }
}
