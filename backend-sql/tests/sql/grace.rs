//! Tables of PostgreSQL on which grants wait for no disk: what a crash, a promotion and a restored table
//! mean.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use lockwell_core::backend::grace_period;
use lockwell_core::{ErrorKind, Grant, Locks, Mode, Renewal, Severity};
use lockwell_sql::PostgresVerify;
use sqlx::Connection;
use testbed::{Postgres, Proxy, if_installed};

use crate::crash::{counting, crash, syncs};
use crate::servers::{Kind, backend, claim, client, options, session, soon, wait_for};

/// The shortest that is allowed.
pub(crate) const LONGEST: Duration = Duration::from_secs(4);
/// More tokens than the clock counts while a test runs.
const TOKENS: NonZeroU32 = NonZeroU32::new(600_000_000).expect("not zero");

/// A server that writes out nothing unless somebody asks for it, and the address of such tables. Crashes lose grants from the
/// beginning.
pub(crate) async fn forgetful(table: &str) -> Option<(Postgres, String)> {
    forgetful_for(table, "4s").await
}

/// The same with other leases.
pub(crate) async fn forgetful_for(table: &str, longest: &str) -> Option<(Postgres, String)> {
    let (server, url) = without_tables(table).await?;
    let url = url.replace("=4s", &format!("={longest}"));
    lazy_at_once(&server, &url, table).await;
    Some((server, url))
}

/// The server and the address alone.
pub(crate) async fn without_tables(table: &str) -> Option<(Postgres, String)> {
    let server = if_installed(Postgres::start_with(&options().setting("wal_writer_delay", "10s")).await)?;
    let url = grace(&server.url(), table);
    Some((server, url))
}

/// Makes the tables and the first grant, as if that were so long ago that grants are lazy.
pub(crate) async fn lazy_at_once(server: &Postgres, url: &str, table: &str) {
    let lock = backend(Kind::Postgres, url).await.expect("new tables");
    let first = claim("first", Mode::Exclusive, LONGEST);
    lock.acquire(&first).await.expect("an answer").expect("a free lock");
    lock.release(&first).await.expect("an answer");
    lock.close().await;
    server.admin_sql(&format!("UPDATE {table}_state SET lazy_since = 0")).await.expect("an administrator");
}

fn grace(url: &str, table: &str) -> String {
    format!("{url}?table={table}&durability=grace&longest_ttl=4s")
}

/// A replica that has received nothing after what was done up to now, and receives nothing more.
pub(crate) async fn left_behind(old: &Postgres) -> Option<Postgres> {
    let new = if_installed(old.start_standby(&options()).await)?;
    old.wait_for_standby(&new).await.expect("an answer");
    new.admin_sql("ALTER SYSTEM SET primary_conninfo = ''").await.expect("set");
    new.admin_sql("SELECT pg_reload_conf()").await.expect("read");
    while new.admin_sql("SELECT count(*) FROM pg_stat_wal_receiver").await.expect("an answer").trim() != "0" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Some(new)
}

/// What was done up to now survives.
pub(crate) async fn write_out(server: &Postgres) {
    server.admin_sql("CHECKPOINT").await.expect("a checkpoint");
}

/// Grants nothing, and says why.
pub(crate) async fn is_closed(locks: &Locks, name: &str) {
    let error = locks.lock(name).try_now().await.expect_err("the server may have forgotten");
    assert_eq!(error.kind(), ErrorKind::GracePeriod, "{error:#}");
    assert!(error.is_retryable() && error.to_string().contains("grants nothing for another"), "{error:#}");
}

/// Waits through the grace period.
pub(crate) async fn is_granted_later(locks: &Locks, name: &str) {
    locks.lock(name).wait(Duration::from_secs(30)).await.expect("its turn").release().await.expect("held");
}

pub(crate) async fn record(server: &Postgres, table: &str, name: &str) -> String {
    let sql = format!("SELECT token FROM {table} WHERE name = '{name}' AND ends_at IS NOT NULL");
    server.admin_sql(&sql).await.expect("an answer").trim().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_takes_no_lock_from_its_holder_and_gives_none_to_another() {
    for pooled in ["", "&pooled=true"] {
        // A server writes out by itself 10 s after its start.
        let Some((server, url)) = forgetful("crashed").await else { return };
        let url = format!("{url}{pooled}");
        let (one, two) = (client(Kind::Postgres, &url).await, client(Kind::Postgres, &url).await);
        let known = one.lock("known").ttl(LONGEST).await.expect("a free lock");
        let reader = one.read("read").ttl(LONGEST).await.expect("a free lock");
        write_out(&server).await;
        let lost = one.lock("lost").ttl(LONGEST).await.expect("a free lock");
        let released = one.lock("released").ttl(LONGEST).await.expect("a free lock");
        released.release().await.expect("held");
        crash(&server).await;
        let began = Instant::now();
        assert_eq!(record(&server, "crashed", "lost").await, "", "nothing was written out");
        for name in ["lost", "another"] {
            is_closed(&two, name).await;
        }
        is_granted_later(&two, "another").await;
        assert!(began.elapsed() > LONGEST / 4 * 3, "{:?}", began.elapsed());
        for guard in [&known, &lost, &reader] {
            assert!(guard.is_held(), "{:?}", guard.lease_state());
        }
        assert_eq!(record(&server, "crashed", "lost").await, lost.token().to_string());
        assert!(two.lock("lost").try_now().await.expect("an answer").is_none());
        assert!(two.lock("known").try_now().await.expect("an answer").is_none());
        assert!(two.lock("read").try_now().await.expect("an answer").is_none());
        is_granted_later(&two, "released").await;
        for guard in [known, lost, reader] {
            guard.release().await.expect("held");
        }
        is_granted_later(&two, "lost").await;
    }
}

/// The kill of one backend makes the server start anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_kill_of_one_backend_is_a_crash() {
    let Some((server, url)) = forgetful("killed").await else { return };
    let locks = client(Kind::Postgres, &url).await;
    let guard = locks.lock("a").ttl(LONGEST).await.expect("a free lock");
    let backends =
        "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    let pid = server.admin_sql(backends).await.expect("a process");
    let pid = pid.lines().next().expect("our connection").to_owned();
    std::process::Command::new("kill").args(["-KILL", &pid]).status().expect("it runs");
    // Until all of its processes have ended, it may still answer.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let other = client(Kind::Postgres, &url).await;
    is_closed(&other, "b").await;
    is_granted_later(&other, "b").await;
    assert!(guard.is_held());
    guard.release().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_over_a_crash() {
    let Some((server, url)) = forgetful("rising").await else { return };
    let lock = backend(Kind::Postgres, &url).await.expect("a connection");
    for mode in [Mode::Exclusive, Mode::Shared] {
        let mut highest = 0;
        for _ in 0..2 {
            for round in 0..20 {
                let claim = claim(&format!("{mode:?}"), mode, LONGEST).reserving(TOKENS);
                let begun = Instant::now();
                let grant = loop {
                    match lock.acquire(&claim).await {
                        Ok(grant) => break grant.expect("a free lock"),
                        Err(error) => {
                            assert!(error.kind() == ErrorKind::GracePeriod && round == 0, "{error:#}");
                            assert!(begun.elapsed() < Duration::from_secs(30), "{error:#}");
                            tokio::time::sleep(Duration::from_millis(100)).await;
                        }
                    }
                };
                assert!(grant.token().get() > highest, "{mode:?}: {} after {highest}", grant.token());
                highest = grant.last_token().get();
                lock.release(&claim).await.expect("an answer");
            }
            crash(&server).await;
        }
    }
}

/// Whoever was freed by force does not come back, known to the server or not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forced_release_is_not_reclaimed() {
    let Some((server, url)) = forgetful("forced").await else { return };
    let lock = backend(Kind::Postgres, &url).await.expect("a connection");
    write_out(&server).await;
    let lost = claim("lost", Mode::Exclusive, LONGEST);
    let lost = lock.acquire(&lost).await.expect("an answer").expect("a free lock");
    crash(&server).await;
    lock.force_release(lost.claim().name()).await.expect("an answer");
    assert!(matches!(lock.renew(&[lost], soon()).await[..], [Renewal::Lost]));
    is_granted_later(&client(Kind::Postgres, &url).await, "another").await;
    let known = claim("known", Mode::Exclusive, LONGEST);
    let known = lock.acquire(&known).await.expect("an answer").expect("a free lock");
    lock.force_release(known.claim().name()).await.expect("an answer");
    crash(&server).await;
    assert!(matches!(lock.renew(&[known], soon()).await[..], [Renewal::Lost]));
}

/// A replica that is promoted lacks the last grants, and knows that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_replica_grants_nothing_twice() {
    let Some((old, url)) = without_tables("promoted").await else { return };
    let Some(new) = if_installed(old.start_standby(&options()).await) else { return };
    lazy_at_once(&old, &url, "promoted").await;
    let proxy = Proxy::start(old.addr()).await.expect("a proxy");
    let url = grace(&old.url_via(proxy.addr()), "promoted");
    let (one, two) = (client(Kind::Postgres, &url).await, client(Kind::Postgres, &url).await);
    let known = one.lock("known").ttl(LONGEST).await.expect("a free lock");
    write_out(&old).await;
    old.wait_for_standby(&new).await.expect("an answer");
    let lost = one.lock("lost").ttl(LONGEST).await.expect("a free lock");
    old.kill().expect("it runs");
    new.promote().await.expect("it takes writes");
    proxy.redirect(new.addr());
    assert_eq!(record(&new, "promoted", "lost").await, "", "the replica lacks it");
    is_closed(&two, "lost").await;
    is_granted_later(&two, "another").await;
    for guard in [known, lost] {
        assert!(guard.is_held(), "{:?}", guard.lease_state());
        let name = guard.name().to_string();
        assert!(two.lock(&*name).try_now().await.expect("an answer").is_none());
        guard.release().await.expect("held");
    }
}

/// A replica that lacks what the first grant after a crash has changed is promoted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_over_a_crash_and_a_failover() {
    let Some((old, _)) = forgetful("failed_over").await else { return };
    let proxy = Proxy::start(old.addr()).await.expect("a proxy");
    let locks = client(Kind::Postgres, &grace(&old.url_via(proxy.addr()), "failed_over")).await;
    let token = async || {
        let guard = locks.lock("a").wait(Duration::from_mins(1)).await.expect("its turn");
        let token = guard.token();
        guard.release().await.expect("held");
        token
    };
    let before = token().await;
    crash(&old).await;
    is_closed(&locks, "a").await;
    let Some(new) = left_behind(&old).await else { return };
    let at_the_old = token().await;
    assert!(at_the_old > before, "{at_the_old} after {before}");
    old.kill().expect("it runs");
    new.promote().await.expect("it takes writes");
    proxy.redirect(new.addr());
    let at_the_new = token().await;
    assert!(at_the_new > at_the_old, "{at_the_new} after {at_the_old}");
}

/// The status says that holders may be missing, also to a user who may not make a mark.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_holds_is_unknown_until_the_period_is_over() {
    let Some((server, url)) = forgetful("unknown").await else { return };
    let (one, two) = (client(Kind::Postgres, &url).await, client(Kind::Postgres, &url).await);
    let known = one.lock("known").ttl(LONGEST).await.expect("a free lock");
    write_out(&server).await;
    let lost = one.lock("lost").ttl(LONGEST).await.expect("a free lock");
    let free = two.inspect("free").await.expect("an answer");
    assert!(free.is_free() && free.unknown_for.is_none(), "{free:?}");
    let rights = "CREATE ROLE reader LOGIN; GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader";
    server.admin_sql(rights).await.expect("a role");
    let reading = url.replace("postgres@", "reader@") + "&create=false";
    crash(&server).await;
    let reader = client(Kind::Postgres, &reading).await;
    let longest = grace_period(LONGEST);
    for locks in [&reader, &two] {
        for name in ["lost", "free"] {
            let status = locks.inspect(name).await.expect("an answer");
            let is_unknown = status.unknown_for.is_some_and(|left| left > LONGEST / 2 && left <= longest);
            assert!(is_unknown && !status.is_free(), "{status:?}");
        }
        let left = locks.grace_left().await.expect("an answer");
        assert!(left.is_some_and(|left| left <= longest), "{left:?}");
        let error = locks.observe("free").next().await.expect_err("who leads is unknown");
        assert_eq!(error.kind(), ErrorKind::GracePeriod, "{error:#}");
    }
    let findings = two.backend().examine().await.expect("an answer");
    let period = findings.iter().find(|one| one.subject == "grace period").expect("a finding");
    assert!(period.message.contains("grants nothing for another"), "{period:?}");
    is_granted_later(&two, "another").await;
    for locks in [&reader, &two] {
        assert_eq!(locks.grace_left().await.expect("an answer"), None);
        assert!(locks.inspect("free").await.expect("an answer").is_free());
        let status = locks.inspect("lost").await.expect("an answer");
        assert!(status.is_held() && status.unknown_for.is_none(), "{status:?}");
        assert_eq!(locks.observe("free").next().await.expect("an answer"), None);
    }
    let refused = reader.lock("free").try_now().await.expect_err("it may only read");
    assert_eq!(refused.kind(), ErrorKind::Refused, "{refused:#}");
    for guard in [known, lost] {
        guard.release().await.expect("held");
    }
    // The floor of tokens tells how often that has happened.
    let good = two.backend().examine().await.expect("an answer");
    assert!(good.iter().any(|one| one.subject == "durability" && one.severity == Severity::Good), "{good:?}");
    crash(&server).await;
    is_granted_later(&two, "another").await;
    let often = two.backend().examine().await.expect("an answer");
    let often = often.iter().find(|one| one.subject == "durability").expect("a finding");
    assert!(often.message.contains("2 grace periods have begun"), "{often:?}");
}

/// An operator knows that the server lacks grants.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_period_is_begun_by_hand() {
    let Some((server, url)) = forgetful("by_hand").await else { return };
    for pooled in ["", "&pooled=true"] {
        let url = format!("{url}{pooled}");
        let (one, two) = (client(Kind::Postgres, &url).await, client(Kind::Postgres, &url).await);
        let kept = one.lock("kept").ttl(LONGEST).await.expect("a free lock");
        let freed = one.lock("freed").ttl(LONGEST).await.expect("a free lock");
        let token = freed.token();
        // A period that is under way begins again.
        for _ in 0..2 {
            let lasts = two.begin_grace().await.expect("begun");
            assert_eq!(lasts, grace_period(LONGEST));
            is_closed(&one, "another").await;
            tokio::time::sleep(LONGEST / 2).await;
        }
        let again = Instant::now();
        freed.release().await.expect("held");
        is_closed(&two, "freed").await;
        let next = two.lock("freed").wait(Duration::from_secs(30)).await.expect("its turn");
        assert!(again.elapsed() > LONGEST / 4, "{:?}", again.elapsed());
        // No server where locks were in use has granted a token above these meanwhile.
        assert!(next.token().get() > token.get() + (1 << 32), "{} after {token}", next.token());
        assert!(kept.is_held() && two.lock("kept").try_now().await.expect("an answer").is_none());
        for guard in [next, kept] {
            guard.release().await.expect("held");
        }
    }
    let disk = client(Kind::Postgres, &format!("{}?table=disk", server.url())).await;
    let error = disk.begin_grace().await.expect_err("no such tables");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:#}");
    assert!(error.to_string().starts_with("postgres: begin a grace period: unsupported: "), "{error}");
}

/// Meanwhile a lock that is free has a waiter whose turn it is, and who is not granted the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_polls_asks_rarely_until_the_period_is_over() {
    let Some((server, url)) = forgetful("polled").await else { return };
    let proxy = Proxy::start(server.addr()).await.expect("a proxy");
    let far = grace(&server.url_via(proxy.addr()), "polled") + "&pooled=true";
    let (near, far) = (client(Kind::Postgres, &url).await, client(Kind::Postgres, &far).await);
    let guard = near.lock("a").ttl(LONGEST).await.expect("a free lock");
    let waiting = tokio::spawn(far.lock("a").ttl(LONGEST).wait(Duration::from_secs(30)).into_future());
    wait_for(&near, "a", 1).await;
    near.begin_grace().await.expect("begun");
    guard.release().await.expect("held");
    let before = proxy.turns();
    tokio::time::sleep(LONGEST / 2).await;
    let asked = proxy.turns() - before;
    println!("{asked} round trips in {:?}", LONGEST / 2);
    assert!(asked < 200, "{asked} round trips in {:?}", LONGEST / 2);
    waiting.await.expect("no panic").expect("its turn").release().await.expect("held");
}

/// A clean stop forgets nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clean_restart_costs_nothing() {
    let Some((server, url)) = forgetful_for("clean", "30s").await else { return };
    let locks = client(Kind::Postgres, &url).await;
    let guard = locks.lock("a").ttl(Duration::from_secs(30)).await.expect("a free lock");
    server.stop().await.expect("it ends");
    server.restart().await.expect("it starts");
    locks.lock("b").await.expect("a free lock").release().await.expect("held");
    assert!(locks.lock("a").try_now().await.expect("an answer").is_none());
    guard.release().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grants_wait_for_no_disk() {
    let Some(server) = counting().await else { return };
    let url = grace(&server.url(), "unflushed");
    lazy_at_once(&server, &url, "unflushed").await;
    for mode in [Mode::Exclusive, Mode::Shared] {
        let lock = backend(Kind::Postgres, &url).await.expect("a connection");
        let known = claim("a", mode, LONGEST);
        lock.acquire(&known).await.expect("an answer").expect("a free lock");
        lock.release(&known).await.expect("an answer");
        let before = syncs(&server).await;
        for _ in 0..100 {
            let claim = claim("a", mode, LONGEST);
            let grant = lock.acquire(&claim).await.expect("an answer").expect("a free lock");
            assert!(matches!(lock.renew(&[grant], soon()).await[..], [Renewal::Renewed(_)]));
            lock.release(&claim).await.expect("an answer");
        }
        lock.close().await;
        let count = syncs(&server).await - before;
        println!("{mode:?}: {count} flushes for 100 locks");
        assert!(count < 20, "{mode:?}: {count} flushes for 100 locks");
    }
}

/// The record of a holder whose lease had ended is back, and that of the next one is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_record_verifies_nothing() {
    let Some((server, url)) = forgetful("verified").await else { return };
    let lock = backend(Kind::Postgres, &url).await.expect("a connection");
    let old = claim("a", Mode::Exclusive, LONGEST);
    let old = lock.acquire(&old).await.expect("an answer").expect("a free lock");
    write_out(&server).await;
    let verify = async |grant: &Grant| {
        let mut session = session(&url).await;
        let mut transaction = session.begin().await.expect("a transaction");
        grant.verify_in(&mut transaction).await
    };
    verify(&old).await.expect("it is held");
    tokio::time::sleep(LONGEST + Duration::from_millis(200)).await;
    let new = claim("a", Mode::Exclusive, LONGEST);
    let new = lock.acquire(&new).await.expect("an answer").expect("the lease has ended");
    crash(&server).await;
    let early = verify(&old).await.expect_err("nobody knows");
    assert_eq!(early.kind(), ErrorKind::GracePeriod, "{early:#}");
    let kept = lock.renew(std::slice::from_ref(&new), soon()).await;
    assert!(matches!(kept[..], [Renewal::Renewed(_)]), "{kept:?}");
    is_granted_later(&client(Kind::Postgres, &url).await, "another").await;
    assert_eq!(verify(&old).await.expect_err("it has lost").kind(), ErrorKind::Lost);
    verify(&new).await.expect("it is held");
}
