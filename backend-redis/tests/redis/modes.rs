//! Readers, writers and semaphores: the order of grants, and the number of commands and messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockwell_core::{ErrorKind, LockGuard, LockRequest, Locks, Mode};
use testbed::{Direction, Proxy, Redis};
use tokio::sync::Barrier;
use tokio::task::JoinHandle;

use crate::asking::{calls, claim_as, permit, queued};
use crate::servers::{backend, client, keys, redis, tell, until};

type Waiting = JoinHandle<lockwell_core::Result<LockGuard>>;

/// Starts a waiter, and returns when it has its place in the queue.
async fn wait(locks: &Locks, request: LockRequest, place: usize) -> Waiting {
    let waiting = tokio::spawn(request.wait(Duration::from_secs(60)).into_future());
    queued(locks, "a", place).await;
    waiting
}

async fn turn(waiting: Waiting) -> LockGuard {
    let guard = tokio::time::timeout(Duration::from_secs(20), waiting).await.expect("its turn comes");
    guard.expect("no panic").expect("its turn comes")
}

/// Many readers of two clients wait behind a writer, another writer behind them, and more readers behind that
/// one. Each reader of a group waits for all others before it leaves: so they can only pass if they are in
/// together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_readers_and_writers_keeps_its_order() {
    const CROWD: usize = 150;
    let Some(server) = redis().await else { return };
    let clients = [client(&server.url()).await, client(&server.url()).await];
    let first = clients[0].write("a").await.expect("a free lock");
    let mut tasks = Vec::new();
    let mut place = 0;
    let passed = Arc::new(AtomicUsize::new(0));
    for group in 0..2 {
        let barrier = Arc::new(Barrier::new(CROWD));
        for n in 0..CROWD {
            let request = clients[n % 2].read("a").wait(Duration::from_secs(60));
            let (barrier, passed) = (Arc::clone(&barrier), Arc::clone(&passed));
            tasks.push(tokio::spawn(async move {
                let guard = request.await.expect("its turn comes");
                barrier.wait().await;
                let before = passed.fetch_add(1, Ordering::SeqCst);
                assert!(before / CROWD == group, "a reader of group {group} comes after {before} others");
                guard.release().await.expect("held");
            }));
        }
        place += CROWD;
        queued(&clients[0], "a", place).await;
        let (request, passed) =
            (clients[group].write("a").wait(Duration::from_secs(60)), Arc::clone(&passed));
        tasks.push(tokio::spawn(async move {
            let guard = request.await.expect("its turn comes");
            assert_eq!(passed.load(Ordering::SeqCst), (group + 1) * CROWD, "a writer is alone, in its place");
            guard.release().await.expect("held");
        }));
        place += 1;
        queued(&clients[0], "a", place).await;
    }
    tell(&server, &["CONFIG", "RESETSTAT"]);
    let start = Instant::now();
    first.release().await.expect("held");
    for task in join_all(tasks).await {
        task.expect("in order");
    }
    let took = start.elapsed();
    let (scripts, published) = (calls(&server, "evalsha"), calls(&server, "publish"));
    println!(
        "{CROWD} readers, a writer, and both once more in {took:?}: {scripts} script calls, {published} messages"
    );
    // One message for each grant. Requests share calls, and heartbeats are extra commands.
    let seconds = usize::try_from(took.as_secs()).expect("a small number");
    // One after the other, each by its own timer, they would take longer.
    assert!(took < Duration::from_secs(15), "{took:?}");
    assert!(published <= 2 * CROWD + 20 + seconds * CROWD, "{published} messages");
    assert!(scripts <= 4 * CROWD + 40 + seconds * CROWD, "{scripts} calls");
    until("nothing is left", || keys(&server).is_empty()).await;
}

/// A permit that is released wakes one, not all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_wakes_one_of_many() {
    let Some(server) = redis().await else { return };
    let (one, two) = (client(&server.url()).await, client(&server.url()).await);
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(one.permit("a", 3).await.expect("a permit"));
    }
    let mut waiting = Vec::new();
    for place in 1..=20 {
        waiting.push(wait(&one, two.permit("a", 3), place).await);
    }
    tell(&server, &["CONFIG", "RESETSTAT"]);
    let start = Instant::now();
    for waiting in waiting {
        held.remove(0).release().await.expect("held");
        held.push(turn(waiting).await);
        assert_eq!(one.inspect("a").await.expect("an answer").holders.len(), 3);
    }
    let took = usize::try_from(start.elapsed().as_secs()).expect("a small number");
    let published = calls(&server, "publish");
    assert!(published <= 2 * 20 + took * 20, "{published} messages for 20 hand-overs");
    for guard in held {
        guard.release().await.expect("held");
    }
    until("nothing is left", || keys(&server).is_empty()).await;
}

/// Readers join the former writer, and the next writer waits for all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_downgrade_lets_the_readers_at_the_head_in() {
    let Some(server) = redis().await else { return };
    let (one, two) = (client(&server.url()).await, client(&server.url()).await);
    let writer = one.write("a").label("the first").await.expect("a free lock");
    let token = writer.token();
    let first = wait(&one, two.read("a"), 1).await;
    let second = wait(&one, one.read("a"), 2).await;
    let next = wait(&one, two.write("a"), 3).await;
    let last = wait(&one, one.read("a"), 4).await;
    let mut readers = vec![writer.downgrade().await.expect("held")];
    readers.extend([turn(first).await, turn(second).await]);
    let shown = two.inspect("a").await.expect("an answer");
    assert_eq!((shown.holders.len(), shown.waiters), (3, 2), "{shown:?}");
    assert_eq!((shown.holders[0].token, &*shown.holders[0].label), (token, "the first"));
    assert!(shown.holders.iter().all(|holder| holder.mode == Mode::Shared), "{shown:?}");
    for reader in readers {
        assert!(one.read("a").try_now().await.expect("an answer").is_none(), "a writer waits");
        assert!(!next.is_finished() && !last.is_finished());
        reader.release().await.expect("held");
    }
    turn(next).await.release().await.expect("held");
    turn(last).await.release().await.expect("held");
    until("nothing is left", || keys(&server).is_empty()).await;
}

/// Whatever becomes of the answer, the writer is a reader, with the same token.
#[tokio::test]
async fn a_downgrade_whose_answer_is_lost_is_repeated() {
    let Some(server) = redis().await else { return };
    let proxy = Proxy::start(server.addr()).await.expect("a proxy");
    let url = format!("redis://{}", proxy.addr());
    let (one, two) = (backend(&url).await.expect("a connection"), client(&server.url()).await);
    for _ in 0..3 {
        let mine = claim_as(Mode::Exclusive, "a", Duration::from_secs(20));
        let grant = one.acquire(&mine).await.expect("an answer").expect("a free lock");
        proxy.drop_reply(1);
        let reader = one.downgrade(&grant).await.expect("held");
        assert_eq!((reader.token(), reader.claim().mode()), (grant.token(), Mode::Shared));
        assert_eq!(two.inspect("a").await.expect("an answer").holders.len(), 1);
        two.read("a")
            .try_now()
            .await
            .expect("an answer")
            .expect("readers meet")
            .release()
            .await
            .expect("held");
        one.release(reader.claim()).await.expect("an answer");
        assert_eq!(keys(&server), [""; 0]);
        let error = one.downgrade(&grant).await.expect_err("released");
        assert_eq!(error.kind(), ErrorKind::Lost, "{error:#}");
    }
    assert_eq!(proxy.dropped_replies(), 3);
}

/// Claims for many names in all modes that arrive together, while the server does not answer.
#[tokio::test]
async fn claims_of_all_modes_meet_in_calls() {
    let Some(server) = redis().await else { return };
    let locks = client(&server.url()).await;
    locks.lock("first").await.expect("a free lock").release().await.expect("held");
    tell(&server, &["CONFIG", "RESETSTAT"]);
    server.pause().expect("it runs");
    let request = |n: usize| match n % 3 {
        0 => locks.lock(format!("mutex {n}")),
        1 => locks.read("book"),
        _ => locks.permit("slots", 25),
    };
    let meeting = tokio::spawn(join_all((0..75).map(|n| request(n).into_future())));
    tokio::time::sleep(Duration::from_millis(50)).await;
    server.resume().expect("it runs");
    let mut guards = Vec::new();
    for guard in meeting.await.expect("no panic") {
        guards.push(guard.expect("free for all of them"));
    }
    // Up to 32 of them.
    assert!(calls(&server, "evalsha") <= 9, "they share calls");
    let mut tokens: Vec<_> = guards.iter().map(LockGuard::token).collect();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 75, "each has its own");
    assert!(locks.permit("slots", 25).try_now().await.expect("an answer").is_none());
    for answer in join_all(guards.into_iter().map(LockGuard::release)).await {
        answer.expect("held");
    }
    assert_eq!(keys(&server), [""; 0]);
}

/// Many members of one group, and mutexes among them, are renewed in one call.
#[tokio::test]
async fn all_modes_are_renewed_together() {
    let Some(server) = redis().await else { return };
    let locks = client(&server.url()).await;
    let ttl = Duration::from_secs(3);
    let requests = (0..60).map(|n| match n % 3 {
        0 => locks.lock(format!("{n}")).ttl(ttl),
        1 => locks.read("book").ttl(ttl),
        _ => locks.permit("slots", 20).ttl(ttl),
    });
    let guards = join_all(requests.map(IntoFuture::into_future)).await;
    let guards: Vec<_> = guards.into_iter().map(|guard| guard.expect("free")).collect();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let stats = locks.stats();
    assert!(guards.iter().all(LockGuard::is_held), "{stats:?}");
    assert!(stats.renewals >= 120 && stats.renewal_calls <= stats.renewals / 10, "{stats:?}");
    for guard in guards {
        guard.release().await.expect("held");
    }
}

/// A waiter in a black hole is passed over, whatever it waits for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_that_went_silent_are_passed_over() {
    let Some(server) = redis().await else { return };
    let proxy = Proxy::start(server.addr()).await.expect("a proxy");
    let silent = client(&format!("redis://{}", proxy.addr())).await;
    let locks = client(&server.url()).await;
    let writer = locks.write("a").await.expect("a free lock");
    let first = wait(&locks, silent.read("a"), 1).await;
    let second = wait(&locks, silent.write("a"), 2).await;
    let third = wait(&locks, locks.read("a"), 3).await;
    proxy.blackhole(Direction::Both);
    writer.release().await.expect("held");
    turn(third).await.release().await.expect("held");
    first.abort();
    second.abort();
}

fn holders(server: &Redis) -> String {
    tell(server, &["GET", "lockwell:a"])
}

/// Kinds do not mix, and what holds the key says which it is.
#[tokio::test]
async fn the_key_tells_the_kind() {
    let Some(server) = redis().await else { return };
    let locks = client(&server.url()).await;
    let reader = locks.read("a").await.expect("a free lock");
    assert!(holders(&server).contains("group:-1"), "{}", holders(&server));
    reader.release().await.expect("held");
    let one = backend(&server.url()).await.expect("a connection");
    let claim = claim_as(permit(7), "a", Duration::from_secs(10));
    one.acquire(&claim).await.expect("an answer").expect("a free lock");
    assert!(holders(&server).contains("group:7"), "{}", holders(&server));
    for (request, asked) in
        [(locks.read("a"), "shared"), (locks.lock("a"), "exclusive"), (locks.permit("a", 8), "limit 8")]
    {
        let error = request.try_now().await.expect_err("another kind");
        assert_eq!(error.kind(), ErrorKind::KindClash, "{error:#}");
        assert!(error.to_string().contains("limit 7") && error.to_string().contains(asked), "{error:#}");
    }
    one.release(&claim).await.expect("an answer");
    assert_eq!(keys(&server), [""; 0]);
}

/// Several locks at once are one call, granted or refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_locks_are_taken_in_one_call() {
    let Some(server) = redis().await else { return };
    let locks = client(&server.url()).await;
    let names: Vec<String> = (0..30).map(|n| format!("several/{n}")).collect();
    locks.lock_all(&names).await.expect("free locks").release().await.expect("held");
    let before = calls(&server, "evalsha");
    let all = locks.lock_all(&names).await.expect("free locks");
    assert_eq!(calls(&server, "evalsha") - before, 1);
    assert_eq!(all.guards().len(), names.len());
    let held = calls(&server, "evalsha");
    assert!(locks.lock_all(&names[3..5]).try_now().await.expect("an answer").is_none());
    assert_eq!(calls(&server, "evalsha") - held, 1);
    all.release().await.expect("held");
}

/// The downgrade is repeated since its answer is missing, and what is repeated finds no lock. No copy of it
/// can have made a reader, whom it would have found.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_downgrade_that_is_repeated_and_finds_nothing_is_a_loss() {
    let Some(server) = redis().await else { return };
    let proxy = Proxy::start(server.addr()).await.expect("a proxy");
    let locks = client(&format!("redis://{}?timeout=6s", proxy.addr())).await;
    // The server knows the script then.
    let first = locks.write("first").await.expect("a free lock").downgrade().await.expect("held");
    first.release().await.expect("held");
    let writer = locks.write("a").ttl(Duration::from_secs(60)).await.expect("a free lock");
    proxy.blackhole(Direction::ToClient);
    let downgrading = tokio::spawn(async move { writer.downgrade().await });
    until("it was done", || holders(&server).contains("group:-1")).await;
    tell(&server, &["DEL", "lockwell:a"]);
    proxy.heal();
    let error = downgrading.await.expect("no panic").expect_err("it was freed");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error:#}");
}
