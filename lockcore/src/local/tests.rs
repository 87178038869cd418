use std::time::Duration;

use super::*;
use crate::Mode;
use crate::lease::PassOn;

fn claim(wait: Wait) -> Claim {
    let name = LockName::new("a").unwrap();
    Claim::new(name, Mode::Exclusive, Duration::from_secs(10), wait, "test".into())
}

/// What is handed on does not matter here.
type Queues = LocalQueues<()>;

fn claim_turn(turn: Option<Turn<()>>) -> ClaimTurn<()> {
    match turn {
        Some(Turn::Claim(turn)) => turn,
        other => panic!("not the turn to claim: {other:?}"),
    }
}

#[tokio::test]
async fn the_turn_goes_from_one_to_the_next() {
    let queues = Queues::new(None);
    let first = claim_turn(queues.turn(&claim(Wait::No)).await);
    assert!(queues.turn(&claim(Wait::No)).await.is_none(), "there is one turn");
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
    assert!(lock(&queues.names).queues.is_empty());
}

#[tokio::test]
async fn ten_thousand_who_have_gone_are_passed_over() {
    let queues = Queues::new(None);
    let first = claim_turn(queues.turn(&claim(Wait::No)).await);
    {
        // Receivers that are dropped behind the back of their places.
        let mut names = lock(&queues.names);
        for number in 100..10_100 {
            let (turn, _) = oneshot::channel();
            let waiter = Waiter { claim: claim(Wait::Forever), gets: turn };
            names.queues.values_mut().next().unwrap().waiters.insert(number, waiter);
        }
    }
    drop(first);
    assert!(lock(&queues.names).queues.is_empty());
}

#[tokio::test]
async fn a_waiter_whose_wait_ends_leaves_the_queue() {
    let queues = Queues::new(None);
    let first = claim_turn(queues.turn(&claim(Wait::No)).await);
    let soon = crate::Moment::now().after(Duration::from_millis(5));
    assert!(queues.turn(&claim(Wait::Until(soon))).await.is_none());
    assert!(lock(&queues.names).queues.values().all(|queue| queue.waiters.is_empty()));
    drop(first);
}
