//! Grants that count only when replicas have them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockwell_core::{ErrorKind, LeaseState, Loss};
use testbed::{Redis, if_installed};

use crate::asking::{claim, queued};
use crate::servers::{client, in_memory, keys, redis, tell, until};

/// A master and its replica, and the address of the master with the demand that the replica confirms.
async fn pair() -> Option<(Redis, Redis, String)> {
    let master = redis().await?;
    let replica = if_installed(Redis::start_replica(master.addr(), &in_memory()).await)?;
    // It receives changes from its first acknowledgement on, which comes within a second.
    tell(&master, &["SET", "first", "1"]);
    until("in step", || !keys(&replica).is_empty()).await;
    tell(&master, &["DEL", "first"]);
    let url = format!("{}?wait_replicas=1", master.url());
    Some((master, replica, url))
}

#[tokio::test]
async fn a_replica_confirms_a_grant() {
    let Some((_master, replica, url)) = pair().await else { return };
    let locks = client(&url).await;
    let guard = locks.lock("a").ttl(Duration::from_secs(16)).await.expect("confirmed");
    assert!(keys(&replica).contains(&"lockwell:a".to_owned()), "the replica has it");
    let waiting = tokio::spawn(locks.lock("a").into_future());
    // Longer than the lease.
    tokio::time::sleep(Duration::from_secs(18)).await;
    assert_eq!(guard.lease_state(), LeaseState::Held);
    guard.release().await.expect("held");
    waiting.await.expect("no panic").expect("its turn").release().await.expect("held");
    let reader = locks.write("a").await.expect("confirmed").downgrade().await.expect("confirmed");
    let value = tell(&replica, &["GET", "lockwell:a"]);
    assert!(value.contains("group:-1"), "the replica has it: {value}");
    locks.read("a").await.expect("confirmed").release().await.expect("held");
    reader.release().await.expect("held");
}

#[tokio::test]
async fn without_a_replica_the_outcome_is_unknown_and_the_lock_is_given_up() {
    let Some((master, replica, url)) = pair().await else { return };
    let locks = client(&url).await;
    replica.pause().expect("it runs");
    for ttl in [Duration::from_secs(1), Duration::from_secs(10)] {
        let start = Instant::now();
        let error = locks.lock("a").ttl(ttl).await.expect_err("nobody confirms");
        let took = start.elapsed();
        println!("with a ttl of {ttl:?}: {error:#} after {took:?}");
        assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error:#}");
        assert!(error.to_string().contains("0 of 1 replicas"), "{error:#}");
        assert!(took < Duration::from_secs(5), "{took:?}");
        until("the lock is free again", || keys(&master).is_empty()).await;
    }
    let error = locks.read("a").ttl(Duration::from_secs(1)).await.expect_err("nobody confirms");
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error:#}");
    until("the lock is free again", || keys(&master).is_empty()).await;
    replica.resume().expect("it runs");
    locks.lock("a").await.expect("confirmed").release().await.expect("held");
}

/// A release grants to the waiter in the same call, and the waiter's guard must not come before a replica has
/// that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_handed_over_is_confirmed_before_it_is_held() {
    let Some((_master, replica, url)) = pair().await else { return };
    let (one, two) = (client(&url).await, client(&url).await);
    let guard = one.lock("a").await.expect("confirmed");
    let waiting = tokio::spawn(two.lock("a").wait(Duration::from_secs(60)).into_future());
    queued(&one, "a", 1).await;
    replica.pause().expect("it runs");
    // The release itself need not be confirmed.
    guard.release().await.expect("held");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!waiting.is_finished(), "no replica has the grant");
    waiting.abort();
    replica.resume().expect("it runs");
    let guard = one.lock("a").wait(Duration::from_secs(60)).await.expect("released, and confirmed");
    let waiting = tokio::spawn(two.lock("a").wait(Duration::from_secs(60)).into_future());
    queued(&one, "a", 1).await;
    guard.release().await.expect("held");
    let guard = waiting.await.expect("no panic").expect("confirmed");
    let of_guard = format!(":{}:", guard.token());
    assert!(tell(&replica, &["GET", "lockwell:a"]).contains(&of_guard), "the replica has it");
    guard.release().await.expect("held");
}

#[tokio::test]
async fn without_a_replica_a_holder_turns_suspect_and_then_loses_the_lock() {
    let Some((_master, replica, url)) = pair().await else { return };
    let locks = client(&url).await;
    let guard = locks.lock("a").ttl(Duration::from_secs(6)).await.expect("confirmed");
    replica.pause().expect("it runs");
    let start = Instant::now();
    until("in doubt", || guard.lease_state() == LeaseState::Suspect).await;
    assert!(guard.is_held() && start.elapsed() < Duration::from_millis(5990));
    let loss = tokio::time::timeout(Duration::from_secs(10), guard.lost()).await;
    assert_eq!(loss.expect("not held for ever"), Loss::Expired);
    assert!(start.elapsed() < Duration::from_millis(6500), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_connection_that_fails_while_a_replica_is_waited_for_is_no_defect() {
    let Some((master, replica, url)) = pair().await else { return };
    let locks = client(&url).await;
    replica.pause().expect("it runs");
    let waiting = tokio::spawn(locks.lock("a").ttl(Duration::from_secs(8)).into_future());
    until("the lock is set", || !keys(&master).is_empty()).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    tell(&master, &["CLIENT", "KILL", "TYPE", "normal"]);
    let error = waiting.await.expect("no panic").expect_err("nobody confirms");
    assert!(matches!(error.kind(), ErrorKind::UnknownOutcome | ErrorKind::Unreachable), "{error:#}");
    until("the lock is free again", || keys(&master).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_granted_while_no_replica_answers_whatever_happens_to_connections() {
    let Some((master, replica, url)) = pair().await else { return };
    let locks = client(&url).await;
    replica.pause().expect("it runs");
    let over = Arc::new(AtomicBool::new(false));
    let tasks = join_all((0..16).map(|task| {
        let (locks, over) = (locks.clone(), Arc::clone(&over));
        tokio::spawn(async move {
            while !over.load(Ordering::Relaxed) {
                let claim = claim(&format!("name {task}"), Duration::from_millis(40));
                let outcome = locks.backend().acquire(&claim).await;
                assert!(!matches!(outcome, Ok(Some(_))), "granted, and no replica has it");
            }
        })
    }));
    let cutting = async {
        for _ in 0..300 {
            tell(&master, &["CLIENT", "KILL", "TYPE", "normal"]);
            tokio::time::sleep(Duration::from_millis(7)).await;
        }
        over.store(true, Ordering::Relaxed);
    };
    let (done, ()) = tokio::join!(tasks, cutting);
    for task in done {
        task.expect("nothing is granted");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_whose_connection_was_replaced_is_confirmed_on_the_next() {
    let Some((master, replica, url)) = pair().await else { return };
    let locks = client(&url).await;
    let over = Arc::new(AtomicBool::new(false));
    let cutting = tokio::spawn({
        let over = Arc::clone(&over);
        async move {
            let mut cuts = 0;
            while !over.load(Ordering::Relaxed) {
                tell(&master, &["CLIENT", "KILL", "TYPE", "normal"]);
                cuts += 1;
                tokio::time::sleep(Duration::from_millis(40)).await;
            }
            cuts
        }
    });
    for n in 0..300 {
        let claim = claim(&format!("name {n}"), Duration::from_secs(20));
        let grant = locks.backend().acquire(&claim).await.expect("confirmed").expect("a free lock");
        assert!(keys(&replica).contains(&format!("lockwell:name {n}")), "the replica has it: {grant:?}");
        locks.backend().release(&claim).await.expect("an answer");
    }
    over.store(true, Ordering::Relaxed);
    println!("300 grants, and {} cuts", cutting.await.expect("no panic"));
}
