//! What is tried again, how often, and for whom.

use std::collections::VecDeque;

use super::*;

/// A server that does as a test says, and answers then.
#[derive(Default)]
struct Scripted {
    /// What the connection attempts fail with.
    connections: Mutex<VecDeque<Error>>,
    /// The outcomes of the next requests.
    outcomes: Mutex<VecDeque<CallOutcome<u32>>>,
    calls: Mutex<Vec<Vec<u32>>>,
}

impl Service for Scripted {
    type Key = ();
    type Request = u32;
    type Answer = u32;

    fn shares(&self, _: &u32, _: &u32) -> bool {
        true
    }

    async fn prepare(&self, (): &(), _: Attempt) -> Result<()> {
        lock(&self.connections).pop_front().map_or(Ok(()), Err)
    }

    async fn call(&self, (): &(), batch: &[&u32], _: Attempt) -> Vec<CallOutcome<u32>> {
        lock(&self.calls).push(batch.iter().map(|one| **one).collect());
        tokio::task::yield_now().await;
        let mut outcomes = lock(&self.outcomes);
        batch.iter().map(|one| outcomes.pop_front().unwrap_or(CallOutcome::Answered(**one * 10))).collect()
    }
}

fn unreachable() -> Error {
    Error::new(ErrorKind::Unreachable, "the connection broke")
}

fn deadlock() -> CallOutcome<u32> {
    CallOutcome::Again(Error::new(ErrorKind::Conflict, "a deadlock"))
}

fn scripted(
    connections: impl IntoIterator<Item = Error>,
    outcomes: impl IntoIterator<Item = CallOutcome<u32>>,
) -> Batcher<Scripted> {
    let connections = Mutex::new(connections.into_iter().collect());
    let outcomes = Mutex::new(outcomes.into_iter().collect());
    Batcher::new(Scripted { connections, outcomes, ..Scripted::default() }, Bounds::default())
}

fn sent(batcher: &Batcher<Scripted>) -> Vec<Vec<u32>> {
    lock(&batcher.service().calls).clone()
}

#[tokio::test]
async fn a_connection_is_tried_again_after_a_failure_that_may_pass() {
    let batcher = scripted([unreachable(), unreachable()], []);
    let reply = batcher.call((), 2, LONG).await.unwrap();
    assert_eq!(reply.into_parts(), (20, false));
    assert_eq!(sent(&batcher), [[2]]);
}

#[tokio::test]
async fn a_connection_that_is_refused_for_good_is_not_tried_again() {
    let batcher = scripted([Error::new(ErrorKind::Refused, "a wrong password")], []);
    let error = batcher.call((), 2, LONG).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(sent(&batcher).is_empty());
}

#[tokio::test]
async fn a_collision_is_tried_again() {
    let batcher = scripted([], [deadlock(), deadlock()]);
    let reply = batcher.call((), 2, LONG).await.unwrap();
    assert_eq!(reply.into_parts(), (20, false));
    assert_eq!(sent(&batcher), [[2], [2], [2]]);
}

#[tokio::test]
async fn a_collision_is_not_tried_again_for_ever() {
    let batcher = scripted([], (0..100).map(|_| deadlock()));
    let error = batcher.call((), 2, LONG).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(sent(&batcher).len(), 20);
}

#[tokio::test]
async fn a_silence_does_not_hide_what_was_said_before_it() {
    let down = Error::new(ErrorKind::Unreachable, "the cluster is down").with_source("CLUSTERDOWN");
    let silence = || CallOutcome::Unknown(Error::new(ErrorKind::Unreachable, "no answer"));
    let outcomes = (0..1000).map(|_| silence());
    let batcher = scripted([], std::iter::once(CallOutcome::Unavailable(down)).chain(outcomes));
    let error = batcher.call((), 2, Duration::from_secs(1)).await.unwrap_err();
    assert!(error.to_string().contains("the cluster is down"), "{error:#}");
    assert!(sent(&batcher).len() > 1, "{error:#}");
}

#[tokio::test]
async fn one_that_failed_beside_a_blocked_one_is_tried_again() {
    let batcher = scripted([], [CallOutcome::Blocked, CallOutcome::Unknown(unreachable())]);
    let (blocked, failed) = (batcher.call((), 2, LONG), batcher.call((), 4, LONG));
    let (blocked, failed) = tokio::join!(blocked, failed);
    assert_eq!(blocked.unwrap().into_parts(), (20, false));
    assert_eq!(failed.unwrap().into_parts(), (40, true), "its first answer was lost");
}

#[tokio::test]
async fn nothing_is_tried_again_for_a_caller_that_has_left() {
    let go = Arc::new(Semaphore::new(0));
    let server = Server { go: Some(Arc::clone(&go)), failures: AtomicUsize::new(1), ..Server::default() };
    let batcher = batcher(server, Bounds::default());
    let mut leaves = Box::pin(batcher.call(0, 2, LONG));
    let mut stays = pin!(batcher.call(0, 4, LONG));
    assert!(poll_once(&mut leaves).await.is_pending() && poll_once(&mut stays).await.is_pending());
    let_others_run().await;
    drop(leaves);
    go.add_permits(2);
    assert_eq!(answer(stays.await), 40);
    assert_eq!(calls(&batcher), [vec![2, 4], vec![4]]);
}

#[tokio::test]
async fn what_is_tried_again_does_not_wait_for_another_call_that_hangs() {
    let server = Server { failures: AtomicUsize::new(1), ..Server::default() };
    let batcher = batcher(server, Bounds::new().under_way(2));
    let hangs = tokio::spawn(batcher.call(0, HANGS, LONG));
    let_others_run().await;
    let again = tokio::time::timeout(LONG / 4, batcher.call(0, 3, LONG)).await.expect("it is tried again");
    assert_eq!(again.unwrap().into_parts(), (30, true), "its first answer was lost");
    assert_eq!(calls(&batcher), [[HANGS], [3], [3]]);
    hangs.abort();
}

/// The server closes the connection at one request, each time. Those that were sent with it are answered all
/// the same, and those that come later never travel with it.
#[tokio::test]
async fn a_request_that_closes_its_connection_fails_alone() {
    let batcher = batcher(Server::default(), Bounds::default());
    let closes = tokio::spawn(batcher.call(0, CLOSES, Duration::from_secs(2)));
    let ask = |number: u32| tokio::spawn(batcher.call(0, number * 2 + 1, LONG));
    let with_it: Vec<_> = (0..20).map(ask).collect();
    tokio::time::sleep(Duration::from_millis(1)).await;
    let later: Vec<_> = (100..120).map(ask).collect();
    for (number, task) in (0..20).zip(with_it) {
        assert_eq!(answer(task.await.unwrap()), (number * 2 + 1) * 10);
    }
    for (number, task) in (100..120).zip(later) {
        let reply = task.await.unwrap().unwrap();
        assert_eq!(reply.into_parts(), ((number * 2 + 1) * 10, false));
    }
    assert!(!closes.is_finished(), "it is tried until its caller gives up");
    let batches: Vec<_> = calls(&batcher).into_iter().filter(|batch| batch.contains(&CLOSES)).collect();
    assert!(batches.iter().flatten().all(|number| *number == CLOSES || *number < 200), "{batches:?}");
    assert!(batches[0].len() == 21 && batches.last().unwrap().len() == 1, "{batches:?}");
    assert_eq!(closes.await.unwrap().unwrap_err().kind(), ErrorKind::Unreachable);
}

/// The server refuses one request, and all that are sent with it.
#[tokio::test]
async fn a_request_that_is_refused_fails_alone() {
    let batcher = batcher(Server::default(), Bounds::default());
    let ask = |number: u32| tokio::spawn(batcher.call(0, number * 2 + 1, LONG));
    let (before, refused) =
        ((0..10).map(ask).collect::<Vec<_>>(), tokio::spawn(batcher.call(0, REFUSED, LONG)));
    let after: Vec<_> = (10..20).map(ask).collect();
    for (number, task) in (0..20).zip(before.into_iter().chain(after)) {
        assert_eq!(task.await.unwrap().unwrap().into_parts().0, (number * 2 + 1) * 10);
    }
    assert_eq!(refused.await.unwrap().unwrap_err().kind(), ErrorKind::InvalidInput);
    let sizes: Vec<_> =
        calls(&batcher).iter().filter(|batch| batch.contains(&REFUSED)).map(Vec::len).collect();
    assert_eq!((sizes[0] > 10, sizes.last()), (true, Some(&1)), "{sizes:?}");
    assert!(sizes.len() <= 6, "{sizes:?}");
}

#[tokio::test]
async fn two_that_are_refused_are_both_told() {
    let refused = || CallOutcome::Refused(Error::new(ErrorKind::InvalidInput, "it cannot be encoded"));
    let batcher = scripted([], (0..4).map(|_| refused()));
    let (one, two) = tokio::join!(batcher.call((), 2, LONG), batcher.call((), 4, LONG));
    for error in [one.unwrap_err(), two.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
    assert_eq!(sent(&batcher), [vec![2, 4], vec![2], vec![4]]);
}
