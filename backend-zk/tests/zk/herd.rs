//! How many requests a hand-over costs the server, and whom it wakes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use std::future::IntoFuture;

use lockwell_core::{ErrorKind, LockRequest, Locks, Moment};
use testbed::ZooKeeper;

use crate::servers::{client, options, single};

/// What a counter of the server says.
fn counter(server: &ZooKeeper, name: &str) -> u64 {
    let answer = server.four_letter("mntr").expect("an answer");
    let line = answer.lines().find_map(|line| line.strip_prefix(name)).expect("a counter");
    line.trim().parse().expect("a number")
}

/// How many requests the server has received.
pub(crate) fn received(server: &ZooKeeper) -> u64 {
    counter(server, "zk_packets_received")
}

/// So many wait for one lock, spread over these clients, and each takes it so often. Says requests and time
/// for each hand-over.
async fn crowd(
    server: &ZooKeeper,
    clients: &[Locks],
    name: &'static str,
    waiters: u32,
    times: u32,
) -> (f64, Duration) {
    crowd_of(server, clients, move |locks| locks.lock(name), 1, waiters, times).await
}

/// The same for any kind of lock, of which so many are held at first.
async fn crowd_of(
    server: &ZooKeeper,
    clients: &[Locks],
    request: impl Fn(&Locks) -> LockRequest + Copy + Send + 'static,
    holders: u32,
    waiters: u32,
    times: u32,
) -> (f64, Duration) {
    let mut held = Vec::new();
    for _ in 0..holders {
        held.push(request(&clients[0]).ttl(Duration::from_secs(60)).await.expect("free"));
    }
    let mut tasks = Vec::new();
    for locks in clients.iter().cycle().take(waiters as usize) {
        let locks = locks.clone();
        tasks.push(tokio::spawn(async move {
            for _ in 0..times {
                let guard = request(&locks).ttl(Duration::from_secs(60)).wait(Duration::from_secs(300)).await;
                guard.expect("its turn comes").release().await.expect("held");
            }
        }));
    }
    // Each of them has a node. A second later it has compared its place and waits.
    let end = Moment::now().after(Duration::from_secs(60));
    while counter(server, "zk_ephemerals_count") < u64::from(holders + waiters) {
        assert!(!end.has_passed(), "not all of them wait");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = received(server);
    let began = Moment::now();
    for held in held {
        held.release().await.expect("held");
    }
    for task in tasks {
        task.await.expect("no panic");
    }
    let handovers = waiters * times;
    let requests = u32::try_from(received(server) - before).expect("not that many");
    (f64::from(requests) / f64::from(handovers), Moment::now().since(began) / handovers)
}

/// A release wakes one of those who wait, however many there are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deep_a_handover_costs_few_requests() {
    let Some(server) = single(&options()).await else { return };
    let locks = client(&server.url()).await;
    for (name, waiters) in [("many", 500), ("few", 100)] {
        let (requests, time) = crowd(&server, std::slice::from_ref(&locks), name, waiters, 2).await;
        println!("{waiters} waiters: {requests:.1} requests per hand-over, {time:.2?} for each");
        assert!(requests <= 4.5, "{requests} requests for each hand-over among {waiters}");
    }
}

/// Who gets a permit wakes one more who waits. It is no herd at any limit: neither in one process nor between
/// many.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deep_a_permit_costs_few_requests() {
    let Some(server) = single(&options()).await else { return };
    let mut clients = Vec::new();
    for _ in 0..20 {
        clients.push(client(&server.url()).await);
    }
    for (limit, processes) in [(2, 1), (50, 1), (50, 20)] {
        let request =
            move |locks: &Locks| locks.permit(format!("permits-{limit}-{processes}").as_str(), limit);
        let (requests, time) = crowd_of(&server, &clients[..processes], request, limit, 100, 4).await;
        println!(
            "limit {limit}, {processes} processes: {requests:.1} requests per hand-over, {time:.2?} for each"
        );
        assert!(requests <= 8.5, "{requests} requests for each hand-over of a permit");
    }
}

/// Readers behind a writer cost the same however many they are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_cost_few_requests() {
    let Some(server) = single(&options()).await else { return };
    let locks = client(&server.url()).await;
    let writer = locks.write("book").await.expect("a free lock");
    let mut readers = Vec::new();
    for _ in 0..100 {
        readers.push(tokio::spawn(locks.read("book").wait(Duration::from_secs(60)).into_future()));
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = received(&server);
    writer.release().await.expect("held");
    for reader in readers {
        reader.await.expect("no panic").expect("its turn comes").release().await.expect("held");
    }
    let requests = u32::try_from(received(&server) - before).expect("not that many");
    println!("readers: {:.1} requests for each", f64::from(requests) / 100.0);
    assert!(requests <= 400, "{requests} requests for a hundred readers");
}

/// Where each who waits is a process of its own, each stands in the server's queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handover_between_processes_costs_few_requests() {
    const PROCESSES: u32 = 50;
    let Some(server) = single(&options()).await else { return };
    let mut clients = Vec::new();
    for _ in 0..PROCESSES {
        clients.push(client(&server.url()).await);
    }
    let (requests, time) = crowd(&server, &clients, "apart", PROCESSES, 4).await;
    println!("{PROCESSES} processes: {requests:.1} requests per hand-over, {time:.2?} for each");
    assert!(requests <= 8.0, "{requests} requests for each hand-over between processes");
}

/// Some of those who wait leave, anywhere in the queue. Nobody gets in too early for it, and nobody has to be
/// woken by the look that everybody takes every 5 to 10 seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deep_those_who_give_up_hold_up_nobody() {
    const PROCESSES: usize = 9;
    let Some(server) = single(&options()).await else { return };
    let inside = Arc::new(AtomicUsize::new(0));
    let mut workers = Vec::new();
    for number in 0..PROCESSES {
        let (locks, inside) = (client(&server.url()).await, Arc::clone(&inside));
        let patient = number % 2 == 0;
        workers.push(tokio::spawn(async move {
            let (mut longest, mut gave_up) = (Duration::ZERO, 0);
            for _ in 0..120 {
                let millis = if patient { 60_000 } else { rand::random_range(1..25) };
                let began = Moment::now();
                match locks.lock("churn").wait(Duration::from_millis(millis)).await {
                    Ok(guard) => {
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold the lock");
                        longest = longest.max(Moment::now().since(began));
                        tokio::time::sleep(Duration::from_millis(rand::random_range(0..3))).await;
                        inside.fetch_sub(1, Ordering::SeqCst);
                        guard.release().await.expect("held");
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error:#}");
                        gave_up += 1;
                    }
                }
            }
            (longest, gave_up)
        }));
    }
    let (mut longest, mut gave_up) = (Duration::ZERO, 0);
    for worker in workers {
        let (its, times) = worker.await.expect("no worker fails");
        longest = longest.max(its);
        gave_up += times;
    }
    println!("the longest wait {longest:?}; {gave_up} gave up");
    assert!(gave_up > 50, "{gave_up} gave up");
    assert!(longest < Duration::from_secs(4), "somebody was not woken: {longest:?}");
}
