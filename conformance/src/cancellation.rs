//! A future can be dropped at any await. Nothing may stay behind.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::stage::{Stage, free_by, millis, poll_once, queued, release, secs};
use super::time::sleep;
use lockwell_core::{LockName, Locks};

/// How soon the lock is free for others.
const SOON: Duration = Duration::from_secs(1);
/// The most polls before the future is dropped.
const POLLS: u32 = 9;

/// Polls a future this number of times, with short pauses in between, and drops it unless it has ended.
async fn poll_and_drop<T>(future: impl IntoFuture<Output = T>, polls: u32, random: &mut StdRng) -> Option<T> {
    let mut future = std::pin::pin!(future.into_future());
    for _ in 0..polls {
        if let Some(value) = poll_once(future.as_mut()).await {
            return Some(value);
        }
        match random.random_range(0..3) {
            0 => tokio::task::yield_now().await,
            _ => sleep(Duration::from_micros(random.random_range(0..1500))).await,
        }
    }
    None
}

/// The lock is free soon, and nobody waits in its queue.
async fn nothing_is_left(locks: &Locks, name: &LockName, what: &str) {
    let (guard, _) = free_by(locks, name, SOON, what).await;
    queued(locks, name, 0, secs(2)).await;
    release(guard).await;
}

/// An acquire of a free lock, dropped after each number of polls.
pub(super) async fn an_acquire_of_a_free_lock_can_be_dropped_anywhere(stage: Stage) {
    let [one, two] = stage.clients().await;
    warm(&stage, [&one, &two]).await;
    let seed = rand::random();
    let mut random = StdRng::seed_from_u64(seed);
    for polls in 0..POLLS {
        let name = stage.name(polls);
        let what = format!("seed {seed:#x}, dropped after {polls} polls");
        let guard = poll_and_drop(one.lock(&name).wait(secs(5)), polls, &mut random).await;
        drop(guard.map(|answer| answer.expect("a free lock")));
        nothing_is_left(&two, &name, &what).await;
        // Another name: the request that was dropped may reach the server now, and hold the lock for a
        // moment.
        let name = stage.name(format!("{polls}, at once"));
        let guard = poll_and_drop(one.lock(&name).try_now(), polls, &mut random).await;
        drop(guard.map(|answer| answer.expect("an answer").expect("a free lock")));
        nothing_is_left(&two, &name, &format!("{what}, without a wait")).await;
    }
}

/// An acquire that waits for a held lock, dropped after each number of polls.
pub(super) async fn an_acquire_of_a_held_lock_can_be_dropped_anywhere(stage: Stage) {
    let [one, two, three] = stage.clients().await;
    warm(&stage, [&one, &two, &three]).await;
    let seed = rand::random();
    let mut random = StdRng::seed_from_u64(seed);
    for polls in 0..POLLS {
        let name = stage.name(polls);
        let what = format!("seed {seed:#x}, dropped after {polls} polls");
        let held = one.lock(&name).await.expect("a free lock");
        let answer = poll_and_drop(two.lock(&name).wait(secs(5)), polls, &mut random).await;
        assert!(answer.is_none(), "{what}: the lock is held, but {answer:?}");
        let answer = poll_and_drop(two.lock(&name).try_now(), polls, &mut random).await;
        assert!(matches!(answer, None | Some(Ok(None))), "{what}: the lock is held, but {answer:?}");
        queued(&one, &name, 0, secs(2)).await;
        release(held).await;
        nothing_is_left(&three, &name, &what).await;
    }
}

/// An acquire that is dropped at about the moment when its turn comes.
pub(super) async fn an_acquire_can_be_dropped_while_the_lock_changes_hands(stage: Stage) {
    let [one, two, three] = stage.clients().await;
    warm(&stage, [&one, &two, &three]).await;
    let seed = rand::random();
    let mut random = StdRng::seed_from_u64(seed);
    for round in 0..2 * POLLS {
        let name = stage.name(round);
        let what = format!("seed {seed:#x}, round {round}");
        let held = one.lock(&name).await.expect("a free lock");
        let mut waiting = Box::pin(two.lock(&name).wait(secs(5)).into_future());
        assert!(poll_once(waiting.as_mut()).await.is_none(), "{what}: the lock is held");
        let releasing = tokio::spawn(release(held));
        let granted = poll_and_drop(waiting, round / 2, &mut random).await;
        drop(granted.map(|answer| answer.expect("its turn comes")));
        releasing.await.expect("no panic");
        nothing_is_left(&three, &name, &what).await;
    }
}

/// A release that is dropped after each number of polls goes on by itself.
pub(super) async fn a_release_can_be_dropped_anywhere(stage: Stage) {
    let [one, two] = stage.clients().await;
    warm(&stage, [&one, &two]).await;
    let seed = rand::random();
    let mut random = StdRng::seed_from_u64(seed);
    for polls in 0..POLLS {
        let name = stage.name(polls);
        let guard = one.lock(&name).await.expect("a free lock");
        let answer = poll_and_drop(guard.release(), polls, &mut random).await;
        assert!(answer.as_ref().is_none_or(Result::is_ok), "{answer:?}");
        nothing_is_left(&two, &name, &format!("seed {seed:#x}, dropped after {polls} polls")).await;
    }
}

/// Opens what the first calls open, which is not to be measured.
async fn warm<const N: usize>(stage: &Stage, clients: [&Locks; N]) {
    for locks in clients {
        let name = stage.name("warm");
        release(locks.lock(&name).await.expect("a free lock")).await;
        queued(locks, &name, 0, millis(1000)).await;
    }
}
