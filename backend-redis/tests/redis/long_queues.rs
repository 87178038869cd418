//! Queues of ten thousand places: no script grows with them, whoever the waiters are.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use lockwell_core::{Locks, Mode, Renewal};
use testbed::Redis;

use crate::asking::{all_calls, calls, claim_as, queued};
use crate::servers::{backend, client, redis, soon, tell, until};

const MANY: usize = 10_000;

/// The most commands of one script: 25 places with a few commands each, or as many for several claims.
/// On a machine that is not busy that is less than a millisecond.
const COMMANDS: usize = 400;

const LOCK: &str = "lockwell:a";
const QUEUE: &str = "lockwell:\u{1f}queue\u{1f}a";
const WAITERS: &str = "lockwell:\u{1f}waiters\u{1f}a";
const CHANNEL: &str = "lockwell:\u{1f}wake\u{1f}00000000000000000000000000000abc";

/// Puts places into the queue, in this mode, of one client. Each is kept for this time, in microseconds,
/// unless it is over.
fn seed(server: &Redis, many: usize, mode: Mode, left: i64) {
    let script = "local t = redis.call('TIME') local now = t[1] * 1000000 + t[2] \
                  local function int(number) return string.format('%.0f', number) end \
                  for i = 1, tonumber(ARGV[1]) do local owner = string.format('%032x', i) \
                  redis.call('ZADD', KEYS[1], int(now - 20000 + i), owner) \
                  redis.call('HSET', KEYS[2], owner, int(now + ARGV[2]) .. ':' .. ARGV[3] .. ':' .. ARGV[4] .. ':' .. i, \
                  '+' .. owner, 'g1:3000:1:x') end return redis.call('PEXPIRE', KEYS[2], 60000)";
    let (many, left, mode) = (many.to_string(), left.to_string(), mode.code().to_string());
    tell(server, &["EVAL", script, "2", QUEUE, WAITERS, &many, &left, &mode, CHANNEL]);
}

const KEPT: i64 = 50_000_000;
const OVER: i64 = -1_000;

/// A client that receives what is published, and never answers.
fn listener(server: &Redis) -> TcpStream {
    let mut stream = TcpStream::connect(server.addr()).expect("it listens");
    let words = format!("*2\r\n$9\r\nSUBSCRIBE\r\n${}\r\n{CHANNEL}\r\n", CHANNEL.len());
    stream.write_all(words.as_bytes()).expect("sent");
    assert!(stream.read(&mut [0; 100]).expect("an answer") > 0);
    stream
}

/// What the scripts of one scenario did.
#[derive(Clone, Copy, Debug)]
struct Cost {
    /// Commands of one script, on average.
    commands: usize,
    /// The longest script, in microseconds.
    longest: u64,
}

/// Begins to count.
fn count(server: &Redis) {
    tell(server, &["CONFIG", "SET", "slowlog-log-slower-than", "200"]);
    tell(server, &["CONFIG", "SET", "slowlog-max-len", "10000"]);
    tell(server, &["CONFIG", "RESETSTAT"]);
    tell(server, &["SLOWLOG", "RESET"]);
}

fn counted(server: &Redis) -> Cost {
    let (scripts, all) = (calls(server, "evalsha"), all_calls(server));
    assert!(scripts > 0 && calls(server, "hvals") == 0);
    let slow = tell(server, &["SLOWLOG", "GET", "10000"]);
    // Each entry begins with its number, its time and its duration.
    let lines: Vec<_> = slow.lines().collect();
    let entries = lines.windows(4).filter(|lines| lines[0] == "*6" && !lines[3].starts_with('$'));
    let longest = entries.filter_map(|lines| lines[3].strip_prefix(':')?.parse().ok()).max();
    Cost { commands: (all - scripts) / scripts, longest: longest.unwrap_or(0) }
}

/// Repeats a scenario on a fresh queue, and counts the commands. The time that a script takes is printed
/// only: it is the machine's as well.
async fn bounded(server: &Redis, what: &str, mut scenario: impl AsyncFnMut()) {
    for _ in 0..5 {
        tell(server, &["FLUSHALL"]);
        scenario().await;
        let cost = counted(server);
        let Cost { commands, longest } = cost;
        println!("{what}: {commands} commands for a script, of which the longest took {longest} µs");
        assert!(cost.commands <= COMMANDS, "{what}: {cost:?}");
    }
}

async fn locks(server: &Redis) -> (Locks, Locks) {
    (client(&server.url()).await, client(&server.url()).await)
}

/// Waits for the lock, and releases it.
async fn served(locks: &Locks) {
    let guard = locks.lock("a").wait(Duration::from_secs(60)).await.expect("its turn comes");
    guard.release().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_and_a_claim_over_places_that_have_lapsed() {
    let Some(server) = redis().await else { return };
    let (one, two) = locks(&server).await;
    bounded(&server, "lapsed places", async || {
        let holder = one.lock("a").await.expect("a free lock");
        seed(&server, MANY, Mode::Exclusive, OVER);
        count(&server);
        holder.release().await.expect("held");
        served(&two).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_and_a_claim_over_waiters_of_a_client_that_is_gone() {
    let Some(server) = redis().await else { return };
    let (one, two) = locks(&server).await;
    bounded(&server, "nobody listens", async || {
        let holder = one.lock("a").await.expect("a free lock");
        seed(&server, MANY, Mode::Exclusive, KEPT);
        count(&server);
        holder.release().await.expect("held");
        served(&two).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_after_a_grant_that_has_lapsed() {
    let Some(server) = redis().await else { return };
    let (_listens, two) = (listener(&server), client(&server.url()).await);
    bounded(&server, "a lapsed grant", async || {
        // Their last heartbeats were 3.5 s ago, before the grant whose lease has just ended.
        seed(&server, MANY, Mode::Exclusive, 500_000);
        let note = "local t = redis.call('TIME') local ends = t[1] * 1000000 + t[2] - 1000 \
                    return redis.call('HSET', KEYS[1], '=', '=' .. string.format('%.0f', ends) .. ':' .. ARGV[1])";
        tell(&server, &["EVAL", note, "1", WAITERS, CHANNEL]);
        count(&server);
        served(&two).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_grants_to_few_of_many_readers() {
    let Some(server) = redis().await else { return };
    let (_listens, one) = (listener(&server), client(&server.url()).await);
    bounded(&server, "readers", async || {
        let holder = one.write("a").await.expect("a free lock");
        seed(&server, MANY, Mode::Shared, KEPT);
        count(&server);
        holder.release().await.expect("held");
    })
    .await;
}

/// Takes a place, gives it up, is handed a lock over, and looks who waits: as many commands as in a short
/// queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_a_heartbeat_a_hand_over_and_a_question_cost_the_same_in_every_queue() {
    let Some(server) = redis().await else { return };
    let (_listens, url) = (listener(&server), server.url());
    let mut commands = Vec::new();
    for many in [2, MANY] {
        let (one, two) = locks(&server).await;
        let holder = one.lock("a").await.expect("a free lock");
        seed(&server, many, Mode::Exclusive, KEPT);
        let places = || tell(&server, &["ZCARD", QUEUE]);
        count(&server);
        let waiting = tokio::spawn(two.lock("a").wait(Duration::from_secs(60)).into_future());
        until("a place", || places() == format!(":{}\r\n", many + 1)).await;
        // At least one heartbeat.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        waiting.abort();
        until("it has left", || places() == format!(":{many}\r\n")).await;
        holder.release().await.expect("held");
        let cost = counted(&server);
        println!("with {many}: {cost:?}");
        count(&server);
        one.inspect("a").await.expect("an answer");
        let question = counted(&server);
        println!("a question with {many}: {question:?}");
        assert!(
            question.commands < 240,
            "it looks at the first two hundred, and reads sixteen: {question:?}"
        );
        commands.push(cost.commands);
        tell(&server, &["FLUSHALL"]);
    }
    assert!(commands[1] <= commands[0] + 1 && commands[0] < 20, "{commands:?}");
    let one = backend(&url).await.expect("a connection");
    let held = claim_as(Mode::Exclusive, "a", Duration::from_secs(10));
    one.acquire(&held).await.expect("an answer").expect("a free lock");
    for many in [0, MANY] {
        seed(&server, many, Mode::Exclusive, KEPT);
        count(&server);
        let refused = claim_as(Mode::Exclusive, "a", Duration::from_secs(10));
        assert!(one.acquire(&refused).await.expect("an answer").is_none());
        let cost = counted(&server);
        assert!(cost.commands < 12, "a refused claim: {cost:?}");
    }
}

/// Requests that meet share calls, as many as one script can serve in its time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deep_calls_of_many_claims_and_renewals_are_bounded() {
    let Some(server) = redis().await else { return };
    let (one, two) = (backend(&server.url()).await.expect("a connection"), client(&server.url()).await);
    bounded(&server, "heartbeats of 1,000 waiters", async || {
        let holder = two.lock("a").await.expect("a free lock");
        let waiting =
            (0..1_000).map(|_| tokio::spawn(two.lock("a").wait(Duration::from_secs(60)).into_future()));
        let waiting: Vec<_> = waiting.collect();
        until("all wait", || tell(&server, &["ZCARD", QUEUE]) == ":1000\r\n").await;
        count(&server);
        tokio::time::sleep(Duration::from_secs(2)).await;
        waiting.iter().for_each(tokio::task::JoinHandle::abort);
        holder.release().await.expect("held");
    })
    .await;
    bounded(&server, "renewals of 500 readers", async || {
        let claims = (0..500).map(|n| claim_as(Mode::Shared, &format!("{n}"), Duration::from_secs(30)));
        let claims: Vec<_> = claims.collect();
        let grants = one.acquire_each(&claims).await.into_iter().map(|grant| grant.expect("an answer"));
        let grants: Vec<_> = grants.map(|grant| grant.expect("a free lock")).collect();
        count(&server);
        let renewed = one.renew(&grants, soon()).await;
        assert!(renewed.len() == 500 && renewed.iter().all(|it| matches!(it, Renewal::Renewed(_))));
    })
    .await;
}

/// Waiters of a client that is gone delay nobody: the release goes past them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_goes_to_the_first_waiter_whose_client_listens() {
    let Some(server) = redis().await else { return };
    let (one, two) = locks(&server).await;
    for dead in [1, 10, 40] {
        let holder = one.lock("a").await.expect("a free lock");
        seed(&server, dead, Mode::Exclusive, KEPT);
        let waiting = tokio::spawn(two.lock("a").wait(Duration::from_secs(60)).into_future());
        queued(&one, "a", dead + 1).await;
        // On a busy machine the subscription may come after the place, which says so until the next
        // heartbeat.
        until("it listens", || !tell(&server, &["HVALS", WAITERS]).contains("\r\np\r\n")).await;
        count(&server);
        holder.release().await.expect("held");
        // By the release itself, which goes past 25 places. What it leaves is done by the waiter's next call.
        let is_granted = || tell(&server, &["EXISTS", LOCK]).contains('1');
        if dead < 25 {
            assert!(is_granted(), "it was granted");
        }
        until("it is granted", is_granted).await;
        let guard = waiting.await.expect("no panic").expect("its turn");
        guard.release().await.expect("held");
        assert_eq!(tell(&server, &["EXISTS", LOCK, QUEUE, WAITERS]), ":0\r\n", "nothing is left");
    }
}

/// A waiter whose client did not listen for a moment returns to its place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_loses_its_place_returns_to_it() {
    let Some(server) = redis().await else { return };
    let (one, two) = locks(&server).await;
    let holder = one.lock("a").await.expect("a free lock");
    let mut waiting = Vec::new();
    for (n, locks) in [&one, &two, &one].into_iter().enumerate() {
        waiting.push(tokio::spawn(locks.lock("a").wait(Duration::from_secs(60)).into_future()));
        queued(&one, "a", n + 1).await;
    }
    let order = tell(&server, &["ZRANGE", QUEUE, "0", "-1"]);
    let first = order.lines().nth(2).expect("an owner").to_owned();
    tell(&server, &["ZREM", QUEUE, &first]);
    tell(&server, &["HDEL", WAITERS, &first, &format!("+{first}")]);
    until("its next heartbeat", || tell(&server, &["ZCARD", QUEUE]) == ":3\r\n").await;
    assert_eq!(tell(&server, &["ZRANGE", QUEUE, "0", "-1"]), order, "it is the first again");
    holder.release().await.expect("held");
    for waiting in waiting {
        waiting.await.expect("no panic").expect("its turn").release().await.expect("held");
    }
}
