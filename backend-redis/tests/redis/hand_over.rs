//! A release grants to those who wait, in the same step.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lockwell_core::{LockGuard, Locks};
use testbed::{Direction, Proxy, Redis};
use tokio::task::JoinHandle;

use crate::asking::{calls, life, queued};
use crate::servers::{client, keys, on_disk, redis, redis_with, tell, until};

const LOCK: &str = "lockwell:a";
const QUEUE: &str = "lockwell:\u{1f}queue\u{1f}a";
const WAITERS: &str = "lockwell:\u{1f}waiters\u{1f}a";

/// How long a provisional lease lasts.
const PROVISIONAL: Duration = Duration::from_secs(3);

type Waiting = JoinHandle<lockwell_core::Result<LockGuard>>;

/// Starts a waiter, and returns when this number of claims is in the queue.
async fn wait(locks: &Locks, ttl: Duration, place: usize) -> Waiting {
    let waiting = tokio::spawn(locks.lock("a").ttl(ttl).wait(Duration::from_secs(60)).into_future());
    queued(locks, "a", place).await;
    waiting
}

async fn turn(waiting: Waiting) -> LockGuard {
    let guard = tokio::time::timeout(Duration::from_secs(20), waiting).await.expect("its turn comes");
    guard.expect("no panic").expect("its turn comes")
}

const TTL: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_call_and_one_message_hand_the_lock_over_and_the_keeper_extends_it() {
    let Some(server) = redis().await else { return };
    let (one, two) = (client(&server.url()).await, client(&server.url()).await);
    let holder = one.lock("a").await.expect("a free lock");
    let token = holder.token();
    let waiting = wait(&two, TTL, 1).await;
    // From now on the first client knows that somebody waits.
    holder.release().await.expect("held");
    let holder = turn(waiting).await;
    assert!(holder.token() > token);
    let waiting = wait(&one, TTL, 1).await;
    tell(&server, &["CONFIG", "RESETSTAT"]);
    holder.release().await.expect("held");
    let guard = turn(waiting).await;
    let (scripts, published) = (calls(&server, "evalsha"), calls(&server, "publish"));
    // Heartbeats and renewals come on top, seldom.
    assert!((1..=2).contains(&scripts) && published == 1, "{scripts} calls, {published} messages");
    assert!(guard.is_held());
    let value = tell(&server, &["GET", LOCK]);
    let of_guard = format!(":{}:", guard.token());
    assert!(
        value.contains(&of_guard) && value.trim_end().ends_with(guard.grant().claim().label()),
        "{value}"
    );
    until("the whole lease", || life(&server, LOCK) > 9_000).await;
    tokio::time::sleep(PROVISIONAL + Duration::from_secs(1)).await;
    assert!(guard.is_held());
    guard.release().await.expect("held");
    assert_eq!(keys(&server), [""; 0], "nothing is left");
}

/// Its lease has lapsed, and another has the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_comes_after_its_lease_is_not_valid() {
    let Some(server) = redis().await else { return };
    let proxy = Proxy::start(server.addr()).await.expect("a proxy");
    let (one, late) = (client(&server.url()).await, client(&format!("redis://{}", proxy.addr())).await);
    for _ in 0..3 {
        let holder = one.lock("a").await.expect("a free lock");
        let ttl = Duration::from_millis(500);
        let waiting = wait(&late, ttl, 1).await;
        proxy.hold(Direction::ToClient);
        let start = Instant::now();
        holder.release().await.expect("held");
        assert!(one.lock("a").try_now().await.expect("an answer").is_none(), "it was granted to the waiter");
        let second = one.lock("a").await.expect("the lease of the waiter ends");
        assert!(start.elapsed() + Duration::from_millis(10) >= ttl, "not before");
        proxy.heal();
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!waiting.is_finished() && second.is_held(), "two guards say that they hold the lock");
        let token = second.token();
        second.release().await.expect("held");
        let guard = turn(waiting).await;
        assert!(guard.token() > token);
        guard.release().await.expect("held");
    }
}

/// The first copy of a heartbeat comes when the lock has long been released, and takes a place for nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_place_of_a_late_copy_is_removed() {
    let Some(server) = redis().await else { return };
    let proxy = Proxy::start(server.addr()).await.expect("a proxy");
    let (one, late) = (client(&server.url()).await, client(&format!("redis://{}", proxy.addr())).await);
    let holder = one.lock("a").await.expect("a free lock");
    let waiting = wait(&late, TTL * 3, 1).await;
    let accepted = proxy.accepted();
    proxy.hold_back();
    until("it asks on another connection", || proxy.accepted() > accepted).await;
    holder.release().await.expect("held");
    let guard = turn(waiting).await;
    assert!(guard.grant().claim().in_doubt_until().is_some(), "nothing was sent twice");
    guard.release().await.expect("held");
    let next = one.lock("a").await.expect("a free lock");
    tell(&server, &["CONFIG", "RESETSTAT"]);
    assert!(proxy.deliver() > 0);
    until("the copy has taken a place", || calls(&server, "zadd") > 0).await;
    // Nobody but the repeated release removes it while the lock is held.
    until("the place is removed", || tell(&server, &["ZCARD", QUEUE]) == ":0\r\n").await;
    next.release().await.expect("held");
}

/// The child of the tests below: a process with waiters, for as long as it lives.
#[tokio::test]
#[ignore = "a part of other tests"]
async fn a_process_that_waits() {
    let Ok(url) = std::env::var("HAND_OVER_URL") else { return };
    let locks = client(&url).await;
    let waiting: Vec<_> = (0..3).map(|_| tokio::spawn(locks.lock("a").wait(TTL * 6).into_future())).collect();
    for waiting in waiting {
        let guard = turn(waiting).await;
        tokio::time::sleep(TTL * 6).await;
        drop(guard);
    }
}

struct Process(Child);

impl Process {
    /// Three waiters of a process of their own stand in the queue.
    async fn of_waiters(server: &Redis, locks: &Locks) -> Self {
        let tests = std::env::current_exe().expect("it runs");
        let mut command = Command::new(tests);
        command.args(["--ignored", "--exact", "hand_over::a_process_that_waits"]);
        command.env("HAND_OVER_URL", server.url()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = Self(command.spawn().expect("it starts"));
        queued(locks, "a", 3).await;
        child
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.0.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_hangs_costs_one_provisional_lease_for_all_its_waiters() {
    granted_to_the_dead(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_dies_when_it_was_granted_the_lock_costs_its_provisional_lease() {
    granted_to_the_dead(true).await;
}

async fn granted_to_the_dead(killed: bool) {
    let Some(server) = redis().await else { return };
    let locks = client(&server.url()).await;
    let holder = locks.lock("a").await.expect("a free lock");
    let process = Process::of_waiters(&server, &locks).await;
    process.signal("-STOP");
    let waiting = wait(&locks, TTL, 4).await;
    let start = Instant::now();
    holder.release().await.expect("held");
    assert!(life(&server, LOCK) > 0, "it was granted to the process");
    if killed {
        process.signal("-KILL");
    }
    // Its other waiters have places still when somebody looks next, right after the lease.
    tokio::time::sleep_until((start + PROVISIONAL + Duration::from_millis(50)).into()).await;
    assert!(!waiting.is_finished(), "not before the lease has ended");
    let (waiters, others) = (tell(&server, &["HLEN", WAITERS]), locks.lock("a"));
    assert!(others.try_now().await.expect("an answer").is_none(), "the turn is another's");
    let guard = turn(waiting).await;
    let took = start.elapsed();
    println!("a waiter after a process that hangs: {took:?}, with {} fields of waiters", waiters.trim_end());
    assert!(took + Duration::from_millis(500) < PROVISIONAL * 2, "{took:?}");
    guard.release().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_gone_costs_the_turns_of_all_its_waiters_once() {
    let Some(server) = redis().await else { return };
    let locks = client(&server.url()).await;
    let holder = locks.lock("a").await.expect("a free lock");
    let process = Process::of_waiters(&server, &locks).await;
    let waiting = wait(&locks, TTL, 4).await;
    drop(process);
    until("the server knows", || !tell(&server, &["PUBSUB", "NUMPAT"]).is_empty()).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let start = Instant::now();
    holder.release().await.expect("held");
    turn(waiting).await.release().await.expect("held");
    // Two seconds, and the look of the next one, every 1.3 s.
    assert!(start.elapsed() < Duration::from_millis(4500), "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_is_cancelled_gives_back_what_it_was_granted() {
    let Some(server) = redis().await else { return };
    let proxy = Proxy::start(server.addr()).await.expect("a proxy");
    let (one, late) = (client(&server.url()).await, client(&format!("redis://{}", proxy.addr())).await);
    let holder = one.lock("a").await.expect("a free lock");
    let cancelled = wait(&late, TTL, 1).await;
    let waiting = wait(&one, TTL, 2).await;
    proxy.hold(Direction::ToClient);
    holder.release().await.expect("held");
    assert!(life(&server, LOCK) > 0, "it was granted");
    let start = Instant::now();
    cancelled.abort();
    let guard = turn(waiting).await;
    // Well before the end of the provisional lease.
    assert!(start.elapsed() < PROVISIONAL / 2, "{:?}", start.elapsed());
    proxy.heal();
    guard.release().await.expect("held");
    until("nothing is left", || keys(&server).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_lets_all_readers_in_up_to_the_next_writer() {
    let Some(server) = redis().await else { return };
    let (one, two) = (client(&server.url()).await, client(&server.url()).await);
    let writer = one.write("a").await.expect("a free lock");
    let mut readers = Vec::new();
    for n in 0..10 {
        readers.push(tokio::spawn(two.read("a").wait(TTL * 6).into_future()));
        queued(&one, "a", n + 1).await;
    }
    let next = tokio::spawn(two.write("a").wait(TTL * 6).into_future());
    queued(&one, "a", 11).await;
    let behind = tokio::spawn(two.read("a").wait(TTL * 6).into_future());
    queued(&one, "a", 12).await;
    writer.release().await.expect("held");
    let members = tell(&server, &["ZCARD", "lockwell:\u{1f}members\u{1f}a"]);
    assert_eq!(members, ":10\r\n", "they are in when the release returns");
    let mut tokens = Vec::new();
    let mut inside = Vec::new();
    for reader in readers {
        let guard = turn(reader).await;
        tokens.push(guard.token());
        inside.push(guard);
    }
    assert!(tokens.is_sorted(), "{tokens:?}");
    tokio::time::sleep(PROVISIONAL + Duration::from_secs(1)).await;
    assert!(inside.iter().all(LockGuard::is_held) && !next.is_finished() && !behind.is_finished());
    for guard in inside {
        guard.release().await.expect("held");
    }
    turn(next).await.release().await.expect("held");
    turn(behind).await.release().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strict_clients_have_the_lock_when_its_whole_lease_is_confirmed() {
    let Some(server) = redis_with(&on_disk()).await else { return };
    let url = format!("{}?strict=true", server.url());
    let (one, two) = (client(&url).await, client(&url).await);
    for _ in 0..3 {
        let holder = one.lock("a").await.expect("a free lock");
        let waiting = wait(&two, TTL, 1).await;
        holder.release().await.expect("held");
        let guard = turn(waiting).await;
        assert!(guard.time_left() > PROVISIONAL * 2, "{:?}", guard.time_left());
        guard.release().await.expect("held");
    }
}

/// Its lease with the delay must begin with a request, so a release frees the lock for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_with_a_lock_delay_is_notified_and_asks() {
    let Some(server) = redis().await else { return };
    let (one, two) = (client(&server.url()).await, client(&server.url()).await);
    let holder = one.lock("a").await.expect("a free lock");
    let delayed = two.lock("a").ttl(TTL).lock_delay(Duration::from_secs(1)).wait(TTL * 6);
    let waiting = tokio::spawn(delayed.into_future());
    queued(&one, "a", 1).await;
    assert_eq!(tell(&server, &["HLEN", WAITERS]), ":2\r\n", "a place with its label, and nothing of a grant");
    tell(&server, &["CONFIG", "RESETSTAT"]);
    holder.release().await.expect("held");
    let guard = turn(waiting).await;
    assert_eq!(calls(&server, "publish"), 1);
    assert!(life(&server, LOCK) > 9_000, "the whole lease from the start");
    guard.release().await.expect("held");
}

/// A server can evict the queue without the key beside it: who waits gets a place again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_survives_the_loss_of_its_queue() {
    let Some(server) = redis().await else { return };
    let locks = client(&server.url()).await;
    let holder = locks.lock("a").await.expect("a free lock");
    let waiting = wait(&locks, TTL, 1).await;
    tell(&server, &["DEL", QUEUE]);
    until("a place", || tell(&server, &["ZCARD", QUEUE]) == ":1\r\n").await;
    holder.release().await.expect("held");
    turn(waiting).await.release().await.expect("held");
    until("nothing is left", || keys(&server).is_empty()).await;
}

/// Watches every command that the server carries out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_command_lowers_the_token_counter() {
    let Some(server) = redis().await else { return };
    let ahead = "9000000000000000";
    tell(&server, &["SET", "lockwell:\u{1f}token", ahead]);
    let mut monitor = BufReader::new(TcpStream::connect(server.addr()).expect("it listens"));
    monitor.get_mut().write_all(b"MONITOR\r\n").expect("sent");
    monitor.get_mut().set_read_timeout(Some(TTL)).expect("set");
    let locks = client(&server.url()).await;
    let holder = locks.lock("a").await.expect("a free lock");
    assert!(holder.token().get() > 9_000_000_000_000_000);
    let waiting = wait(&locks, TTL, 1).await;
    holder.release().await.expect("held");
    turn(waiting).await.release().await.expect("held");
    locks.read("a").await.expect("a free lock").release().await.expect("held");
    tell(&server, &["ECHO", "over and out"]);
    let (mut line, mut seen) = (String::new(), Vec::new());
    while !line.contains("over and out") {
        line.clear();
        monitor.read_line(&mut line).expect("a command");
        if line.contains("token\"") && !line.contains("\"GET\"") && !line.contains("EVAL") {
            assert!(line.contains("\"SET\""), "{line}");
            let value = line.split('"').rfind(|word| word.parse::<u64>().is_ok());
            seen.push(value.expect("a value").parse::<u64>().expect("a number"));
        }
    }
    println!("{seen:?}");
    assert!(seen.len() >= 3 && seen.is_sorted() && seen[0] > 9_000_000_000_000_000, "{seen:?}");
}
