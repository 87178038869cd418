//! Many waiters: few connections, few commands, nobody forgotten.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lockwell_core::{LockGuard, Locks, OwnerId};
use testbed::Redis;
use tokio::task::JoinSet;

use crate::asking::{calls, connections, parts, queued};
use crate::servers::{client, redis, tell, until};

const CROWD: usize = 500;

/// The owners in the order in which they were served.
type Served = Arc<Mutex<Vec<OwnerId>>>;

/// Starts this number of waiters. Each notes its turn and releases the lock.
fn wait_for(waiters: &mut JoinSet<()>, locks: &Locks, many: usize, served: &Served) {
    for _ in 0..many {
        let (request, served) = (locks.lock("a").wait(Duration::from_secs(60)), Arc::clone(served));
        waiters.spawn(async move {
            let guard = request.await.expect("its turn comes");
            served.lock().expect("no panic").push(guard.grant().claim().owner());
            guard.release().await.expect("held");
        });
    }
}

/// The queue as the server has it.
fn queue(server: &Redis) -> Vec<String> {
    let answer = tell(server, &["ZRANGE", "lockwell:\u{1f}queue\u{1f}a", "0", "-1"]);
    parts(&answer).into_iter().map(str::to_owned).collect()
}

fn owners(served: &Served) -> Vec<String> {
    let served = served.lock().expect("no panic");
    served.iter().map(|owner| format!("{:032x}", owner.as_u128())).collect()
}

/// What a number of hand-overs took.
struct Cost {
    seconds: usize,
    scripts: usize,
    published: usize,
}

/// Frees the lock, and lets everybody have a turn, in the order of the queue.
async fn serve_all(server: &Redis, holder: LockGuard, waiters: JoinSet<()>, served: &Served) -> Cost {
    let order = queue(server);
    tell(server, &["CONFIG", "RESETSTAT"]);
    let start = Instant::now();
    holder.release().await.expect("held");
    let joined = tokio::time::timeout(Duration::from_secs(60), waiters.join_all()).await;
    joined.expect("nobody is forgotten");
    let took = start.elapsed();
    let (scripts, published) = (calls(server, "evalsha"), calls(server, "publish"));
    println!("{} hand-overs in {took:?}: {scripts} script calls, {published} messages", order.len());
    assert_eq!(owners(served), order, "served in the order of their arrival");
    Cost { seconds: usize::try_from(took.as_secs()).expect("a small number"), scripts, published }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_needs_two_connections_and_few_commands_and_keeps_its_order() {
    let Some(server) = redis().await else { return };
    let locks = client(&server.url()).await;
    // Renewed soon, so that the keeper has its connection.
    let holder = locks.lock("a").ttl(Duration::from_secs(9)).await.expect("a free lock");
    let (mut waiters, served) = (JoinSet::new(), Served::default());
    wait_for(&mut waiters, &locks, CROWD, &served);
    queued(&locks, "a", CROWD).await;
    until("a renewal", || locks.stats().renewals > 0).await;
    let connections = connections(&server);
    assert!(connections.len() <= 2, "{connections:?}");

    let Cost { seconds, scripts, published } = serve_all(&server, holder, waiters, &served).await;
    // A release and a claim for each. Heartbeats of those who wait travel together.
    let signs = seconds * CROWD.div_ceil(32);
    assert!(scripts <= 2 * CROWD + CROWD / 10 + signs, "{scripts} calls for {CROWD} hand-overs");
    assert!(published <= CROWD / 10, "{published} messages to ourselves");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_clients_take_turns_with_a_message_for_each() {
    let Some(server) = redis().await else { return };
    let (one, two) = (client(&server.url()).await, client(&server.url()).await);
    let holder = one.lock("a").await.expect("a free lock");
    let (mut waiters, served) = (JoinSet::new(), Served::default());
    for turn in 0..75 {
        wait_for(&mut waiters, &one, 1, &served);
        queued(&one, "a", 2 * turn + 1).await;
        wait_for(&mut waiters, &two, 1, &served);
        queued(&one, "a", 2 * turn + 2).await;
    }
    let Cost { seconds, scripts, published } = serve_all(&server, holder, waiters, &served).await;
    assert!((149..=170).contains(&published), "{published} messages for 150 hand-overs");
    let signs = seconds * 8;
    assert!(scripts <= 2 * 150 + 20 + signs, "{scripts} calls for 150 hand-overs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deep_a_connection_that_is_cut_loses_nobody() {
    let Some(server) = redis().await else { return };
    let (one, two) = (client(&server.url()).await, client(&server.url()).await);
    let holder = one.lock("a").await.expect("a free lock");
    let (mut waiters, served) = (JoinSet::new(), Served::default());
    wait_for(&mut waiters, &one, CROWD / 2, &served);
    wait_for(&mut waiters, &two, CROWD / 2, &served);
    queued(&one, "a", CROWD).await;
    holder.release().await.expect("held");
    let start = Instant::now();
    let mut cuts = 0;
    while !waiters.is_empty() && start.elapsed() < Duration::from_secs(60) {
        for kind in ["pubsub", "normal"] {
            tell(&server, &["CLIENT", "KILL", "TYPE", kind]);
        }
        cuts += 1;
        // More and more time for those who come back, on a busy machine.
        tokio::time::sleep(Duration::from_millis(40 + 2 * cuts)).await;
        while let Some(waiter) = waiters.try_join_next() {
            waiter.expect("no waiter fails");
        }
    }
    println!("{CROWD} waiters of two clients served in {:?} amid {cuts} cuts", start.elapsed());
    assert_eq!(owners(&served).len(), CROWD, "nobody is forgotten");
}
