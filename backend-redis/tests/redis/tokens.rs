//! Fencing tokens rise, whatever becomes of what the server remembers.

use std::num::NonZeroU32;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use lockcore::{FencingToken, LockGuard, Locks, Loss};
use testbed::Redis;

use crate::asking::{calls, claim};
use crate::servers::{client, redis, tell};

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
    let guard = one.lock("a").ttl(Duration::from_secs(3)).await.expect("a free lock");
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
    let guard = one.lock("a").ttl(Duration::from_secs(6)).await.expect("a free lock");
    server.kill().expect("it runs");
    server.restart().await.expect("it starts again");
    let next = two.lock("a").await.expect("forgotten by the server");
    assert!(next.token() > guard.token());
    told(&guard).await;
}

/// Sets the counter an hour ahead of the clock, and says to what.
fn ahead_of(server: &Redis) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let ahead = now + Duration::from_hours(1);
    tell(server, &["SET", COUNTER, &ahead.as_micros().to_string()]);
    ahead.as_micros().try_into().expect("not so far ahead")
}

#[tokio::test]
async fn a_counter_that_is_ahead_of_the_clock_goes_on() {
    let Some(server) = redis().await else { return };
    let locks = client(&server.url()).await;
    let counter = ahead_of(&server);
    for step in 1..=20 {
        assert_eq!(next(&locks).await, FencingToken::new(counter + step));
    }
}

/// A block of tokens for another name of the same counter, which is released at once. Its first and its last token.
async fn block(locks: &Locks, many: u32) -> (FencingToken, FencingToken) {
    let mine = claim("b", Duration::from_secs(10)).reserving(NonZeroU32::new(many).expect("not 0"));
    let grant = locks.backend().acquire(&mine).await.expect("an answer").expect("a free lock");
    // A repeated request finds the same tokens.
    let again = locks.backend().acquire(&mine).await.expect("an answer").expect("ours");
    assert_eq!((again.token(), again.last_token()), (grant.token(), grant.last_token()));
    locks.backend().release(&mine).await.expect("an answer");
    (grant.token(), grant.last_token())
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
#[tokio::test]
async fn blocks_of_tokens_do_not_run_ahead_of_the_clock() {
    let Some(server) = redis().await else { return };
    let locks = client(&server.url()).await;
    let (mut last, mut fewer) = (next(&locks).await, 0);
    let ahead = |token: FencingToken| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        token.get().saturating_sub(now.as_micros().try_into().expect("not so far"))
    };
    for _ in 0..200 {
        let (first, end) = block(&locks, 10_001).await;
        assert!(first > last && end >= first, "{first} to {end} after {last}");
        assert!(ahead(end) <= 101_000, "{} µs ahead", ahead(end));
        fewer += u32::from(end.get() - first.get() < 10_000);
        last = end;
    }
    println!("{fewer} of 200 blocks had fewer tokens");
    assert!(last < next(&locks).await);
    // A task that gets the lock next has a token of its own, also where no more are reserved.
    let passing = locks.clone().hand_over(10_000, Duration::from_secs(5));
    ahead_of(&server);
    let turns = join_all((0..20).map(|_| async {
        let guard = passing.lock("a").await.expect("its turn");
        let token = guard.token();
        guard.release().await.expect("held");
        token
    }))
    .await;
    assert!(turns.is_sorted() && turns.windows(2).all(|pair| pair[0] < pair[1]), "{turns:?}");
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
            ahead_of(&server);
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
