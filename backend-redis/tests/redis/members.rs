//! Those who hold a lock together: each has a lease of its own, and the lock's key lasts as long as the last
//! of them.

use std::time::Duration;

use lockwell_core::{Claim, DistributedLock, ErrorKind, Grant, Mode, Released, Renewal};
use testbed::{Durability, Redis};

use crate::asking::{claim, claim_as, life, parts, permit, queued};
use crate::servers::{backend, client, in_memory, keys, redis, redis_with, soon, tell, until};

const SHORT: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(30);

const MEMBERS: &str = "lockwell:\u{1f}members\u{1f}a";
const DETAILS: &str = "lockwell:\u{1f}details\u{1f}a";

async fn take(backend: &dyn DistributedLock, claim: &Claim) -> Option<Grant> {
    backend.acquire(claim).await.expect("an answer")
}

async fn is_renewed(backend: &dyn DistributedLock, grant: &Grant) -> bool {
    match backend.renew(std::slice::from_ref(grant), soon()).await.remove(0) {
        Renewal::Renewed(_) => true,
        Renewal::Lost => false,
        other => panic!("{other:?}"),
    }
}

/// How many members there are, by the server's key.
fn members(server: &Redis) -> usize {
    parts(&tell(server, &["ZRANGE", MEMBERS, "0", "-1"])).len()
}

#[tokio::test]
async fn the_lock_lasts_as_long_as_its_last_member() {
    let Some(server) = redis().await else { return };
    let one = backend(&server.url()).await.expect("a connection");
    for mode in [Mode::Shared, permit(3)] {
        let (short, long) = (claim_as(mode, "a", SHORT), claim_as(mode, "a", LONG));
        take(&*one, &short).await.expect("a free lock");
        assert!(life(&server, "lockwell:a") <= 302);
        let grant = take(&*one, &long).await.expect("they meet");
        assert!(life(&server, "lockwell:a") > 20_000);
        // One with a short lease, renewed beside one with a long one, does not shorten it.
        let another = claim_as(mode, "a", SHORT);
        let renewed = take(&*one, &another).await.expect("they meet");
        assert!(is_renewed(&*one, &renewed).await && life(&server, "lockwell:a") > 20_000);
        assert!(is_renewed(&*one, &grant).await);
        // The last to go leaves early: the others' leases set the end again.
        assert_eq!(one.release(&long).await.expect("an answer"), Released::Released);
        for key in ["lockwell:a", MEMBERS, DETAILS] {
            assert!(life(&server, key) <= 302, "{key}");
        }
        until("the leases of the others are over", || keys(&server).is_empty()).await;
    }
}

#[tokio::test]
async fn a_member_that_died_is_dropped_and_the_others_stay() {
    let Some(server) = redis().await else { return };
    let one = backend(&server.url()).await.expect("a connection");
    let locks = client(&server.url()).await;
    let (dead, alive) = (claim_as(permit(2), "a", SHORT), claim_as(permit(2), "a", LONG));
    let lost = take(&*one, &dead).await.expect("a permit");
    let kept = take(&*one, &alive).await.expect("a permit");
    assert!(take(&*one, &claim_as(permit(2), "a", LONG)).await.is_none(), "two of two are taken");
    let heir = locks.permit("a", 2).wait(Duration::from_secs(10)).await.expect("the dead one's permit");
    assert!(lost.deadline().has_passed() && heir.token() > kept.token());
    assert!(!is_renewed(&*one, &lost).await, "dropped");
    assert_eq!(one.release(&dead).await.expect("an answer"), Released::NotHeld);
    assert!(is_renewed(&*one, &kept).await);
    let shown = locks.inspect("a").await.expect("an answer");
    let tokens: Vec<_> = shown.holders.iter().map(|holder| holder.token).collect();
    assert_eq!(tokens, [kept.token(), heir.token()], "{shown:?}");
    assert!(shown.holders[0].ttl_left > Duration::from_secs(20), "{shown:?}");
    heir.release().await.expect("held");
    assert_eq!(one.release(&alive).await.expect("an answer"), Released::Released);
    assert_eq!(keys(&server), [""; 0]);
}

#[tokio::test]
async fn a_member_that_asks_again_gets_the_same_grant() {
    let Some(server) = redis().await else { return };
    let one = backend(&server.url()).await.expect("a connection");
    for mode in [Mode::Shared, permit(2)] {
        let mine = claim_as(mode, "a", LONG);
        let first = take(&*one, &mine).await.expect("a free lock");
        let again = take(&*one, &mine).await.expect("ours");
        assert_eq!((first.token(), members(&server)), (again.token(), 1));
        assert_eq!(one.release(&mine).await.expect("an answer"), Released::Released);
        assert_eq!(one.release(&mine).await.expect("an answer"), Released::NotHeld);
    }
}

/// The lock's key decides. What is left beside it belongs to a group that is over.
#[tokio::test]
async fn without_the_locks_key_nobody_is_a_member() {
    let Some(server) = redis().await else { return };
    let one = backend(&server.url()).await.expect("a connection");
    let (mine, other) = (claim_as(Mode::Shared, "a", LONG), claim_as(Mode::Shared, "a", LONG));
    let lost = take(&*one, &mine).await.expect("a free lock");
    tell(&server, &["DEL", "lockwell:a"]);
    assert!(!is_renewed(&*one, &lost).await);
    let writer = claim("a", LONG);
    take(&*one, &writer).await.expect("a free lock");
    assert!(!is_renewed(&*one, &lost).await);
    assert_eq!(one.release(&writer).await.expect("an answer"), Released::Released);
    take(&*one, &other).await.expect("a free lock");
    assert!(members(&server) == 1 && !is_renewed(&*one, &lost).await, "it is not a member of the next group");
    assert_eq!(one.release(&mine).await.expect("an answer"), Released::NotHeld);
    assert_eq!(one.release(&other).await.expect("an answer"), Released::Released);
    assert_eq!(keys(&server), [""; 0]);
}

/// Puts a reader into the queue, as the last, who will never come.
fn nobody_waits(server: &Redis) {
    let script = "local t = redis.call('TIME') \
                  redis.call('ZADD', KEYS[1], t[1] + 1 .. '000000', 'nobody') \
                  redis.call('HSET', KEYS[2], 'nobody', t[1] + 4 .. '000000:-1:lockwell:nowhere:1')";
    let (queue, waiters) = ("lockwell:\u{1f}queue\u{1f}a", "lockwell:\u{1f}waiters\u{1f}a");
    tell(server, &["EVAL", &format!("{script} return 1"), "2", queue, waiters]);
}

/// A member that was granted the lock with others, and hangs, blocks the lock only for its provisional lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_let_in_and_does_not_come_is_passed_over() {
    let Some(server) = redis().await else { return };
    let locks = client(&server.url()).await;
    let writer = locks.write("a").await.expect("a free lock");
    let waiting = tokio::spawn(locks.read("a").into_future());
    queued(&locks, "a", 1).await;
    nobody_waits(&server);
    queued(&locks, "a", 2).await;
    writer.release().await.expect("held");
    let reader = waiting.await.expect("no panic").expect("its turn");
    assert!((1..=2).contains(&members(&server)), "it may be over already");
    let shown = locks.inspect("a").await.expect("an answer");
    assert_eq!(shown.holders.len(), 1, "nobody holds nothing: {shown:?}");
    reader.release().await.expect("held");
    // Its place in the queue would have been kept for longer than this.
    let writer = locks.write("a").wait(Duration::from_secs(3)).await.expect("its turn");
    writer.release().await.expect("held");
    until("nothing is left", || keys(&server).is_empty()).await;
}

#[tokio::test]
async fn members_survive_a_restart() {
    let Some(server) = redis_with(&in_memory().durability(Durability::OsCache)).await else { return };
    let locks = client(&format!("{}?timeout=20s", server.url())).await;
    let readers = [locks.read("r").await.expect("a free lock"), locks.read("r").await.expect("readers meet")];
    let permits = [locks.permit("p", 2).await.expect("free"), locks.permit("p", 2).await.expect("free")];
    let turned = locks.write("d").await.expect("a free lock").downgrade().await.expect("held");
    let waiting = tokio::spawn(locks.write("r").into_future());
    queued(&locks, "r", 1).await;
    server.kill().expect("it runs");
    server.restart().await.expect("it starts again");
    assert_eq!(locks.inspect("r").await.expect("an answer").holders.len(), 2);
    assert!(locks.read("r").try_now().await.expect("an answer").is_none(), "a writer waits");
    assert!(locks.permit("p", 2).try_now().await.expect("an answer").is_none());
    assert!(locks.write("d").try_now().await.expect("an answer").is_none());
    for guard in readers.into_iter().chain(permits).chain([turned]) {
        guard.release().await.expect("held");
    }
    waiting.await.expect("no panic").expect("its turn").release().await.expect("held");
    until("nothing is left", || keys(&server).is_empty()).await;
}

#[tokio::test]
async fn keys_of_a_group_that_hold_something_else() {
    let Some(server) = redis().await else { return };
    let locks = client(&server.url()).await;
    for key in [MEMBERS, DETAILS] {
        let guard = locks.read("a").await.expect("a free lock");
        tell(&server, &["SET", key, "x"]);
        for error in [
            locks.read("a").try_now().await.expect_err("spoilt"),
            locks.inspect("a").await.expect_err("spoilt"),
            guard.release().await.expect_err("spoilt"),
        ] {
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
            assert!(error.to_string().contains("keys beside the lock"), "{error:#}");
        }
        tell(&server, &["FLUSHALL"]);
    }
    // What is left over from another time is cleared away by the next group.
    tell(&server, &["SET", MEMBERS, "x"]);
    locks.read("a").await.expect("a free lock").release().await.expect("held");
    until("nothing is left", || keys(&server).is_empty()).await;
}

/// One call extends leases of all kinds, and its answers come in the order of the question.
#[tokio::test]
async fn each_lease_of_a_call_has_its_own_answer() {
    let Some(server) = redis().await else { return };
    let one = backend(&server.url()).await.expect("a connection");
    let mut grants = Vec::new();
    for (n, mode) in [Mode::Exclusive, Mode::Shared, permit(2), Mode::Exclusive, permit(2), Mode::Shared]
        .into_iter()
        .cycle()
        .take(18)
        .enumerate()
    {
        let claim = claim_as(mode, &format!("{}/{n}", mode.code()), Duration::from_secs(10));
        grants.push(take(&*one, &claim).await.expect("a free lock"));
    }
    // Some are released, and the key of one of them is used by another program.
    let gone = |n: usize| n.is_multiple_of(4) || n == 1 || n == 3;
    for (n, grant) in grants.iter().enumerate().filter(|(n, _)| gone(*n)) {
        one.release(grant.claim()).await.expect("an answer");
        if n == 3 {
            tell(&server, &["HSET", "lockwell:0/3", "another", "program"]);
        }
    }
    let answers = one.renew(&grants, soon()).await;
    let renewed: Vec<bool> = answers.iter().map(|it| matches!(it, Renewal::Renewed(_))).collect();
    assert_eq!(renewed, (0..grants.len()).map(|n| !gone(n)).collect::<Vec<_>>());
    assert!(answers.iter().all(|it| matches!(it, Renewal::Renewed(_) | Renewal::Lost)), "{answers:?}");
}
