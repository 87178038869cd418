//! When a request is sent, and which requests share a call.

use std::sync::atomic::AtomicBool;

use super::*;
use crate::TestClock;

/// A batcher whose calls wait for permits.
fn gated(bounds: Bounds) -> (Arc<Semaphore>, Batcher<Server>) {
    let go = Arc::new(Semaphore::new(0));
    let server = Server { go: Some(Arc::clone(&go)), ..Server::default() };
    (go, batcher(server, bounds))
}

#[tokio::test]
async fn a_caller_that_waits_is_woken_when_a_call_ends() {
    let (go, batcher) = gated(Bounds::new().batch(1));
    let asked: Vec<_> = [2, 4].map(|one| tokio::spawn(batcher.call(0, one, LONG))).into();
    let_others_run().await;
    assert_eq!(calls(&batcher), [[2]]);
    go.add_permits(1);
    let_others_run().await;
    assert_eq!(calls(&batcher), [[2], [4]]);
    go.add_permits(1);
    for task in asked {
        answer(task.await.unwrap());
    }
}

#[tokio::test]
async fn callers_that_wait_begin_as_many_calls_as_have_ended() {
    let (go, batcher) = gated(Bounds::new().under_way(2).batch(1));
    let asked: Vec<_> = [2, 4, 6, 8].map(|one| tokio::spawn(batcher.call(0, one, LONG))).into();
    let_others_run().await;
    assert_eq!(calls(&batcher), [[2], [4]]);
    go.add_permits(2);
    let_others_run().await;
    assert_eq!(calls(&batcher), [[2], [4], [6], [8]]);
    go.add_permits(2);
    for task in asked {
        answer(task.await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn callers_that_are_ready_share_the_call_of_a_second_sender() {
    let (go, batcher) = gated(Bounds::new().under_way(2));
    let others = batcher.clone();
    // On the one thread of the runtime: it runs a task that was just spawned before those that are ready.
    let begun = tokio::spawn(async move {
        [2, 4, 6, 8].map(|one| {
            let batcher = others.clone();
            tokio::spawn(async move { answer(batcher.call(0, one, LONG).await) })
        })
    });
    let asked = begun.await.unwrap();
    while calls(&batcher).len() < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(calls(&batcher).iter().map(Vec::len).collect::<Vec<_>>(), [1, 3]);
    go.add_permits(2);
    for task in asked {
        task.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_one_step_share_a_call_beside_a_sender() {
    let (go, batcher) = gated(Bounds::default());
    let first = tokio::spawn(batcher.call(0, 2, LONG));
    while calls(&batcher).is_empty() {
        tokio::task::yield_now().await;
    }
    let requests = [4, 6].into_iter().inspect(|request| {
        if *request == 6 {
            // The sender looks for more requests now.
            go.add_permits(8);
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    let asked = batcher.call_each(requests.map(|request| (0, request)), LONG);
    for call in asked {
        answer(call.await);
    }
    answer(first.await.unwrap());
    assert_eq!(calls(&batcher), [vec![2], vec![4, 6]]);
}

#[tokio::test]
async fn callers_that_ask_again_at_once_share_a_call() {
    let batcher = batcher(Server::default(), Bounds::default());
    let first = [2, 4].map(|one| (one, batcher.call(0, one, LONG)));
    let tasks = first.map(|(one, call)| {
        let batcher = batcher.clone();
        tokio::spawn(async move {
            answer(call.await);
            answer(batcher.call(0, one + 10, LONG).await)
        })
    });
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(calls(&batcher), [[2, 4], [12, 14]]);
}

#[tokio::test]
async fn a_caller_that_is_alone_never_waits_for_others() {
    let batcher = batcher(Server::default(), Bounds::default());
    answer(batcher.call(0, 2, LONG).await);
    let mut next = pin!(batcher.call(0, 4, LONG));
    assert!(poll_once(&mut next).await.is_pending());
    let_others_run().await;
    assert_eq!(calls(&batcher), [[2], [4]], "it is sent when it is first polled");
    answer(next.await);
}

#[tokio::test]
async fn there_is_room_again_for_what_was_withdrawn_and_for_what_was_sent() {
    let batcher = batcher(Server::default(), Bounds::new().waiting(2));
    let overloaded = async || batcher.call(0, 6, LONG).await.unwrap_err().kind() == ErrorKind::Overloaded;
    for round in 0..5 {
        let (sent, withdrawn) = (batcher.call(0, 2, LONG), batcher.call(0, 4, LONG));
        assert!(overloaded().await, "two wait in round {round}");
        drop(withdrawn);
        let in_its_place = batcher.call(0, 8, LONG);
        assert!(overloaded().await, "two wait again in round {round}");
        assert_eq!([answer(sent.await), answer(in_its_place.await)], [20, 80]);
    }
}

#[tokio::test]
async fn not_all_keys_that_were_ever_used_are_kept() {
    let batcher = batcher(Server::default(), Bounds::default());
    for key in 0..100 {
        assert_eq!(answer(batcher.call(key, 2, LONG).await), 20);
    }
    assert_eq!(batcher.keys(), 64);
}

/// A server that does not answer, and notes whether one of its calls was dropped.
#[derive(Clone, Default)]
struct Silent {
    dropped: Arc<AtomicBool>,
}

struct NotesItsDrop(Arc<AtomicBool>);

impl Drop for NotesItsDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Service for Silent {
    type Key = ();
    type Request = ();
    type Answer = ();

    fn shares(&self, (): &(), (): &()) -> bool {
        true
    }

    async fn call(&self, (): &(), _: &[&()], _: Attempt) -> Vec<CallOutcome<()>> {
        let _noted = NotesItsDrop(Arc::clone(&self.dropped));
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_call_that_nobody_waits_for_ends_at_the_deadline() {
    let silent = Silent::default();
    let batcher = Batcher::new(silent.clone(), Bounds::default());
    let error = batcher.call((), (), Duration::from_millis(50)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    let_others_run().await;
    assert!(silent.dropped.load(Ordering::SeqCst));
}

#[tokio::test]
async fn a_limit_is_by_the_clock_of_the_batcher() {
    let test = TestClock::new();
    let batcher = Batcher::with_clock(Silent::default(), Bounds::default(), test.clock());
    let hour = Duration::from_secs(3_600);
    let mut call = pin!(batcher.call((), (), hour));
    assert!(poll_once(&mut call).await.is_pending());
    test.advance(hour);
    assert_eq!(call.await.unwrap_err().kind(), ErrorKind::Unreachable);
}
