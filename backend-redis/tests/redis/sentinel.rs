//! A master that is replaced by its replica.

use std::time::{Duration, Instant};

use lockcore::{ErrorKind, LockGuard, Locks, Loss, Standing};
use testbed::{Durability, RedisSentinel};

use crate::servers::{client, in_memory, keys, missing, refusal, tell};

async fn start() -> Option<RedisSentinel> {
    if missing(RedisSentinel::installed()) {
        return None;
    }
    let options = in_memory().durability(Durability::OsCache);
    Some(RedisSentinel::start_with(&options).await.expect("the group starts"))
}

/// Asks again until the lock is granted, as an application would. Says how long it took.
async fn lock_at_last(locks: &Locks, name: &str) -> (LockGuard, Duration) {
    let start = Instant::now();
    loop {
        match locks.lock(name).await {
            Ok(guard) => return (guard, start.elapsed()),
            Err(error) => assert!(error.is_retryable(), "{error:#}"),
        }
        assert!(start.elapsed() < Duration::from_secs(30), "no new master is found");
    }
}

/// Waits until the holder is sure, one way or the other.
async fn settled(guard: &LockGuard) -> Standing {
    while guard.standing() == Standing::Suspect {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    guard.standing()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_master_is_found_and_locks_go_on() {
    let Some(group) = start().await else { return };
    let (one, two) = (client(&group.url()).await, client(&group.url()).await);
    assert!(!one.capabilities().failover_safe);
    let kept = one.lock("kept").ttl(Duration::from_secs(20)).await.expect("a free lock");
    let before = one.lock("a").await.expect("a free lock");
    let token = before.token();
    before.release().await.expect("held");
    // Long enough for the replica to have it.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    group.master().kill().expect("it runs");
    let (after, took) = lock_at_last(&two, "a").await;
    println!("a lock at the new master after {took:?}");
    assert!(took < Duration::from_secs(12), "{took:?}");
    assert!(after.token() > token, "{} after {token}", after.token());
    assert!(keys(group.replica()).contains(&"lockwell:a".to_owned()));
    // The other client finds it, too, and its lock is still there.
    let (mine, took) = lock_at_last(&one, "another").await;
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(settled(&kept).await, Standing::Held);
    let status = two.inspect("kept").await.expect("an answer");
    assert_eq!(status.holders.first().map(|holder| holder.token), Some(kept.token()));
    for guard in [after, mine, kept] {
        guard.release().await.expect("held");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_the_new_master_has_not_is_told_to_be_lost() {
    let Some(group) = start().await else { return };
    let (one, two) = (client(&group.url()).await, client(&group.url()).await);
    let before = one.lock("a").await.expect("a free lock");
    let token = before.token();
    before.release().await.expect("held");
    // From here on the replica hears of nothing.
    tell(group.master(), &["ACL", "SETUSER", "default", "-psync", "-sync"]);
    tell(group.master(), &["CLIENT", "KILL", "TYPE", "replica"]);
    let guard = one.lock("a").ttl(Duration::from_secs(20)).await.expect("a free lock");
    group.master().kill().expect("it runs");
    let (thief, took) = lock_at_last(&two, "a").await;
    println!("a lock at the new master, which had not heard of it, after {took:?}");
    assert!(thief.token() > guard.token() && guard.token() > token);
    // Two believe in it until the next renewal: this is what failover_safe=false says.
    let loss = tokio::time::timeout(guard.time_left(), guard.lost()).await;
    assert_eq!(loss.expect("told before the end of the lease"), Loss::Taken);
    assert_eq!(settled(&thief).await, Standing::Held);
}

#[tokio::test]
async fn a_master_that_no_sentinel_knows_is_said() {
    let Some(group) = start().await else { return };
    let url = group.url().replace("/mymaster", "/another");
    let start = Instant::now();
    let error = refusal(&url).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
    assert!(error.to_string().contains("sentinel"), "{error:#}");
    assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
    // One sentinel that is down is no obstacle.
    group.sentinels()[0].kill().expect("it runs");
    let locks = client(&group.url()).await;
    locks.lock("a").await.expect("a free lock").release().await.expect("held");
}
