use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;

use super::super::slot::PICKED_UP;
use super::*;
use crate::{Clock, FencingToken, Grant, Mode, Result, TestClock, Wait};

fn claim(wait: Wait) -> Claim {
    let name = LockName::new("a").unwrap();
    Claim::new(name, Mode::Exclusive, Duration::from_secs(10), wait, "test".into())
}

fn claim_turn(turn: Result<Option<Turn>>) -> ClaimTurn {
    match turn {
        Ok(Some(Turn::Claim(turn))) => turn,
        other => panic!("not the turn to claim: {other:?}"),
    }
}

#[tokio::test]
async fn the_turn_goes_from_one_to_the_next() {
    let queues = LocalQueues::new(Sharing::Slices, Clock::system());
    let first = claim_turn(queues.turn(&claim(Wait::No)).await);
    let beside = queues.turn(&claim(Wait::No)).await;
    assert!(matches!(beside, Ok(Some(Turn::Beside))), "there is one turn: {beside:?}");
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let queues = Arc::clone(&queues);
        waiting.push(tokio::spawn(async move { claim_turn(queues.turn(&claim(Wait::Forever)).await) }));
        tokio::task::yield_now().await;
    }
    // The first in the queue goes away, and one who has the turn goes away.
    waiting[0].abort();
    tokio::task::yield_now().await;
    first.pass_on();
    let second = waiting.remove(1).await.unwrap();
    first.pass_on();
    drop(first);
    tokio::task::yield_now().await;
    assert!(!waiting[1].is_finished(), "an old turn is worth nothing");
    drop(second);
    drop(waiting.remove(1).await.unwrap());
    assert!(queues.is_idle());
}

#[tokio::test]
async fn one_that_does_not_wait_asks_the_server() {
    let queues = LocalQueues::new(Sharing::Slices, Clock::system());
    let claims = [claim(Wait::No), claim(Wait::No)];
    let turn = claim_turn(queues.turn(&claims[0]).await);
    assert!(matches!(queues.turn(&claims[1]).await, Ok(Some(Turn::Beside))), "another claims it");
    turn.note_held(Moment::NEVER);
    assert!(matches!(queues.turn(&claims[1]).await, Ok(Some(Turn::Beside))), "another was granted it");
    drop(turn);
    drop(claim_turn(queues.turn(&claims[1]).await));
    assert!(queues.is_idle());
}

#[tokio::test]
async fn ten_thousand_who_have_gone_are_passed_over() {
    let queues = LocalQueues::new(Sharing::Slices, Clock::system());
    let first = claim_turn(queues.turn(&claim(Wait::No)).await);
    {
        let mut names = queues.names();
        for number in 100..10_100 {
            let gone = claim(Wait::Forever);
            gone.abandon();
            names.slots.values_mut().next().unwrap().enter(number, &gone);
        }
    }
    drop(first);
    assert!(queues.is_idle());
}

#[tokio::test]
async fn a_waiter_whose_wait_ends_leaves_the_queue() {
    let queues = LocalQueues::new(Sharing::Slices, Clock::system());
    let first = claim_turn(queues.turn(&claim(Wait::No)).await);
    let soon = crate::Moment::now().after(Duration::from_millis(5));
    assert!(matches!(queues.turn(&claim(Wait::Until(soon))).await, Ok(None)));
    assert!(queues.names().slots.values().all(|slot| !slot.is_waited_for()));
    drop(first);
}

/// A waiter that was polled once, and waits.
fn waiting<'a>(
    queues: &'a Arc<LocalQueues>,
    claim: &'a Claim,
) -> std::pin::Pin<Box<impl Future<Output = Result<Option<Turn>>> + 'a>> {
    let mut future = Box::pin(queues.turn(claim));
    assert!(future.as_mut().now_or_never().is_none());
    future
}

#[tokio::test]
async fn a_turn_that_is_not_picked_up_goes_to_the_next() {
    let queues = LocalQueues::new(Sharing::Slices, Clock::system());
    let first = claim_turn(queues.turn(&claim(Wait::No)).await);
    let claims = [claim(Wait::Forever), claim(Wait::Forever), claim(Wait::Forever)];
    let asleep = waiting(&queues, &claims[0]);
    let awake = waiting(&queues, &claims[1]);
    let last = waiting(&queues, &claims[2]);
    drop(first);
    let second = claim_turn(awake.await);
    // One that is polled again is before those that came later.
    let mut asleep = asleep;
    assert!(asleep.as_mut().now_or_never().is_none(), "another has the turn");
    drop(second);
    let third = claim_turn(asleep.await);
    drop(third);
    drop(claim_turn(last.await));
    assert!(queues.is_idle());
}

#[tokio::test]
async fn a_turn_that_is_free_is_watched() {
    // It stands still: the keeper takes nothing away by itself.
    let clock = TestClock::new().clock();
    let queues = LocalQueues::new(Sharing::Slices, clock.clone());
    let claims = [Wait::No, Wait::Forever, Wait::Forever].map(|wait| claim(wait).with_clock(clock.clone()));
    let first = claim_turn(queues.turn(&claims[0]).await);
    let asleep = waiting(&queues, &claims[1]);
    let mut awake = waiting(&queues, &claims[2]);
    drop(first);
    assert!(awake.as_mut().now_or_never().is_none(), "the first one was woken");
    queues.look_at_all(clock.now().after(PICKED_UP), &mut 0);
    let turn = awake.as_mut().now_or_never().expect("it was woken, too");
    drop((asleep, claim_turn(turn)));
    assert!(queues.is_idle());
}

#[tokio::test]
async fn only_queues_in_which_somebody_waits_are_looked_at() {
    let queues = LocalQueues::new(Sharing::Slices, Clock::system());
    let mut held = Vec::new();
    for number in 0..3 {
        let name = LockName::new(number.to_string()).unwrap();
        let one = Claim::new(name, Mode::Exclusive, Duration::from_secs(10), Wait::No, "test".into());
        held.push(claim_turn(queues.turn(&one).await));
    }
    let claims = [claim(Wait::No), claim(Wait::Forever)];
    let first = claim_turn(queues.turn(&claims[0]).await);
    let next = waiting(&queues, &claims[1]);
    assert_eq!(queues.names().watched.len(), 1, "of four queues");
    drop(first);
    drop(claim_turn(next.await));
    assert!(queues.look_at_all(Moment::now(), &mut 0).is_none(), "nobody waits");
    assert!(queues.names().watched.is_empty());
    drop(held);
    assert!(queues.is_idle());
}

#[tokio::test]
async fn a_claim_that_nobody_drives_loses_its_turn() {
    let queues = LocalQueues::new(Sharing::Slices, Clock::system());
    let claims = [claim(Wait::No), claim(Wait::Forever)];
    let turn = claim_turn(queues.turn(&claims[0]).await);
    let pulse = Arc::clone(turn.pulse());
    let mut claiming = Box::pin(pulse.over(std::future::pending::<()>()));
    assert!(claiming.as_mut().now_or_never().is_none());
    let next = waiting(&queues, &claims[1]);
    drop(claim_turn(next.await));
    drop(turn);
    assert!(queues.is_idle());
}

#[tokio::test]
async fn a_claim_that_is_driven_keeps_its_turn() {
    let queues = LocalQueues::new(Sharing::Slices, Clock::system());
    let claims = [claim(Wait::No), claim(Wait::Forever)];
    let turn = claim_turn(queues.turn(&claims[0]).await);
    let pulse = Arc::clone(turn.pulse());
    let claiming = tokio::spawn(async move { pulse.over(std::future::pending::<()>()).await });
    let mut next = waiting(&queues, &claims[1]);
    // Longer than two looks at a claim that is silent.
    let in_time = tokio::time::timeout(Duration::from_millis(3500), next.as_mut()).await;
    assert!(in_time.is_err(), "the turn was taken away");
    // And a guard need not be polled.
    turn.note_held(crate::Moment::NEVER);
    claiming.abort();
    assert!(tokio::time::timeout(Duration::from_millis(3500), next.as_mut()).await.is_err());
    drop(turn);
    drop(claim_turn(next.await));
}

/// As at the end of a queue whose last task is on a thread that is busy for some milliseconds.
#[tokio::test]
async fn who_takes_its_turn_late_begins_then() {
    let test = TestClock::new();
    let clock = test.clock();
    let queues = LocalQueues::new(Sharing::Slices, clock.clone());
    let claims = [Wait::No, Wait::Forever].map(|wait| claim(wait).with_clock(clock.clone()));
    let first = claim_turn(queues.turn(&claims[0]).await);
    let mut asleep = waiting(&queues, &claims[1]);
    drop(first);
    test.advance(Duration::from_secs(60));
    // The keeper looks as well.
    queues.look_at_all(clock.now(), &mut 0);
    let turn = claim_turn(asleep.as_mut().now_or_never().expect("nobody else waits"));
    assert!(claims[1].began() == clock.now() && !claims[1].has_answer());
    drop(turn);
}

#[tokio::test]
async fn a_task_that_runs_takes_the_turn_on_its_way_to_a_later_one() {
    // It stands still: the keeper takes nothing away by itself.
    let clock = TestClock::new().clock();
    let queues = LocalQueues::new(Sharing::Slices, clock.clone());
    let claims = [Wait::No, Wait::Forever, Wait::Forever, Wait::Forever];
    let claims = claims.map(|wait| claim(wait).with_clock(clock.clone()));
    let first = claim_turn(queues.turn(&claims[0]).await);
    let mut earlier = waiting(&queues, &claims[1]);
    let mut later = waiting(&queues, &claims[2]);
    drop(first);
    queues.look_at_all(clock.now().after(PICKED_UP), &mut 0);
    // One that comes now is behind that one.
    let last = waiting(&queues, &claims[3]);
    let turn = claim_turn(earlier.as_mut().now_or_never().expect("the later one does not run yet"));
    assert!(later.as_mut().now_or_never().is_none(), "there is one turn");
    drop(turn);
    drop(claim_turn(later.await));
    drop(claim_turn(last.await));
    assert!(queues.is_idle());
}

#[tokio::test]
async fn a_request_without_a_caller_takes_no_turn_on_its_way() {
    let clock = TestClock::new().clock();
    let queues = LocalQueues::new(Sharing::Slices, clock.clone());
    let claims = [Wait::No, Wait::Forever, Wait::Forever].map(|wait| claim(wait).with_clock(clock.clone()));
    let first = claim_turn(queues.turn(&claims[0]).await);
    let mut dropped = waiting(&queues, &claims[1]);
    let mut later = waiting(&queues, &claims[2]);
    drop(first);
    queues.look_at_all(clock.now().after(PICKED_UP), &mut 0);
    claims[1].abandon();
    assert!(matches!(dropped.as_mut().now_or_never(), Some(Ok(None))), "nobody wants it");
    drop(claim_turn(later.as_mut().now_or_never().expect("its turn is there")));
    assert!(queues.is_idle());
}

#[tokio::test]
async fn a_lock_on_its_way_is_not_for_a_task_that_wants_another_lease() {
    let clock = TestClock::new().clock();
    let queues = LocalQueues::new(Sharing::Slices, clock.clone());
    let held = claim(Wait::No).with_clock(clock.clone());
    let longer = claim(Wait::Forever).with_lock_delay(Duration::from_secs(1)).with_clock(clock.clone());
    let claims = [Wait::Forever; 2].map(|wait| claim(wait).with_clock(clock.clone()));
    let first = claim_turn(queues.turn(&held).await);
    let mut other = waiting(&queues, &longer);
    let second = waiting(&queues, &claims[0]);
    let mut third = waiting(&queues, &claims[1]);
    drop(first);
    queues.look_at_all(clock.now().after(PICKED_UP), &mut 0);
    let turn = claim_turn(second.await);
    let grant = Grant::new(&held, FencingToken::new(1), clock.now());
    let offered = HandedLock { stub: None, grant, times: 1, until: Moment::NEVER };
    assert!(turn.offer(offered).is_none(), "one waits");
    assert!(other.as_mut().now_or_never().is_none(), "it wants a longer lease");
    let handed = third.as_mut().now_or_never();
    assert!(matches!(handed, Some(Ok(Some(Turn::Handed(..))))), "{handed:?}");
    drop(handed);
    held.pass_on();
    drop(claim_turn(other.await));
    assert!(queues.is_idle());
}

#[tokio::test]
async fn a_place_is_kept_while_the_first_that_waits_can_use_it() {
    let queues = LocalQueues::new(Sharing::Slices, Clock::system());
    let queued = claim(Wait::Forever);
    let alike = [claim(Wait::Forever), claim(Wait::Forever)];
    let longer = claim(Wait::Forever).with_lock_delay(Duration::from_secs(1));
    let turn = claim_turn(queues.turn(&queued).await);
    turn.begin(&queued, false);
    queued.note_waiting();
    let first = waiting(&queues, &alike[0]);
    let second = waiting(&queues, &longer);
    let third = waiting(&queues, &alike[1]);
    assert!(queued.keeps_place(), "it is for the first");
    let mut rung = Box::pin(queued.rung());
    assert!(rung.as_mut().now_or_never().is_none());
    drop(first);
    assert!(!queued.keeps_place(), "the second wants another lease");
    assert!(rung.as_mut().now_or_never().is_some(), "a request without a caller would not learn of it");
    drop(second);
    assert!(queued.keeps_place(), "the third is the first now");
    drop(third);
    assert!(!queued.keeps_place(), "nobody waits");
}

/// As in a runtime with so many ready tasks that each of them is polled ten milliseconds after it was woken.
#[tokio::test]
async fn tasks_that_are_polled_late_get_the_turn_all_the_same() {
    const TASKS: usize = 40;
    let test = TestClock::new();
    let clock = test.clock();
    let queues = LocalQueues::new(Sharing::Slices, clock.clone());
    let held = claim(Wait::No).with_clock(clock.clone());
    let claims: Vec<_> = (0..TASKS).map(|_| claim(Wait::Forever).with_clock(clock.clone())).collect();
    let first = claim_turn(queues.turn(&held).await);
    let woken: Arc<Mutex<VecDeque<(Moment, usize)>>> = Arc::default();
    let mut tasks = Vec::new();
    for (number, claim) in claims.iter().enumerate() {
        let (woken, clock) = (Arc::clone(&woken), clock.clone());
        let waker = crate::system::waker(move || lock(&woken).push_back((clock.now(), number)));
        let mut task = Box::pin(queues.turn(claim));
        assert!(task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        tasks.push((task, waker));
    }
    let due = || {
        let mut woken = lock(&woken);
        let is_due = |(at, _): &(Moment, usize)| clock.has_passed(at.after(Duration::from_millis(10)));
        if woken.front().is_some_and(is_due) { woken.pop_front() } else { None }
    };
    drop(first);
    for _ in 0..1000 {
        test.advance(Duration::from_millis(1));
        queues.look_at_all(clock.now(), &mut 0);
        while let Some((_, number)) = due() {
            let (task, waker) = &mut tasks[number];
            if let Poll::Ready(turn) = task.as_mut().poll(&mut Context::from_waker(waker)) {
                drop(claim_turn(turn));
                return;
            }
        }
    }
    panic!("the lock is free, and nobody gets the turn");
}

#[tokio::test]
async fn tasks_that_are_not_polled_are_passed_over_together() {
    let clock = TestClock::new().clock();
    let queues = LocalQueues::new(Sharing::Slices, clock.clone());
    let held = claim(Wait::No).with_clock(clock.clone());
    let claims: Vec<_> = (0..65).map(|_| claim(Wait::Forever).with_clock(clock.clone())).collect();
    let first = claim_turn(queues.turn(&held).await);
    let mut tasks: Vec<_> = claims.iter().map(|claim| waiting(&queues, claim)).collect();
    let mut runs = tasks.pop().expect("65 tasks");
    drop(first);
    let mut looks = 0;
    let turn = loop {
        if let Some(turn) = runs.as_mut().now_or_never() {
            break claim_turn(turn);
        }
        assert!(looks < 10, "each of 64 tasks delays the last one");
        looks += 1;
        queues.look_at_all(clock.now().after(PICKED_UP * looks), &mut 0);
    };
    // They keep their places.
    for task in [40, 3] {
        assert!(tasks[task].as_mut().now_or_never().is_none(), "another one has the turn");
    }
    drop(turn);
    for task in [3, 40] {
        drop(claim_turn(tasks[task].as_mut().now_or_never().expect("its turn has come")));
    }
    drop(tasks);
    assert!(queues.is_idle());
}

#[tokio::test]
async fn one_that_is_passed_over_takes_the_turn_if_it_runs_first() {
    let clock = TestClock::new().clock();
    let queues = LocalQueues::new(Sharing::Slices, clock.clone());
    let held = claim(Wait::No).with_clock(clock.clone());
    let claims = [Wait::Forever; 4].map(|wait| claim(wait).with_clock(clock.clone()));
    let first = claim_turn(queues.turn(&held).await);
    let [asleep, also_asleep, mut passed_over, mut last] =
        claims.each_ref().map(|claim| waiting(&queues, claim));
    let woken = Arc::new(AtomicBool::new(false));
    let notes = Arc::clone(&woken);
    let waker = crate::system::waker(move || notes.store(true, Ordering::SeqCst));
    assert!(passed_over.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(first);
    for misses in 1..=2 {
        assert!(!woken.load(Ordering::SeqCst), "woken after {misses} looks");
        queues.look_at_all(clock.now().after(PICKED_UP * misses), &mut 0);
    }
    assert!(woken.load(Ordering::SeqCst), "it would wait for ever");
    let turn = claim_turn(passed_over.as_mut().now_or_never().expect("the last one does not run yet"));
    assert!(last.as_mut().now_or_never().is_none(), "there is one turn");
    drop(turn);
    drop(claim_turn(last.await));
    drop((asleep, also_asleep));
    assert!(queues.is_idle());
}
