//! Fencing tokens rise, whatever becomes of what the server remembers.

use std::num::NonZeroU32;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use lockwell_core::{FencingToken, LockGuard, Locks, Loss, Mode};
use testbed::Redis;

use crate::asking::{calls, claim, claim_as, permit};
use crate::redlock::nodes;
use crate::servers::{client, on_disk, redis, redlock_url, tell};

/// Where the server counts tokens.
const COUNTER: &str = "lockwell:\u{1f}token";

async fn next(locks: &Locks) -> FencingToken {
    let guard = locks.lock("a").await.expect("a free lock");
    let token = guard.token();
    guard.release().await.expect("held");
    token
}

/// The holder learns of its loss from the server, before its lease would have ended.
async fn told(guard: &LockGuard) {
    let loss = tokio::time::timeout(guard.time_left(), guard.lost()).await;
    assert_eq!(loss.expect("told before the end of the lease"), Loss::Taken);
}

#[tokio::test]
async fn tokens_rise_over_releases_and_ends_of_leases() {
    let Some(server) = redis().await else { return };
    let (one, two) = (client(&server.url()).await, client(&server.url()).await);
    let mut last = next(&one).await;
    for turn in 0..200 {
        let token = next(if turn % 2 == 0 { &two } else { &one }).await;
        assert!(token > last, "{token} after {last}");
        last = token;
    }
    for _ in 0..3 {
        let forgotten = claim("a", Duration::from_millis(30));
        let grant = one.backend().acquire(&forgotten).await.expect("an answer").expect("a free lock");
        assert!(grant.token() > last);
        let guard = two.lock("a").await.expect("free after the lease");
        assert!(grant.deadline().has_passed() && guard.token() > grant.token());
        last = guard.token();
        guard.release().await.expect("held");
    }
}

#[tokio::test]
async fn tokens_rise_over_a_flush_and_the_holder_is_told() {
    let Some(server) = redis().await else { return };
    let (one, two) = (client(&server.url()).await, client(&server.url()).await);
    let guard = one.lock("a").ttl(Duration::from_secs(12)).await.expect("a free lock");
    tell(&server, &["FLUSHALL"]);
    let next = two.lock("a").await.expect("free after the flush");
    assert!(next.token() > guard.token());
    told(&guard).await;
    guard.release().await.expect_err("not held any more");
    assert!(next.is_held() && two.inspect("a").await.expect("an answer").is_held());
}

#[tokio::test]
async fn tokens_rise_without_their_counter() {
    let Some(server) = redis().await else { return };
    let locks = client(&server.url()).await;
    let mut last = next(&locks).await;
    for _ in 0..50 {
        tell(&server, &["DEL", COUNTER]);
        let token = next(&locks).await;
        assert!(token > last, "{token} after {last}");
        last = token;
    }
}

#[tokio::test]
async fn tokens_rise_over_a_restart_that_forgets_all() {
    let Some(server) = redis().await else { return };
    let (one, two) = (client(&server.url()).await, client(&server.url()).await);
    let guard = one.lock("a").ttl(Duration::from_secs(15)).await.expect("a free lock");
    server.kill().expect("it runs");
    server.restart().await.expect("it starts again");
    let next = two.lock("a").await.expect("forgotten by the server");
    assert!(next.token() > guard.token());
    told(&guard).await;
}

/// Sets the counter an hour ahead of the clock, and says to what.
fn set_ahead(server: &Redis) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let ahead = now + Duration::from_secs(3600);
    tell(server, &["SET", COUNTER, &ahead.as_micros().to_string()]);
    ahead.as_micros().try_into().expect("not so far ahead")
}

#[tokio::test]
async fn a_counter_that_is_ahead_of_the_clock_goes_on() {
    let Some(server) = redis().await else { return };
    let locks = client(&server.url()).await;
    let counter = set_ahead(&server);
    for step in 1..=20 {
        assert_eq!(next(&locks).await, FencingToken::new(counter + step));
    }
}

/// A block of tokens for another name of the same counter, which is released at once. Its first and its last
/// token.
async fn block(locks: &Locks, many: u32) -> (FencingToken, FencingToken) {
    let mine = claim("b", Duration::from_secs(10)).reserving(NonZeroU32::new(many).expect("not 0"));
    let grant = locks.backend().acquire(&mine).await.expect("an answer").expect("a free lock");
    locks.backend().release(&mine).await.expect("an answer");
    (grant.token(), grant.last_token())
}

/// How many microseconds a token is ahead of the clock.
fn lead(token: FencingToken) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    token.get().saturating_sub(now.as_micros().try_into().expect("not so far"))
}

/// A block begins above the clock, and with it above what was granted before the counter was lost.
#[tokio::test]
async fn a_block_of_tokens_is_above_those_from_before_its_counter_was_lost() {
    let Some(server) = redis().await else { return };
    let locks = client(&server.url()).await;
    for _ in 0..20 {
        let before = next(&locks).await;
        tell(&server, &["DEL", COUNTER]);
        // Tokens for 0.1 s of the clock.
        let (first, _) = block(&locks, 100_000).await;
        assert!(first > before, "{first} after {before}");
        tell(&server, &["DEL", COUNTER]);
        tokio::time::sleep(Duration::from_millis(101)).await;
    }
}

/// What is reserved stays near the clock: a counter that is lost goes on from there.
async fn stays_near_the_clock(locks: &Locks) {
    let (mut last, mut fewer) = (next(locks).await, 0);
    for _ in 0..200 {
        let (first, end) = block(locks, 10_001).await;
        assert!(first > last && end >= first, "{first} to {end} after {last}");
        assert!(lead(end) <= 120_000, "{} µs ahead", lead(end));
        fewer += u32::from(end.get() - first.get() < 10_000);
        last = end;
    }
    println!("{fewer} of 200 blocks had fewer tokens");
    assert!(last < next(locks).await);
}

#[tokio::test]
async fn blocks_of_tokens_do_not_run_ahead_of_the_clock() {
    let Some(server) = redis().await else { return };
    stays_near_the_clock(&client(&server.url()).await).await;
}

#[tokio::test]
async fn blocks_of_tokens_at_the_nodes_of_redlock_do_not_run_ahead_of_the_clock() {
    let Some(nodes) = nodes(3, &on_disk()).await else { return };
    let locks = client(&redlock_url(&nodes)).await;
    stays_near_the_clock(&locks).await;
    // A floor from a clock that is far ahead, or from what was known once, counts as far as a second.
    for node in &nodes {
        tell(node, &["FLUSHALL"]);
        for bucket in 0..256 {
            tell(node, &["SET", &format!("{COUNTER}\u{1f}{bucket}"), "9000000000000000"]);
        }
    }
    assert!(next(&locks).await > FencingToken::new(9_000_000_000_000_000), "the client knows it now");
    for node in &nodes {
        tell(node, &["FLUSHALL"]);
    }
    let token = next(&locks).await;
    assert!((500_000..1_100_000).contains(&lead(token)), "{} µs ahead", lead(token));
}

/// A request that is repeated finds the tokens that it has, also where they are fewer than it wants.
#[tokio::test]
async fn a_claim_that_is_repeated_has_the_same_tokens() {
    let Some(server) = redis().await else { return };
    let locks = client(&server.url()).await;
    for (mode, ahead) in [Mode::Exclusive, Mode::Shared, permit(2)].into_iter().zip([false, true, true]) {
        if ahead {
            set_ahead(&server);
        }
        let mine =
            claim_as(mode, "b", Duration::from_secs(10)).reserving(NonZeroU32::new(500).expect("not 0"));
        let mut tokens = Vec::new();
        for _ in 0..2 {
            let grant = locks.backend().acquire(&mine).await.expect("an answer").expect("a free lock");
            tokens.push((grant.token(), grant.last_token()));
        }
        let many = tokens[0].1.get() - tokens[0].0.get() + 1;
        assert!(tokens[0] == tokens[1] && many == if ahead { 1 } else { 500 }, "{mode:?}: {tokens:?}");
        locks.backend().release(&mine).await.expect("an answer");
    }
}

/// A task that gets the lock from another has a token of its own, also where no more are reserved.
#[tokio::test]
async fn a_lock_that_is_handed_on_in_the_process_has_another_token() {
    let Some(server) = redis().await else { return };
    let locks = client(&server.url()).await.hand_off(10_000, Duration::from_secs(5));
    set_ahead(&server);
    let turns = (0..20).map(|_| async {
        let guard = locks.lock("a").await.expect("its turn");
        let token = guard.token();
        guard.release().await.expect("held");
        token
    });
    let tokens = join_all(turns).await;
    assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "{tokens:?}");
}

/// Claims for many names that arrive together, while the server does not answer.
async fn meet(server: &Redis, locks: &Locks) -> Vec<LockGuard> {
    server.pause().expect("it runs");
    let requests = join_all((0..64).map(|n| locks.lock(format!("name {n}")).into_future()));
    let meeting = tokio::spawn(requests);
    tokio::time::sleep(Duration::from_millis(50)).await;
    server.resume().expect("it runs");
    meeting.await.expect("no panic").into_iter().map(|guard| guard.expect("a free lock")).collect()
}

#[tokio::test]
async fn claims_that_share_a_call_get_different_rising_tokens() {
    let Some(server) = redis().await else { return };
    let locks = client(&server.url()).await;
    let mut last = next(&locks).await;
    for round in 0..6 {
        if round == 3 {
            set_ahead(&server);
        }
        tell(&server, &["CONFIG", "RESETSTAT"]);
        let guards = meet(&server, &locks).await;
        assert!(calls(&server, "evalsha") <= 4, "they share calls");
        for guard in &guards {
            assert!(guard.token() > last, "{} after {last}", guard.token());
            last = guard.token();
        }
        for guard in guards {
            guard.release().await.expect("held");
        }
    }
}
