//! A master that is replaced by its replica.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use lockwell_core::{
    ErrorKind, FencingToken, LeaseState, LockGuard, LockRequest, Locks, Loss, Mode, Requirement,
};
use testbed::{Durability, RedisSentinel, if_installed};

use crate::asking::claim;
use crate::servers::{client, in_memory, keys, refusal, tell, until};

async fn start() -> Option<RedisSentinel> {
    let options = in_memory().durability(Durability::OsCache);
    if_installed(RedisSentinel::start_with(&options).await)
}

/// Asks again until the lock is granted, as an application would. Says how long it took.
pub(crate) async fn lock_at_last(locks: &Locks, name: &str) -> (LockGuard, Duration) {
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
async fn settled(guard: &LockGuard) -> LeaseState {
    while guard.lease_state() == LeaseState::Suspect {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    guard.lease_state()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_master_is_found_and_locks_go_on() {
    let Some(group) = start().await else { return };
    let (one, two) = (client(&group.url()).await, client(&group.url()).await);
    assert!(!one.capabilities().promises(Requirement::FailoverSafe));
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
    assert_eq!(settled(&kept).await, LeaseState::Held);
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
    // From here on the replica receives no changes.
    tell(group.master(), &["ACL", "SETUSER", "default", "-psync", "-sync"]);
    tell(group.master(), &["CLIENT", "KILL", "TYPE", "replica"]);
    let guard = one.lock("a").ttl(Duration::from_secs(20)).await.expect("a free lock");
    group.master().kill().expect("it runs");
    let (thief, took) = lock_at_last(&two, "a").await;
    println!("a lock at the new master, which did not have it, after {took:?}");
    assert!(thief.token() > guard.token() && guard.token() > token);
    // Two guards say "held" until the next renewal: this is what failover_safe=false says.
    let loss = tokio::time::timeout(guard.time_left(), guard.lost()).await;
    assert_eq!(loss.expect("told before the end of the lease"), Loss::Taken);
    assert_eq!(settled(&thief).await, LeaseState::Held);
}

/// Granted at once or not.
async fn at_once(request: LockRequest) -> Option<LockGuard> {
    request.try_now().await.expect("an answer")
}

async fn release(guards: impl IntoIterator<Item = LockGuard>) {
    for guard in guards {
        guard.release().await.expect("held");
    }
}

/// A writer, readers, permits and a block of tokens, by two clients. Returns the tokens in the order of the
/// grants.
async fn all_modes(one: &Locks, two: &Locks) -> Vec<FencingToken> {
    let writer = at_once(one.write("book")).await.expect("a free lock");
    let token = writer.token();
    assert!(at_once(two.read("book")).await.is_none() && at_once(two.write("book")).await.is_none());
    let first = writer.downgrade().await.expect("held");
    assert_eq!((first.mode(), first.token()), (Mode::Shared, token));
    let second = at_once(two.read("book")).await.expect("readers meet");
    assert!(at_once(two.write("book")).await.is_none(), "readers keep a writer out");
    let mut tokens = vec![token, second.token()];
    release([first, second]).await;

    let permits = [at_once(one.permit("slots", 2)).await, at_once(two.permit("slots", 2)).await];
    let permits = permits.map(|guard| guard.expect("two permits"));
    assert!(at_once(one.permit("slots", 2)).await.is_none(), "two of two are taken");
    tokens.extend(permits.iter().map(LockGuard::token));
    release(permits).await;

    let block = claim("block", Duration::from_secs(10)).reserving(NonZeroU32::new(1000).expect("not 0"));
    let grant = one.backend().acquire(&block).await.expect("an answer").expect("a free lock");
    assert_eq!(grant.last_token().get() - grant.token().get(), 999);
    one.backend().release(&block).await.expect("an answer");
    let next = at_once(two.lock("block")).await.expect("a free lock");
    tokens.extend([grant.token(), grant.last_token(), next.token()]);
    release([next]).await;
    tokens
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_permits_go_on_at_the_new_master() {
    let Some(group) = start().await else { return };
    let (one, two) = (client(&group.url()).await, client(&group.url()).await);
    let ttl = Duration::from_secs(20);
    let mut tokens = all_modes(&one, &two).await;
    let reader = one.read("kept").ttl(ttl).await.expect("a free lock");
    let permit = one.permit("kept slots", 2).ttl(ttl).await.expect("a free lock");
    tokens.extend([reader.token(), permit.token()]);
    let all = keys(group.master());
    until("the replica has them", || keys(group.replica()) == all).await;
    // Nothing of what comes after this is written before the failover.
    group.master().kill().expect("it runs");
    let (after, _) = lock_at_last(&two, "another").await;
    tokens.push(after.token());
    release([after]).await;

    // Who was a member is one, and is renewed.
    let before = one.stats().renewals;
    assert!(at_once(two.write("kept")).await.is_none(), "a reader keeps a writer out");
    let second = at_once(two.read("kept")).await.expect("readers meet");
    let last = at_once(two.permit("kept slots", 2)).await.expect("the second permit");
    assert!(at_once(two.permit("kept slots", 2)).await.is_none(), "two of two are taken");
    tokens.extend([second.token(), last.token()]);
    let end = Instant::now() + ttl;
    while one.stats().renewals < before + 2 && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!((settled(&reader).await, settled(&permit).await), (LeaseState::Held, LeaseState::Held));
    release([reader, permit, second, last]).await;
    tokens.extend(all_modes(&two, &one).await);
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{tokens:?}");
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
