//! Callers that drive their senders themselves.

use std::task::Poll;

use super::*;

/// A caller that drives its call itself needs no task for it.
#[tokio::test]
async fn a_call_without_others_is_driven_by_its_caller() {
    let go = Arc::new(Semaphore::new(1));
    let batcher = batcher(Server { go: Some(Arc::clone(&go)), ..Server::default() }, Bounds::default());
    let mut call = pin!(batcher.call(0, 2, LONG));
    let Poll::Ready(reply) = poll_once(&mut call).await else { panic!("it needs a task") };
    assert_eq!(answer(reply), 20);
    let mut left = Box::pin(batcher.call(0, 4, LONG));
    assert!(poll_once(&mut left).await.is_pending());
    drop(left);
    go.add_permits(1);
    let_others_run().await;
    assert_eq!(go.available_permits(), 0, "a task brings it to its end");
}

/// A caller that is polled for another reason, as a release is, still needs no task.
#[tokio::test]
async fn a_call_that_is_polled_without_being_woken_is_driven_by_its_caller() {
    let go = Arc::new(Semaphore::new(0));
    let batcher = batcher(Server { go: Some(Arc::clone(&go)), ..Server::default() }, Bounds::default());
    let mut call = pin!(batcher.call(0, 2, LONG));
    for _ in 0..3 {
        assert!(poll_once(&mut call).await.is_pending());
    }
    go.add_permits(1);
    let_others_run().await;
    assert_eq!(go.available_permits(), 0, "the permit is given to the call");
    let Poll::Ready(reply) = poll_once(&mut call).await else { panic!("it has a task") };
    assert_eq!(answer(reply), 20);
}

/// What follows the first answer is done when it is due, and not when the caller is polled again.
#[tokio::test]
async fn a_sender_that_has_more_to_do_becomes_a_task() {
    let batcher = batcher(Server { failures: AtomicUsize::new(1), ..Server::default() }, Bounds::default());
    let mut idle = pin!(batcher.call(0, 2, LONG));
    for _ in 0..2 {
        assert!(poll_once(&mut idle).await.is_pending(), "its answer was lost");
        let_others_run().await;
    }
    let again = async {
        while calls(&batcher).len() < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(LONG, again).await.expect("it is sent again");
}

/// The same server with answers in several parts. Each part comes with a permit.
struct InParts(Server);

impl InParts {
    /// The answer to the first call has this number of parts.
    fn batcher(parts: usize) -> (Arc<Semaphore>, Batcher<Self>) {
        let go = Arc::new(Semaphore::new(0));
        let more_parts = AtomicUsize::new(parts - 1);
        let server = Server { go: Some(Arc::clone(&go)), more_parts, ..Server::default() };
        (go, Batcher::new(Self(server), Bounds::default()))
    }
}

impl Service for InParts {
    type Key = u8;
    type Request = u32;
    type Answer = u32;

    const PARTS: u8 = 3;

    fn shares(&self, first: &u32, other: &u32) -> bool {
        self.0.shares(first, other)
    }

    fn is_light(&self, key: &u8, request: &u32) -> bool {
        self.0.is_light(key, request)
    }

    async fn call(&self, key: &u8, batch: &[&u32], attempt: Attempt) -> Vec<CallOutcome<u32>> {
        self.0.call(key, batch, attempt).await
    }
}

/// No task runs in between: the test never waits.
#[tokio::test]
async fn an_answer_in_parts_is_taken_by_its_caller() {
    let (go, batcher) = InParts::batcher(InParts::PARTS.into());
    let mut call = pin!(batcher.call(0, 2, LONG));
    for _ in 0..InParts::PARTS {
        assert!(poll_once(&mut call).await.is_pending());
        go.add_permits(1);
    }
    let Poll::Ready(reply) = poll_once(&mut call).await else { panic!("a task has it") };
    assert_eq!(answer(reply), 20);
}

#[tokio::test]
async fn an_answer_in_more_parts_than_expected_is_taken_by_a_task() {
    let (go, batcher) = InParts::batcher(usize::from(InParts::PARTS) + 1);
    let mut idle = pin!(batcher.call(0, 2, LONG));
    // The last poll takes the last part but one.
    for _ in 0..=InParts::PARTS {
        assert!(poll_once(&mut idle).await.is_pending());
        go.add_permits(1);
    }
    assert_eq!(batcher.service().0.more_parts.load(Ordering::SeqCst), 1);
    let_others_run().await;
    assert_eq!(batcher.service().0.more_parts.load(Ordering::SeqCst), 0, "a task takes the last part");
    assert_eq!(answer(idle.await), 20);
}

#[tokio::test]
async fn a_call_whose_caller_leaves_between_two_parts_comes_to_its_end() {
    let (go, batcher) = InParts::batcher(InParts::PARTS.into());
    let mut left = Box::pin(batcher.call(0, 2, LONG));
    assert!(poll_once(&mut left).await.is_pending());
    go.add_permits(1);
    assert!(poll_once(&mut left).await.is_pending(), "two parts are still to come");
    drop(left);
    go.add_permits(2);
    let_others_run().await;
    assert_eq!(batcher.service().0.more_parts.load(Ordering::SeqCst), 0, "a task brings it to its end");
    // So the way is clear for the next one.
    go.add_permits(1);
    assert_eq!(answer(batcher.call(0, 4, LONG).await), 40);
}

/// Its timers would not run there.
#[test]
fn a_call_that_is_polled_elsewhere_has_a_task_at_home() {
    let home = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let go = Arc::new(Semaphore::new(0));
    let server = Server { go: Some(Arc::clone(&go)), ..Server::default() };
    let in_home = home.enter();
    let mut call = Box::pin(batcher(server, Bounds::default()).call(0, 2, LONG));
    drop(in_home);
    home.block_on(async { assert!(poll_once(&mut call).await.is_pending()) });
    let elsewhere = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    elsewhere.block_on(async {
        assert!(poll_once(&mut call).await.is_pending());
        go.add_permits(1);
        assert_eq!(answer(call.await), 20);
    });
}
