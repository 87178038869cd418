use super::*;
use crate::Mode;

fn claim(wait: Wait) -> Claim {
    let name = LockName::new("a").unwrap();
    Claim::new(name, Mode::Exclusive, Duration::from_secs(10), wait, "test".into())
}

fn right(turn: Option<Turn>) -> Right {
    match turn {
        Some(Turn::Claim(right)) => right,
        other => panic!("not the right to claim: {other:?}"),
    }
}

#[tokio::test]
async fn the_right_goes_from_one_to_the_next() {
    let queues = LocalQueues::new(None);
    let first = right(queues.turn(&claim(Wait::No)).await);
    assert!(queues.turn(&claim(Wait::No)).await.is_none(), "there is one right");
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let queues = Arc::clone(&queues);
        waiting.push(tokio::spawn(async move { right(queues.turn(&claim(Wait::Forever)).await) }));
        tokio::task::yield_now().await;
    }
    // The first in the queue goes away, and one who has the right goes away.
    waiting[0].abort();
    tokio::task::yield_now().await;
    first.leave();
    let second = waiting.remove(1).await.unwrap();
    first.leave();
    drop(first);
    tokio::task::yield_now().await;
    assert!(!waiting[1].is_finished(), "an old right is worth nothing");
    drop(second);
    drop(waiting.remove(1).await.unwrap());
    assert!(lock(&queues.names).queues.is_empty());
}

#[tokio::test]
async fn ten_thousand_who_have_gone_are_passed_over() {
    let queues = LocalQueues::new(None);
    let first = right(queues.turn(&claim(Wait::No)).await);
    {
        // Receivers that are dropped behind the back of their places.
        let mut names = lock(&queues.names);
        for number in 100..10_100 {
            let (turn, _) = oneshot::channel();
            let waiter = Waiter { ttl: Duration::ZERO, rest: Duration::ZERO, turn };
            names.queues.values_mut().next().unwrap().waiters.insert(number, waiter);
        }
    }
    drop(first);
    assert!(lock(&queues.names).queues.is_empty());
}

#[tokio::test]
async fn a_waiter_that_gives_up_leaves_no_place() {
    let queues = LocalQueues::new(None);
    let first = right(queues.turn(&claim(Wait::No)).await);
    let soon = crate::Moment::now().after(Duration::from_millis(5));
    assert!(queues.turn(&claim(Wait::Until(soon))).await.is_none());
    assert!(lock(&queues.names).queues.values().all(|queue| queue.waiters.is_empty()));
    drop(first);
}
