use super::*;
use crate::{LeaseState, Loss};

const TTL: Duration = Duration::from_secs(30);

/// Lets what is due happen: the keeper has a thread of its own.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{what}: not within ten seconds");
}

#[tokio::test]
async fn operations_fail_as_often_as_asked() {
    let server = TestServer::new();
    let locks = server.locks().unwrap();
    server.fail_times(Operation::Acquire, ErrorKind::Unreachable, 2);
    for _ in 0..2 {
        let error = locks.lock("a").try_now().await.unwrap_err();
        assert_eq!((error.kind(), error.backend()), (ErrorKind::Unreachable, Some("test")));
    }
    let guard = locks.lock("a").try_now().await.unwrap().unwrap();
    server.fail(Operation::Inspect, ErrorKind::Refused);
    for _ in 0..3 {
        assert_eq!(locks.inspect("a").await.unwrap_err().kind(), ErrorKind::Refused);
    }
    server.heal();
    assert!(locks.inspect("a").await.unwrap().is_held());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_close_needs_nobody_that_moves_the_clock() {
    let server = TestServer::new();
    let locks = server.locks().unwrap();
    server.fail_times(Operation::Acquire, ErrorKind::Unreachable, 1);
    // The server says several times that this claim holds nothing.
    locks.lock("a").await.unwrap_err();
    let guard = locks.lock("a").await.unwrap();
    server.fail_times(Operation::Release, ErrorKind::Unreachable, 3);
    guard.release().await.unwrap_err();
    tokio::time::timeout(Duration::from_secs(60), locks.close()).await.expect("close has ended").unwrap();

    let locks = server.locks().unwrap();
    let guard = locks.lock("a").await.unwrap();
    server.delay(Operation::Release, Duration::MAX);
    drop(guard);
    let closing = locks.close_within(Duration::from_millis(200));
    let closed = tokio::time::timeout(Duration::from_secs(60), closing).await.expect("close has ended");
    assert_eq!(closed.unwrap_err().kind(), ErrorKind::UnknownOutcome);
}

#[tokio::test]
async fn a_renewal_that_fails_is_a_doubt_and_then_a_loss() {
    let server = TestServer::new();
    let locks = server.locks().unwrap();
    let guard = locks.lock("a").ttl(TTL).await.unwrap();
    server.fail(Operation::Renew, ErrorKind::Unreachable);
    until("the guard is in doubt", || {
        // In steps, so that the keeper does not sleep over its renewals.
        server.advance(Duration::from_millis(100));
        guard.lease_state() == LeaseState::Suspect
    })
    .await;
    assert!(guard.is_held(), "the lease has not ended");
    assert!(guard.renewal_failure().is_some_and(|why| why.contains("unreachable")), "{guard:?}");
    server.advance(TTL);
    assert_eq!(guard.lost().await, Loss::Expired);
    assert!(guard.renewal_failure().is_some_and(|why| why.contains("unreachable")), "{guard:?}");
}

#[tokio::test]
async fn a_failure_is_forgotten_with_the_next_renewal_and_told_with_the_loss() {
    let server = TestServer::new();
    let locks = server.locks().unwrap();
    let guard = locks.lock("a").ttl(TTL).await.unwrap();
    server.fail_times(Operation::Renew, ErrorKind::Unreachable, 1);
    let renewals = locks.stats().renewals;
    until("a renewal after the failure", || {
        server.advance(Duration::from_millis(100));
        locks.stats().renewals > renewals
    })
    .await;
    assert_eq!(guard.renewal_failure(), None);
    let (taken, running) = tokio::sync::oneshot::channel();
    let work = tokio::spawn(locks.lock("b").ttl(TTL).run(|_| async move {
        taken.send(()).unwrap();
        std::future::pending::<()>().await;
    }));
    running.await.unwrap();
    server.fail(Operation::Renew, ErrorKind::Unreachable);
    until("the loss", || {
        server.advance(Duration::from_millis(100));
        work.is_finished()
    })
    .await;
    let error = work.await.unwrap().unwrap_err();
    assert!(format!("{:#}", error.error()).contains("the last renewal failed: "), "{error:?}");
}

#[tokio::test]
async fn a_renewal_may_say_lost() {
    let server = TestServer::new();
    let guard = server.locks().unwrap().lock("a").ttl(TTL).await.unwrap();
    server.fail(Operation::Renew, ErrorKind::Lost);
    until("the guard is lost", || {
        server.advance(Duration::from_millis(100));
        !guard.is_held()
    })
    .await;
    assert_eq!(guard.lost().await, Loss::Taken);
}

#[tokio::test]
async fn a_lock_that_is_taken_away_is_told_at_once() {
    let server = TestServer::new();
    let locks = server.locks().unwrap();
    let [taken, kept] = [locks.lock("a").await.unwrap(), locks.lock("b").await.unwrap()];
    assert_eq!(server.lose("a").await.unwrap(), 1);
    assert_eq!(taken.lost().await, Loss::Taken);
    assert!(kept.is_held());
    // By the operation of an operator, too.
    assert_eq!(locks.force_release("b").await.unwrap(), 1);
    assert_eq!(kept.lost().await, Loss::Taken);
}

#[tokio::test]
async fn a_slow_answer_takes_its_time_by_the_clock_of_the_test() {
    let server = TestServer::new();
    let locks = server.locks().unwrap();
    server.delay(Operation::Acquire, Duration::from_secs(5));
    let slow = tokio::spawn(locks.lock("a").wait(Duration::from_secs(60)).into_future());
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!slow.is_finished());
    server.advance(Duration::from_secs(5));
    slow.await.unwrap().unwrap().release().await.unwrap();
    // One that takes longer than the wait.
    server.delay(Operation::Acquire, Duration::MAX);
    let never = tokio::spawn(locks.lock("a").wait(Duration::from_secs(1)).into_future());
    until("the wait ends", || {
        server.advance(Duration::from_millis(100));
        never.is_finished()
    })
    .await;
    assert!(never.await.unwrap().unwrap_err().is_retryable());
}

#[tokio::test]
async fn a_loss_is_the_error_of_several_releases() {
    let server = TestServer::new();
    let locks = server.locks().unwrap();
    let all = locks.lock_all(["a", "b"]).await.unwrap();
    server.lose("b").await.unwrap();
    assert_eq!(all.lost().await.1, Loss::Taken);
    server.fail(Operation::Release, ErrorKind::Unreachable);
    // Both fail: the first has no answer.
    assert_eq!(all.release().await.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn a_server_that_is_down_answers_nothing() {
    let server = TestServer::new();
    let locks = server.locks().unwrap();
    let guard = locks.lock("a").ttl(TTL).await.unwrap();
    server.fail_all(ErrorKind::Unreachable);
    let errors = [
        locks.lock("b").try_now().await.unwrap_err(),
        locks.inspect("a").await.unwrap_err(),
        server.backend().names().await.unwrap_err(),
        locks.force_release("a").await.unwrap_err(),
        guard.release().await.unwrap_err(),
    ];
    assert!(errors.iter().all(|error| error.kind() == ErrorKind::Unreachable), "{errors:?}");
    server.heal();
    assert_eq!(locks.force_release("a").await.unwrap(), 1);
    assert!(server.backend().names().await.unwrap().is_empty());
}

/// The next one waits for the end of the lease, as with a real server.
#[tokio::test]
async fn the_lock_of_a_process_that_has_crashed_is_free_after_its_lease() {
    let server = TestServer::new();
    let (dead, other) = (server.locks().unwrap(), server.locks().unwrap());
    let guard = dead.lock("a").ttl(TTL).await.unwrap();
    let kept = dead.lock("b").ttl(TTL).await.unwrap();
    assert_eq!((server.crash("a").unwrap(), server.crash("nobody").unwrap()), (1, 0));
    let waits = tokio::spawn(other.lock("a").wait(TTL * 10).into_future());
    while other.inspect("a").await.unwrap().waiters == 0 {
        tokio::task::yield_now().await;
    }
    until("it is in doubt", || {
        server.advance(Duration::from_millis(100));
        guard.lease_state() == LeaseState::Suspect
    })
    .await;
    assert!(!waits.is_finished());
    let token = guard.token();
    // It says nothing to the server.
    drop(guard);
    until("the next one has it", || {
        server.advance(Duration::from_millis(100));
        waits.is_finished()
    })
    .await;
    let next = waits.await.unwrap().unwrap();
    assert!(next.token() > token && kept.is_held());
    next.release().await.unwrap();
}
