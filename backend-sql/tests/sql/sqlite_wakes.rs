//! A release of a lock in an SQLite file wakes who is next, and nobody else.

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockwell_core::Locks;
use rustix::process::{Pid, Signal, kill_process};

use crate::servers::{Kind, admin, client, count, until_count, url};
use crate::sqlite_child::command;

const LONG: Duration = Duration::from_mins(1);
/// Far less than a provisional lease, and than the time for which the place of a dead waiter counts.
const SOON: Duration = Duration::from_millis(1500);

/// The folder of the sockets.
fn folder(url: &str) -> PathBuf {
    let path = url.trim_start_matches("sqlite://").split('?').next().expect("a path");
    format!("{path}-wake").into()
}

/// A waiter that does nothing but receive what it is sent.
struct Silent {
    socket: Option<UnixDatagram>,
    ticket: i64,
}

impl Silent {
    /// Enters the queue of the lock `a`, behind all others.
    async fn enter(url: &str, number: u8, mode: i64, lease: &str) -> Self {
        let id = format!("{number:032x}");
        let folder = folder(url);
        std::fs::create_dir_all(&folder).expect("a folder");
        let socket = UnixDatagram::bind(folder.join(&id)).expect("a socket");
        socket.set_nonblocking(true).expect("a socket");
        let sql = format!(
            "INSERT INTO wakes_queue (name, owner, client, alive_until, label, mode, tokens, lease, entered_at)
             SELECT 'a', x'{id}', x'{id}', unixepoch() * 1000000 + 60000000, 'silent', {mode}, 1, {lease}, 0;
             SELECT CAST(max(ticket) AS TEXT) FROM wakes_queue"
        );
        let ticket = admin(Kind::Sqlite, url, &sql).await.parse().expect("a ticket");
        Self { socket: Some(socket), ticket }
    }

    /// The tickets and tokens of the messages since the last call.
    fn received(&self) -> Vec<(i64, i64)> {
        let Some(socket) = &self.socket else { return Vec::new() };
        let mut messages = Vec::new();
        let mut bytes = [0; 64];
        while let Ok(length) = socket.recv(&mut bytes) {
            // A hint, or a grant.
            assert!(matches!(length, 16 | 40), "{length}");
            let number = |at: usize| i64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
            messages.push((number(0), number(8)));
        }
        messages
    }
}

/// The owner of the lock `a`, its token, and whether it is held.
async fn row(url: &str) -> (String, i64, bool) {
    let sql =
        "SELECT hex(owner) || ' ' || token || ' ' || (expires_at IS NOT NULL) FROM wakes WHERE name = 'a'";
    let text = admin(Kind::Sqlite, url, sql).await;
    let words: Vec<_> = text.split(' ').collect();
    (words[0].to_owned(), words[1].parse().expect("a token"), words[2] == "1")
}

async fn new_file() -> (String, Locks) {
    let url = url(Kind::Sqlite, "wakes").await.expect("no server is needed");
    let locks = client(Kind::Sqlite, &url).await;
    (url, locks)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_grants_the_lock_to_the_first_and_wakes_it_alone() {
    let (url, locks) = new_file().await;
    let guard = locks.lock("a").await.expect("a free lock");
    let before = guard.token().get().cast_signed();
    let mut waiters = Vec::new();
    for number in 1..=20 {
        waiters.push(Silent::enter(&url, number, 0, "3000000").await);
    }
    guard.release().await.expect("held");
    let (owner, token, held) = row(&url).await;
    assert!(owner.ends_with("01") && token > before && held, "{owner} {token} {held}");
    assert_eq!(waiters[0].received(), [(waiters[0].ticket, token)]);
    assert!(waiters[1..].iter().all(|waiter| waiter.received().is_empty()), "the others sleep");
    assert_eq!(count(Kind::Sqlite, &url, "wakes_queue").await, "19");
}

/// Releases that arrive together are one statement if nobody waits for any of the locks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases_that_arrive_together_find_the_waiter() {
    let (url, locks) = new_file().await;
    for with_waiter in [false, true] {
        let mut guards = Vec::new();
        for n in 0..40 {
            guards.push(locks.lock(format!("other {n}")).await.expect("a free lock"));
        }
        guards.push(locks.lock("a").await.expect("a free lock"));
        let waiter = if with_waiter { Some(Silent::enter(&url, 1, 0, "3000000").await) } else { None };
        for released in join_all(guards.into_iter().map(lockwell_core::LockGuard::release)).await {
            released.expect("held");
        }
        let held = count(Kind::Sqlite, &url, "wakes WHERE expires_at IS NOT NULL").await;
        assert_eq!(held, if with_waiter { "1" } else { "0" });
        if let Some(waiter) = waiter {
            let (owner, token, held) = row(&url).await;
            assert!(owner.ends_with("01") && held, "{owner} {held}");
            assert_eq!(waiter.received(), [(waiter.ticket, token)]);
        }
    }
}

/// A client that has ended is passed over at once, and its place goes with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_passes_over_clients_that_are_gone() {
    let (url, locks) = new_file().await;
    let guard = locks.lock("a").await.expect("a free lock");
    let mut waiters = Vec::new();
    for number in 1..=64 {
        waiters.push(Silent::enter(&url, number, 0, "3000000").await);
    }
    for gone in &mut waiters[..62] {
        gone.socket = None;
    }
    std::fs::remove_file(folder(&url).join(format!("{:032x}", 5))).expect("a socket");
    guard.release().await.expect("held");
    let (owner, token, held) = row(&url).await;
    assert!(owner.ends_with("3F") && held, "{owner} {held}");
    assert_eq!(waiters[62].received(), [(waiters[62].ticket, token)]);
    assert!(waiters[63].received().is_empty());
    assert_eq!(count(Kind::Sqlite, &url, "wakes_queue").await, "1");
}

/// Waiters that ask by themselves, and those that can have the lock together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_not_granted_the_lock_is_woken_to_ask() {
    let (url, locks) = new_file().await;
    let guard = locks.lock("a").await.expect("a free lock");
    let first = Silent::enter(&url, 1, 0, "NULL").await;
    let second = Silent::enter(&url, 2, 0, "3000000").await;
    guard.release().await.expect("held");
    assert!(!row(&url).await.2, "it is free");
    assert_eq!((first.received(), second.received()), (vec![(first.ticket, 0)], vec![]));
    admin(Kind::Sqlite, &url, "DELETE FROM wakes_queue").await;

    let guard = locks.lock("a").await.expect("a free lock");
    let readers = [Silent::enter(&url, 3, -1, "NULL").await, Silent::enter(&url, 4, -1, "NULL").await];
    let writer = Silent::enter(&url, 5, 0, "3000000").await;
    let reader = Silent::enter(&url, 6, -1, "NULL").await;
    guard.release().await.expect("held");
    for reader in readers {
        assert_eq!(reader.received(), [(reader.ticket, 0)]);
    }
    assert!(writer.received().is_empty() && reader.received().is_empty());
}

/// Whoever writes to a socket causes a look at the lock, and no grant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_of_a_stranger_grants_nothing() {
    let (url, locks) = new_file().await;
    let guard = locks.lock("a").await.expect("a free lock");
    let other = client(Kind::Sqlite, &url).await;
    let waiting = tokio::spawn(other.lock("a").wait(LONG).into_future());
    until_waiting(&url, 1).await;
    let text = admin(Kind::Sqlite, &url, "SELECT ticket || ' ' || hex(client) FROM wakes_queue").await;
    let (ticket, id) = text.split_once(' ').expect("a place");
    let path = folder(&url).join(id.to_lowercase());
    let stranger = UnixDatagram::unbound().expect("a socket");
    let ticket: i64 = ticket.parse().expect("a ticket");
    let token = guard.token().get().cast_signed();
    for (ticket, token) in [(ticket, 0), (ticket, token), (ticket, token + 1), (ticket, i64::MAX), (-7, 3)] {
        let hint = [ticket.to_le_bytes(), token.to_le_bytes()].concat();
        stranger.send_to(&hint, &path).expect("it is sent");
        // A grant for somebody else: a lease without an end, and an owner that is not the waiter's.
        let grant = [&hint[..], &i64::MAX.to_le_bytes(), &7_u64.to_le_bytes(), &1_u64.to_le_bytes()].concat();
        stranger.send_to(&grant, &path).expect("it is sent");
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    assert!(!waiting.is_finished(), "the lock is held");
    let released = Instant::now();
    guard.release().await.expect("held");
    waiting.await.expect("no panic").expect("its turn").release().await.expect("held");
    println!("{:?}", released.elapsed());
}

async fn until_waiting(url: &str, many: usize) {
    until_count(Kind::Sqlite, url, "wakes_queue", many, LONG).await;
}

/// A process that waits for the lock `a`, and releases it at once.
#[derive(Default)]
struct Waiting(Option<Child>);

impl Waiting {
    fn start(&mut self, url: &str) {
        self.0 = Some(command("turn", url).spawn().expect("it runs"));
    }

    fn child(&self) -> &Child {
        self.0.as_ref().expect("it was started")
    }

    /// A process that is killed has ended when this returns, and all threads of one that is stopped stand
    /// still.
    fn signal(&mut self, signal: Signal) {
        let pid = Pid::from_child(self.child());
        kill_process(pid, signal).expect("it runs");
        match signal {
            Signal::KILL => drop(self.0.take().expect("it was started").wait().expect("it ends")),
            Signal::STOP => {
                let end = Instant::now() + LONG;
                while !stands_still(pid) {
                    assert!(Instant::now() < end, "it does not stop");
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            _ => (),
        }
    }

    /// Waits until it has had the lock.
    fn finish(&mut self) {
        let output = self.0.take().expect("it was started").wait_with_output().expect("it ends");
        assert!(String::from_utf8_lossy(&output.stdout).contains("=> done"));
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            child.kill().expect("it runs");
            child.wait().expect("it ends");
        }
    }
}

/// Whether all threads of a process are stopped.
fn stands_still(pid: Pid) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).expect("Linux");
    tasks.filter_map(Result::ok).all(|task| {
        let state = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        state.rsplit(')').next().is_some_and(|fields| fields.trim_start().starts_with('T'))
    })
}

/// How long a waiter of this process waits for the lock that is released when the waiter before it, another
/// process, has ended or stopped.
async fn passed_over(url: &str, locks: &Locks, first: &mut Waiting, signal: Signal) -> Duration {
    let guard = locks.lock("a").await.expect("a free lock");
    first.start(url);
    until_waiting(url, 1).await;
    let other = client(Kind::Sqlite, url).await;
    let waiting = tokio::spawn(other.lock("a").wait(LONG).into_future());
    until_waiting(url, 2).await;
    first.signal(signal);
    let released = Instant::now();
    guard.release().await.expect("held");
    waiting.await.expect("no panic").expect("its turn").release().await.expect("held");
    released.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_is_killed_delays_nobody() {
    let mut took = Duration::MAX;
    for _ in 0..4 {
        let (url, locks) = new_file().await;
        took = took.min(passed_over(&url, &locks, &mut Waiting::default(), Signal::KILL).await);
        if took < SOON {
            return;
        }
    }
    panic!("{took:?}");
}

/// It keeps what a release has granted to it until the provisional lease ends. It goes on at the end of the
/// queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_is_stopped_delays_others_by_one_lease() {
    let (url, locks) = new_file().await;
    let mut first = Waiting::default();
    let took = passed_over(&url, &locks, &mut first, Signal::STOP).await;
    assert!(took < Duration::from_secs(20), "{took:?}");
    first.signal(Signal::CONT);
    first.finish();
}

/// How long a hand-over takes to a waiter whose first looks are over.
async fn hand_over(holder: &Locks, waiter: &Locks, url: &str) -> Duration {
    let guard = holder.lock("a").wait(LONG).await.expect("its turn");
    let waiting = tokio::spawn(waiter.lock("a").wait(LONG).into_future());
    until_waiting(url, 1).await;
    tokio::time::sleep(Duration::from_millis(350)).await;
    let released = Instant::now();
    guard.release().await.expect("held");
    waiting.await.expect("no panic").expect("its turn").release().await.expect("held");
    released.elapsed()
}

/// The shortest of some hand-overs: a machine may be busy, but not a waiter that is woken late each time.
async fn shortest(holder: &Locks, waiter: &Locks, url: &str) -> Duration {
    let mut shortest = Duration::MAX;
    for _ in 0..8 {
        shortest = shortest.min(hand_over(holder, waiter, url).await);
    }
    shortest
}

/// Where there can be no sockets, the log is watched; a socket that somebody removes is made anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_without_sockets_are_woken_by_the_log() {
    let (url, holder) = new_file().await;
    std::fs::write(folder(&url), "not a folder").expect("a file");
    let waiter = client(Kind::Sqlite, &url).await;
    let took = shortest(&holder, &waiter, &url).await;
    assert!(took < Duration::from_millis(60), "{took:?}");

    let (url, holder) = new_file().await;
    let waiter = client(Kind::Sqlite, &url).await;
    let took = shortest(&holder, &waiter, &url).await;
    assert!(took < Duration::from_millis(60), "{took:?}");
    let sockets = || std::fs::read_dir(folder(&url)).map_or(0, Iterator::count);
    assert!(sockets() > 0);
    std::fs::remove_dir_all(folder(&url)).expect("a folder");
    hand_over(&holder, &waiter, &url).await;
    let end = Instant::now() + LONG;
    while sockets() == 0 {
        assert!(Instant::now() < end, "it is not made anew");
        hand_over(&holder, &waiter, &url).await;
    }
    let took = shortest(&holder, &waiter, &url).await;
    assert!(took < Duration::from_millis(60), "{took:?}");
}
