//! What a waiter makes of messages that say that it has the lock, in an SQLite file: those that are false, or
//! late, or about a file that another one has replaced. And places that are taken with the first request.

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lockwell_core::{Claim, ErrorKind, LockGuard, Locks, Mode, Moment, Released, Result};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::servers::{Kind, admin, backend, claim, client, count, until_count, url};

const LONG: Duration = Duration::from_mins(1);
/// The longest lease under which a release grants a lock to a waiter.
const LEASE: Duration = Duration::from_secs(3);
/// In that time a message is received, as a rule.
const PAUSE: Duration = Duration::from_millis(20);
const SOCKETS: &str = "locks.db-wake";

async fn new_file() -> String {
    url(Kind::Sqlite, "messages").await.expect("no server is needed")
}

fn folder(url: &str) -> PathBuf {
    let path = url.trim_start_matches("sqlite://").split('?').next().expect("a path");
    Path::new(path).parent().expect("a folder").to_owned()
}

fn wait(locks: &Locks, name: &str) -> JoinHandle<Result<LockGuard>> {
    tokio::spawn(locks.lock(name).wait(LONG).into_future())
}

/// The end of the lease, and when the release was sent.
type Times = fn() -> (i64, Moment);

/// So many seconds from now by the clock of the database, in microseconds.
fn ends_in(seconds: i64) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_micros();
    i64::try_from(now).expect("microseconds") + seconds * 1_000_000
}

/// The place of a waiter: its ticket, its owner's id in hexadecimal digits, and its client's socket.
struct Place(i64, String, PathBuf);

impl Place {
    /// The only place in the queue of this lock, when there is one. From then on a release grants the lock to
    /// it, also where grants are synced.
    async fn of(url: &str, name: &str) -> Self {
        let sql = format!(
            "UPDATE messages_queue SET lease = 2999999 WHERE name = '{name}'
             RETURNING ticket || ' ' || hex(client) || ' ' || hex(owner)"
        );
        let (mut text, end) = (String::new(), Instant::now() + LONG);
        while text.is_empty() {
            assert!(Instant::now() < end, "it does not enter the queue");
            sleep(Duration::from_millis(2)).await;
            text = admin(Kind::Sqlite, url, &sql).await;
        }
        let words: Vec<_> = text.split(' ').collect();
        let socket = folder(url).join(SOCKETS).join(words[1].to_lowercase());
        Self(words[0].parse().expect("a ticket"), words[2].to_owned(), socket)
    }

    /// Sends a grant with the right proof. Whoever can read the database can do that.
    fn send(&self, ends: i64, sent: Moment) {
        let (token, proof) = (7, u64::from_str_radix(&self.1[16..], 16).expect("a half of an id"));
        let numbers = [self.0.cast_unsigned(), token, ends.cast_unsigned(), proof, sent.as_nanos()];
        let socket = UnixDatagram::unbound().expect("a socket");
        socket.send_to(&numbers.map(u64::to_le_bytes).concat(), &self.2).expect("it is sent");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_with_the_right_proof_and_a_wrong_time_grants_nothing() {
    let url = new_file().await;
    let (holder, waiter) = (client(Kind::Sqlite, &url).await, client(Kind::Sqlite, &url).await);
    // What was sent before the waiter's connection was opened counts for nothing in any case.
    sleep(LEASE + LEASE / 6).await;
    let wrong: [(&str, Times); 4] = [
        ("sent in the future", || (ends_in(3), Moment::now().after(LONG))),
        ("sent too long ago", || (ends_in(3), Moment::now().before(LEASE))),
        ("has ended", || (ends_in(-1), Moment::now())),
        ("ends before all times", || (i64::MIN, Moment::now())),
    ];
    for (name, times) in wrong {
        let guard = holder.lock(name).await.expect("a free lock");
        let (waiting, place) = (wait(&waiter, name), Place::of(&url, name).await);
        for _ in 0..5 {
            let (ends, sent) = times();
            place.send(ends, sent);
            sleep(PAUSE).await;
        }
        assert!(!waiting.is_finished(), "{name}: another holds the lock");
        guard.release().await.expect("held");
        waiting.await.expect("no panic").expect("its turn").release().await.expect("held");
    }
    // With the right times it is accepted, so the others were refused for theirs. Whoever can send it can
    // write to the lock's row as well.
    let guard = holder.lock("right").await.expect("a free lock");
    let (waiting, place) = (wait(&waiter, "right"), Place::of(&url, "right").await);
    let end = Instant::now() + LONG / 2;
    while !waiting.is_finished() {
        assert!(Instant::now() < end, "no message is accepted");
        place.send(ends_in(3), Moment::now());
        sleep(PAUSE).await;
    }
    drop(waiting.await.expect("no panic").expect("it accepts the message"));
    guard.release().await.expect("held");
}

/// A waiter whose file was replaced. In the new file, another one has the lock.
struct Replaced {
    url: String,
    /// The address of the old file, and the waiter's place in it.
    old: (String, Place),
    waiting: JoinHandle<Result<LockGuard>>,
    /// A moment before the file was replaced, and the claim that has the lock in the new one.
    before: Moment,
    winner: Claim,
}

impl Replaced {
    /// Returns the guard of the holder in the old file, too. Its client has that file open. `is_open`: that
    /// of the waiter has the new one open. The waiter still has its old ticket.
    async fn make(is_open: bool) -> (LockGuard, Self) {
        let (url, new) = (new_file().await, new_file().await);
        let winner = claim("a", Mode::Exclusive, 10 * LONG);
        let lock = backend(Kind::Sqlite, &new).await.expect("a file");
        lock.acquire(&winner).await.expect("an answer").expect("a free lock");
        lock.close().await;
        let (holder, waiter) = (client(Kind::Sqlite, &url).await, client(Kind::Sqlite, &url).await);
        // It is not renewed before it is released.
        let guard = holder.lock("a").ttl(LONG).await.expect("a free lock");
        let (waiting, place) = (wait(&waiter, "a"), Place::of(&url, "a").await);
        let (here, new) = (folder(&url), folder(&new));
        let away = here.with_extension("old");
        let rename = |from: &Path, to: &Path| std::fs::rename(from, to).expect("one file system has both");
        let before = Moment::now();
        rename(&here, &away);
        // The sockets stay where they are.
        rename(&away.join(SOCKETS), &new.join(SOCKETS));
        rename(&new, &here);
        if is_open {
            assert_eq!(waiter.inspect("a").await.expect("an answer").holders.len(), 1);
        }
        let old = (format!("sqlite://{}/locks.db", away.display()), place);
        (guard, Self { url, old, waiting, before, winner })
    }

    /// The waiter gets the lock from the release in the new file, and not before.
    async fn wait_for_the_other(self) {
        sleep(PAUSE * 5).await;
        assert!(!self.waiting.is_finished(), "another has it in the new file");
        Place::of(&self.url, "a").await;
        let lock = backend(Kind::Sqlite, &self.url).await.expect("a file");
        assert_eq!(lock.release(&self.winner).await.expect("an answer"), Released::Released);
        self.waiting.await.expect("no panic").expect("its turn").release().await.expect("held");
    }
}

/// The client of the holder notices only after its statement that another file has the name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_in_a_file_that_was_replaced_grants_nothing_in_the_new_one() {
    for _ in 0..5 {
        let (guard, replaced) = Replaced::make(true).await;
        // In the old file it was released, and the request is repeated in the new one.
        guard.release().await.expect("released");
        let (old, Place(_, owner, _)) = &replaced.old;
        let granted = format!("messages WHERE hex(owner) = '{owner}' AND expires_at IS NOT NULL");
        let is_granted = count(Kind::Sqlite, old, &granted).await == "1";
        replaced.wait_for_the_other().await;
        if is_granted {
            return;
        }
        // Another test has probably closed the connection to the old file.
    }
    panic!("no release has granted the lock in the old file");
}

/// Its message comes late: before the waiter's client opens the new file, or after that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_from_before_the_file_was_replaced_grants_nothing_in_the_new_one() {
    for is_open in [false, true] {
        let (_guard, replaced) = Replaced::make(is_open).await;
        for _ in 0..3 {
            replaced.old.1.send(ends_in(3), replaced.before);
            sleep(PAUSE).await;
        }
        replaced.wait_for_the_other().await;
    }
}

/// The first of these clients has just handed the lock `a` on to the second one. So its next claim enters the
/// queue at once. From now on the queue keeps what is left behind, and `entered` says who has had a place.
async fn handed_on(url: &str) -> (Locks, Locks, LockGuard) {
    let (one, two) = (client(Kind::Sqlite, url).await, client(Kind::Sqlite, url).await);
    let mut guard = two.lock("a").await.expect("a free lock");
    // The first one has waited itself before, so messages reach it.
    for next in [&one, &two] {
        let waiting = wait(next, "a");
        Place::of(url, "a").await;
        guard.release().await.expect("held");
        guard = waiting.await.expect("no panic").expect("its turn");
    }
    let sql = "CREATE TABLE entered (ticket INTEGER);
        CREATE TRIGGER enters AFTER INSERT ON messages_queue BEGIN INSERT INTO entered VALUES (NEW.ticket);
        UPDATE messages_queue SET alive_until = alive_until + 3600000000 WHERE ticket = NEW.ticket; END";
    admin(Kind::Sqlite, url, sql).await;
    (one, two, guard)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_enters_at_once_and_is_cancelled_leaves_no_place() {
    let url = new_file().await;
    let (one, _two, guard) = handed_on(&url).await;
    let waiting = wait(&one, "a");
    Place::of(&url, "a").await;
    waiting.abort();
    // While its request is under way, or a little later.
    for turn in 0..20 {
        let claim = one.lock("a").wait(LONG).into_future();
        assert!(timeout(Duration::from_millis(turn % 3), claim).await.is_err(), "it is held");
    }
    // A request that is late may still come.
    for end in [Instant::now() + LONG / 2; 2] {
        sleep(PAUSE * 10).await;
        while count(Kind::Sqlite, &url, "messages_queue").await != "0" {
            assert!(Instant::now() < end, "a place is left");
            sleep(PAUSE).await;
        }
    }
    guard.release().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_of_another_kind_that_enters_at_once_leaves_no_place() {
    for is_permit_held in [false, true] {
        let url = new_file().await;
        let (one, two, guard) = handed_on(&url).await;
        let (held, refused) = if is_permit_held {
            guard.release().await.expect("held");
            (two.permit("a", 2).await.expect("a free permit"), one.lock("a"))
        } else {
            (guard, one.permit("a", 2))
        };
        let waits = refused.wait(Duration::from_millis(300)).await;
        let error = waits.expect_err("it is held as another kind of lock");
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error:#}");
        assert_eq!(count(Kind::Sqlite, &url, "entered").await, "1", "it enters at once");
        until_count(Kind::Sqlite, &url, "messages_queue", 0, LONG).await;
        held.release().await.expect("held");
    }
}
