//! How many requests a hand-over costs the server.

use std::time::Duration;

use lockcore::{Locks, Moment};
use testbed::ZooKeeper;

use crate::servers::{client, hold, options, single};

fn received(server: &ZooKeeper) -> u64 {
    let answer = server.four_letter("mntr").expect("an answer");
    let line = answer.lines().find_map(|line| line.strip_prefix("zk_packets_received")).expect("a counter");
    line.trim().parse().expect("a number")
}

/// So many wait for one lock, and each takes it so often. Says requests and time for each hand-over.
async fn crowd(
    server: &ZooKeeper,
    locks: &Locks,
    name: &'static str,
    waiters: u32,
    times: u32,
) -> (f64, Duration) {
    let held = hold(locks, name).await;
    let mut tasks = Vec::new();
    for _ in 0..waiters {
        let locks = locks.clone();
        tasks.push(tokio::spawn(async move {
            for _ in 0..times {
                let guard = locks.lock(name).ttl(Duration::from_mins(1)).wait(Duration::from_mins(5)).await;
                guard.expect("its turn comes").release().await.expect("held");
            }
        }));
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (before, began) = (received(server), Moment::now());
    held.release().await.expect("held");
    for task in tasks {
        task.await.expect("no panic");
    }
    let handovers = waiters * times;
    let requests = u32::try_from(received(server) - before).expect("not that many");
    (f64::from(requests) / f64::from(handovers), Moment::now().since(began) / handovers)
}

/// A release wakes one of those who wait, however many there are; the naive lock wakes all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handover_costs_few_requests() {
    let Some(server) = single(&options()).await else { return };
    println!(
        "{:>8} {:>8} {:>10} {:>22} {:>16}",
        "recipe", "waiters", "hand-overs", "requests per hand-over", "time for each"
    );
    for (recipe, suffix, waiters, times) in [
        ("curator", "", 500, 2),
        ("curator", "", 100, 2),
        ("simple", "/simple?recipe=simple", 100, 1),
        ("simple", "/simple?recipe=simple", 30, 2),
    ] {
        let locks = client(&format!("{}{suffix}", server.url())).await;
        let name: &'static str = if waiters > 100 { "many" } else { "few" };
        let (requests, time) = crowd(&server, &locks, name, waiters, times).await;
        println!("{recipe:>8} {waiters:>8} {:>10} {requests:>22.1} {time:>16.2?}", waiters * times);
        if recipe == "curator" {
            assert!(requests <= 10.0, "{requests} requests for each hand-over among {waiters}");
        } else {
            assert!(requests > f64::from(waiters) / 2.0, "the naive lock shows no herd: {requests}");
        }
    }
}
