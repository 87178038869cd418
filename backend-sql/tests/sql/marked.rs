//! Claims that enter the queue of a marked lock without the lock's row on PostgreSQL, and the releases that
//! grant the lock to them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lockwell_core::{LockGuard, Locks, Mode, Released, Result};
use sqlx::AssertSqlSafe;
use sqlx::postgres::{PgConnection, PgListener};
use testbed::{Postgres, Proxy, if_installed};
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::crash::{counting, syncs};
use crate::grace::lazy_at_once;
use crate::servers::{
    Kind, admin, backend, claim, client, count, options, postgres, proxy, session, through, until_count, url,
    wait_for,
};

/// How long anything may take on a busy machine.
const LONG: Duration = Duration::from_secs(30);
/// Less than the time after which a waiter looks by itself.
const SOON: Duration = Duration::from_secs(1);

fn waiting(locks: &Locks, name: &str) -> JoinHandle<Result<LockGuard>> {
    tokio::spawn(locks.lock(name).ttl(LONG).wait(LONG * 2).into_future())
}

/// A claim enters the queue of a lock that is held, and leaves it. Then the lock is marked, and this client
/// knows that.
async fn mark(locks: &Locks, name: &str) {
    let waiting = waiting(locks, name);
    wait_for(locks, name, 1).await;
    waiting.abort();
    wait_for(locks, name, 0).await;
}

async fn run(session: &mut PgConnection, sql: String) {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(session).await.expect("a statement");
}

/// A place that a release can grant the lock to. The test plays its client.
fn place(table: &str, name: &str, client: Uuid, number: usize) -> String {
    format!(
        "INSERT INTO {table}_clients VALUES ('{client}', now() + interval '1 hour', 1) ON CONFLICT DO NOTHING;
         INSERT INTO {table}_waiters (name, owner, client, number, label, mode, tokens, lease)
             VALUES ('{name}', gen_random_uuid(), '{client}', {number}, '', 0, 1, 3000000)"
    )
}

async fn listener(url: &str, client: Uuid) -> PgListener {
    let address = url.split('?').next().expect("an address");
    let mut listener = PgListener::connect(address).await.expect("connects");
    listener.listen(&format!("lockwell_{}", client.simple())).await.expect("listens");
    listener
}

/// Whether a release has notified the client of a grant for its place with this number.
async fn is_granted(listener: &mut PgListener, number: usize, within: Duration) -> bool {
    let Ok(told) = tokio::time::timeout(within, listener.recv()).await else { return false };
    told.expect("connected").payload().starts_with(&format!("{number}:"))
}

/// A session has locked the row of a lock that somebody waits for already.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_enters_without_the_row() {
    let Some(url) = url(Kind::Postgres, "rowless").await else { return };
    let (holder, waiter) = (client(Kind::Postgres, &url).await, client(Kind::Postgres, &url).await);
    let guard = holder.lock("a").ttl(LONG * 4).await.expect("a free lock");
    let first = waiting(&waiter, "a");
    wait_for(&holder, "a", 1).await;
    let (mut row, mut watching) = (session(&url).await, session(&url).await);
    let pid = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut row).await;
    let pid: i32 = pid.expect("an answer");
    run(&mut row, "BEGIN; SELECT 1 FROM rowless WHERE name = 'a' FOR UPDATE".to_owned()).await;
    let second = waiting(&waiter, "a");
    let state = "SELECT (SELECT count(*) FROM rowless_waiters),
        EXISTS (SELECT 1 FROM pg_stat_activity WHERE $1 = ANY(pg_blocking_pids(pid)))";
    let end = Instant::now() + LONG;
    loop {
        // The heartbeat of the client counts as a late one, so that the claim need not give another.
        let alive = "UPDATE rowless_clients SET alive_until = now() + interval '1 minute'";
        run(&mut watching, alive.to_owned()).await;
        let state = sqlx::query_as(state).bind(pid).fetch_one(&mut watching).await;
        let (places, is_waited_for): (i64, bool) = state.expect("an answer");
        assert!(!is_waited_for, "somebody waits for the row");
        if places == 2 {
            break;
        }
        assert!(Instant::now() < end, "it does not enter");
    }
    run(&mut row, "COMMIT".to_owned()).await;
    guard.release().await.expect("held");
    for next in [first, second] {
        next.await.expect("no panic").expect("its turn").release().await.expect("held");
    }
}

/// A place is committed while a release waits for the lock's row, so its snapshot lacks the place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_that_a_release_has_not_seen_is_granted_the_lock_soon() {
    let Some(url) = url(Kind::Postgres, "overlooked").await else { return };
    let lock = backend(Kind::Postgres, &url).await.expect("connects");
    let locks = Locks::new(Arc::clone(&lock)).expect("a keeper").server_order();
    let next = Uuid::from_u128(7);
    let mut listener = listener(&url, next).await;
    let (mut row, mut other) = (session(&url).await, session(&url).await);
    for round in 0..12 {
        // Names are arguments, and tables are not, of statements that a session has prepared.
        let name = format!("overlooked {round}");
        let held = claim(&name, Mode::Exclusive, LONG * 4);
        lock.acquire(&held).await.expect("an answer").expect("a free lock");
        // The two ways of a release.
        if round % 2 == 0 {
            mark(&locks, &name).await;
        } else {
            run(&mut other, format!("UPDATE overlooked SET waited = true WHERE name = '{name}'")).await;
        }
        run(&mut row, format!("BEGIN; SELECT 1 FROM overlooked WHERE name = '{name}' FOR UPDATE")).await;
        let releasing = tokio::spawn({
            let lock = Arc::clone(&lock);
            async move { lock.release(&held).await }
        });
        // It waits for the row, for at most 50 ms, and then again.
        let waits = "SELECT count(*) FROM pg_stat_activity
            WHERE wait_event_type = 'Lock' AND query LIKE '%overlooked%' AND pid <> pg_backend_pid()";
        let end = Instant::now() + LONG;
        while sqlx::query_scalar::<_, i64>(waits).fetch_one(&mut other).await.expect("an answer") == 0 {
            assert!(Instant::now() < end, "the release does not wait");
        }
        run(&mut other, place("overlooked", &name, next, round)).await;
        run(&mut row, "COMMIT".to_owned()).await;
        assert!(is_granted(&mut listener, round, SOON).await, "{name}: nobody sees the place");
        assert_eq!(releasing.await.expect("no panic").expect("an answer"), Released::Released, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_mark_goes_with_the_last_waiter() {
    const TIMES: u64 = 20;
    let Some(server) = postgres().await else { return };
    let proxy = Proxy::start(server.addr()).await.expect("a proxy");
    let url = server.url() + "?table=last_waiter";
    let (holder, waiter) = (client(Kind::Postgres, &url).await, client(Kind::Postgres, &url).await);
    let far = server.url_via(proxy.addr()) + "?table=last_waiter";
    let lock = backend(Kind::Postgres, &far).await.expect("connects");
    for leaves in [true, false] {
        let name = format!("leaves {leaves}");
        let guard = holder.lock(&*name).ttl(LONG).await.expect("a free lock");
        let next = waiting(&waiter, &name);
        wait_for(&holder, &name, 1).await;
        let marked = format!("last_waiter WHERE name = '{name}' AND waited");
        assert_eq!(count(Kind::Postgres, &url, &marked).await, "1", "{name}");
        if leaves {
            next.abort();
            wait_for(&holder, &name, 0).await;
            guard.release().await.expect("held");
        } else {
            guard.release().await.expect("held");
            next.await.expect("no panic").expect("its turn").release().await.expect("held");
        }
        assert_eq!(count(Kind::Postgres, &url, &marked).await, "0", "{name}");
        let pass = async || {
            let claim = claim(&name, Mode::Exclusive, LONG);
            lock.acquire(&claim).await.expect("an answer").expect("a free lock");
            lock.release(&claim).await.expect("an answer");
        };
        // What is sent once for each connection.
        pass().await;
        let before = proxy.turns();
        for _ in 0..TIMES {
            pass().await;
        }
        let turns = proxy.turns() - before;
        assert_eq!(turns, 2 * TIMES, "{name}: {TIMES} locks that are taken and released");
    }
}

/// As after a crash, but the server goes on, and the marks stay or not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_whose_places_are_gone_get_their_turns() {
    const WAITERS: usize = 9;
    let Some(url) = url(Kind::Postgres, "emptied").await else { return };
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(client(Kind::Postgres, &url).await);
    }
    let losses = [
        "TRUNCATE emptied_waiters, emptied_clients",
        "TRUNCATE emptied_waiters, emptied_clients; UPDATE emptied SET waited = false",
        "DELETE FROM emptied_waiters",
        "DELETE FROM emptied_waiters; UPDATE emptied SET waited = false",
        "DELETE FROM emptied_clients",
    ];
    for (round, loss) in losses.into_iter().enumerate() {
        // At once, and when the waiters have entered again.
        for pause in [Duration::ZERO, Duration::from_secs(2)] {
            let name = format!("lock {round} {pause:?}");
            let guard = clients[0].lock(&*name).ttl(LONG * 4).await.expect("a free lock");
            let waiters: Vec<_> = (0..WAITERS)
                .map(|n| {
                    let request = clients[n % 3].lock(&*name).ttl(LONG).wait(LONG * 2);
                    tokio::spawn(async move { request.await?.release().await })
                })
                .collect();
            wait_for(&clients[0], &name, WAITERS).await;
            admin(Kind::Postgres, &url, loss).await;
            let lost = Instant::now();
            tokio::time::sleep(pause).await;
            guard.release().await.expect("held");
            for waiter in waiters {
                waiter.await.expect("no panic").expect("its turn");
            }
            let took = lost.elapsed().saturating_sub(pause);
            println!("{loss}, then {pause:?}: all had their turns after {took:?}");
            assert!(took < Duration::from_secs(8), "{loss}, then {pause:?}: {took:?}");
        }
    }
    until_count(Kind::Postgres, &url, "emptied_waiters", 0, LONG).await;
}

/// Many claims for one name, of which three in ten are cancelled at some moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_claims_leaves_no_place() {
    const CLIENTS: usize = 8;
    const TASKS: usize = 3 * CLIENTS;
    const TURNS: usize = 60;
    let Some(url) = url(Kind::Postgres, "gusts").await else { return };
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(client(Kind::Postgres, &url).await);
    }
    let (held, began) = (Arc::<AtomicU64>::default(), Instant::now());
    let storm = |task: usize| {
        let (locks, held) = (clients[task % CLIENTS].clone(), Arc::clone(&held));
        tokio::spawn(async move {
            let mut longest = Duration::ZERO;
            for turn in 0..TURNS {
                let (dice, began) = (task * 7 + turn * 3, Instant::now());
                let request = locks.lock("a").wait(LONG * 2).into_future();
                let guard = if dice % 10 < 3 {
                    let patience = Duration::from_micros((dice * 977 % 12_000) as u64);
                    tokio::time::timeout(patience, request).await.ok()
                } else {
                    Some(request.await)
                };
                let Some(guard) = guard else { continue };
                let guard = guard.expect("its turn");
                longest = longest.max(began.elapsed());
                assert_eq!(held.fetch_add(1, Ordering::SeqCst), 0, "two hold one lock");
                tokio::task::yield_now().await;
                held.fetch_sub(1, Ordering::SeqCst);
                guard.release().await.expect("held");
            }
            longest
        })
    };
    let mut longest = Duration::ZERO;
    for task in (0..TASKS).map(storm).collect::<Vec<_>>() {
        longest = longest.max(task.await.expect("no task fails"));
    }
    println!("the longest wait: {longest:?}, all: {:?}", began.elapsed());
    assert!(longest < Duration::from_secs(6), "{longest:?}");
    // Claims whose callers have left are cleaned up in the background.
    until_count(Kind::Postgres, &url, "gusts_waiters", 0, LONG).await;
    let guard = clients[0].lock("a").wait(SOON * 4).await.expect("a free lock");
    guard.release().await.expect("held");
}

/// Where grants wait for no disk, a hand-over and its notification are one transaction. In the first time of the
/// tables those of a lazy client wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_without_the_disk_is_one_transaction() {
    let Some(server) = if_installed(Postgres::start_with(&options()).await) else { return };
    for (table, durability, transactions) in [
        ("counted", "disk", 2..=2),
        // `hand_first` sees that it would have to wait.
        ("counted_young", "grace&longest_ttl=1h", 2..=3),
        ("counted_lazy", "grace&longest_ttl=1h", 1..=1),
    ] {
        let url = format!("{}?table={table}&durability={durability}", server.url());
        if table == "counted_lazy" {
            lazy_at_once(&server, &url, table).await;
        }
        let lock = backend(Kind::Postgres, &url).await.expect("connects");
        let locks = Locks::new(Arc::clone(&lock)).expect("a keeper").server_order();
        let next = Uuid::from_u128(9);
        let mut listener = listener(&url, next).await;
        let mut session = session(&url).await;
        let mut fewest = i64::MAX;
        // Others have transactions now and then, such as heartbeats.
        for round in 0..8 {
            let name = format!("lock {round}");
            let held = claim(&name, Mode::Exclusive, LONG / 2);
            lock.acquire(&held).await.expect("an answer").expect("a free lock");
            mark(&locks, &name).await;
            run(&mut session, place(table, &name, next, round)).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
            let before = transaction(&mut session).await;
            let released = lock.release(&held).await.expect("an answer");
            fewest = fewest.min(transaction(&mut session).await - before);
            assert_eq!(released, Released::Released, "{table}");
            assert!(is_granted(&mut listener, round, LONG).await, "{table}: {name}");
        }
        assert!(transactions.contains(&fewest), "{table}: {fewest}");
    }
}

/// The number of the next transaction that writes or notifies.
async fn transaction(session: &mut PgConnection) -> i64 {
    let next = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint";
    sqlx::query_scalar(next).fetch_one(session).await.expect("an answer")
}

/// Another that notifies waits for its commit, and nobody else can notify meanwhile. That delays no release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_does_not_wait_for_others_that_notify() {
    let Some(server) = if_installed(Postgres::start_with(&options()).await) else { return };
    let url = format!("{}?table=untold_notes&durability=grace", server.url());
    lazy_at_once(&server, &url, "untold_notes").await;
    let lock = backend(Kind::Postgres, &url).await.expect("connects");
    let locks = Locks::new(Arc::clone(&lock)).expect("a keeper").server_order();
    let held = claim("a", Mode::Exclusive, LONG);
    lock.acquire(&held).await.expect("an answer").expect("a free lock");
    mark(&locks, "a").await;
    let next = Uuid::from_u128(11);
    let (mut listener, mut session) = (listener(&url, next).await, session(&url).await);
    run(&mut session, place("untold_notes", "a", next, 1)).await;
    let strict = "ALTER SYSTEM SET synchronous_standby_names = 'nobody'; SELECT pg_reload_conf()";
    server.admin_sql(strict).await.expect("an administrator");
    // It waits for a replica that does not exist, once the setting is in force.
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    let (mut tries, end) = (0, Instant::now() + LONG);
    let other = loop {
        let sql = format!("BEGIN; CREATE TABLE other{tries} (); NOTIFY another; COMMIT");
        let other = tokio::spawn({
            let server = server.clone();
            async move { server.admin_sql(&sql).await }
        });
        let mut is_waiting = false;
        while !is_waiting && !other.is_finished() {
            is_waiting = server.admin_sql(waits).await.expect("an answer").trim() != "0";
        }
        if is_waiting {
            break other;
        }
        assert!(Instant::now() < end, "no commit waits");
        tries += 1;
    };
    let released = tokio::time::timeout(LONG, lock.release(&held)).await;
    let places = server.admin_sql("SELECT count(*) FROM untold_notes_waiters").await.expect("an answer");
    let lax = "ALTER SYSTEM RESET synchronous_standby_names; SELECT pg_reload_conf()";
    server.admin_sql(lax).await.expect("an administrator");
    other.await.expect("no panic").expect("an administrator");
    assert_eq!(released.expect("in time").expect("an answer"), Released::Released);
    assert_eq!(places.trim(), "0", "the lock was not granted");
    // What could not be sent is not sent with what the next release leaves.
    let held = claim("b", Mode::Exclusive, LONG);
    lock.acquire(&held).await.expect("an answer").expect("a free lock");
    run(&mut session, "UPDATE untold_notes SET waited = true WHERE name = 'b'".to_owned()).await;
    run(&mut session, place("untold_notes", "b", next, 2)).await;
    assert_eq!(lock.release(&held).await.expect("an answer"), Released::Released);
    assert!(is_granted(&mut listener, 2, LONG).await, "the first notification is not that of this release");
}

/// A release that finds nobody who waits, though somebody has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_grants_nothing_waits_for_no_disk() {
    const TIMES: u64 = 30;
    let Some(server) = counting().await else { return };
    for (durability, grants) in [("disk", TIMES), ("grace", 0)] {
        let table = format!("dry_{durability}");
        let url = format!("{}?table={table}&durability={durability}", server.url());
        if durability == "grace" {
            lazy_at_once(&server, &url, &table).await;
        }
        let lock = backend(Kind::Postgres, &url).await.expect("connects");
        let locks = Locks::new(Arc::clone(&lock)).expect("a keeper").server_order();
        let before = syncs(&server).await;
        for _ in 0..TIMES {
            let held = claim("a", Mode::Exclusive, LONG);
            lock.acquire(&held).await.expect("an answer").expect("a free lock");
            mark(&locks, "a").await;
            assert_eq!(lock.release(&held).await.expect("an answer"), Released::Released);
        }
        lock.close().await;
        let count = syncs(&server).await - before;
        println!("{durability}: {count} flushes for {TIMES} locks");
        assert!(count < grants + TIMES / 2, "{durability}: {count} flushes for {TIMES} locks");
    }
}

/// The server chooses its plans by its statistics of the tables, and here has little choice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_takes_one_place_whatever_the_plan() {
    const PLACES: usize = 5;
    let others = ["indexscan", "bitmapscan", "hashjoin", "mergejoin", "material"];
    let off = |options: testbed::Options, other: &str| options.setting(format!("enable_{other}"), "off");
    let Some(server) = if_installed(Postgres::start_with(&others.into_iter().fold(options(), off)).await)
    else {
        return;
    };
    for durability in ["disk", "grace"] {
        let table = format!("planned_{durability}");
        let url = format!("{}?table={table}&durability={durability}", server.url());
        if durability == "grace" {
            lazy_at_once(&server, &url, &table).await;
        }
        let lock = backend(Kind::Postgres, &url).await.expect("connects");
        let locks = Locks::new(Arc::clone(&lock)).expect("a keeper").server_order();
        let next = Uuid::from_u128(13);
        let mut session = session(&url).await;
        for round in 0..8 {
            let name = format!("lock {round}");
            let held = claim(&name, Mode::Exclusive, LONG);
            lock.acquire(&held).await.expect("an answer").expect("a free lock");
            mark(&locks, &name).await;
            run(&mut session, place(&table, &name, next, 0)).await;
            // The statistics of every second round know this place alone.
            if round % 2 == 0 {
                run(&mut session, format!("ANALYZE {table}_waiters")).await;
            }
            for number in 1..PLACES {
                run(&mut session, place(&table, &name, next, number)).await;
            }
            let released = lock.release(&held).await.expect("an answer");
            assert_eq!(released, Released::Released, "{durability} {round}");
            let numbers = format!("SELECT array_agg(number ORDER BY number) FROM {table}_waiters");
            let numbers = sqlx::query_scalar(AssertSqlSafe(numbers)).fetch_one(&mut session).await;
            let numbers: Option<Vec<i64>> = numbers.expect("an answer");
            assert_eq!(numbers, Some(vec![1, 2, 3, 4]), "{durability} {round}");
            run(&mut session, format!("DELETE FROM {table}_waiters")).await;
        }
    }
}

/// The first copy of a claim arrives when the second one has got the lock: it takes no place, as nobody would
/// give that up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_copy_takes_no_place_beside_the_lock() {
    let Some(url) = url(Kind::Postgres, "late_place").await else { return };
    let proxy = proxy(Kind::Postgres).await.expect("a network");
    let near = client(Kind::Postgres, &url).await;
    let far = client(Kind::Postgres, &(through(&url, &proxy) + "&timeout=6s")).await;
    let guard = near.lock("a").ttl(LONG * 4).await.expect("a free lock");
    // The second claim has the statements prepared that the next one sends.
    for _ in 0..2 {
        mark(&far, "a").await;
    }
    proxy.hold_back();
    let next = waiting(&far, "a");
    wait_for(&near, "a", 1).await;
    guard.release().await.expect("held");
    let guard = next.await.expect("no panic").expect("its turn");
    assert!(proxy.deliver() > 0, "nothing was held back");
    // The server reads it.
    tokio::time::sleep(SOON / 2).await;
    assert_eq!(count(Kind::Postgres, &url, "late_place_waiters").await, "0");
    guard.release().await.expect("held");
    assert_eq!(count(Kind::Postgres, &url, "late_place_waiters").await, "0");
}
