//! Jobs that run once for a key, on the test server: each rule.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lockwell_core::testing::TestServer;
use lockwell_core::{
    Error, ErrorKind, JobState, Keyed, LockRequest, Locks, Once, Operation, RecordKind, RecordWrite, Result,
};

const DAY: &str = "2026-11-29";

#[derive(Debug, PartialEq)]
enum Failed {
    Work,
    Lock(ErrorKind),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Lock(error.kind())
    }
}

type Ends = Result<Once<u32>, Failed>;

/// Runs the job, which says with which attempt it ran.
async fn run(request: LockRequest<Keyed>) -> Ends {
    request.try_run(async |run| Ok(run.attempt())).await
}

async fn fail(request: LockRequest<Keyed>) -> Ends {
    request.try_run(async |_| Err(Failed::Work)).await
}

/// A host that comes and goes without a word in the middle of the job.
async fn die(request: LockRequest<Keyed>) {
    let (say, said) = tokio::sync::oneshot::channel();
    let work = async |_| {
        say.send(()).unwrap();
        std::future::pending::<Result<(), Error>>().await
    };
    tokio::select! {
        end = request.try_run(work) => panic!("{end:?}"),
        began = said => began.unwrap(),
    }
}

/// A lock that is dropped is released in the background.
async fn freed(locks: &Locks) {
    while locks.inspect("a").await.unwrap().is_held() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The lock is lost, and another host does this, while the job of this one does not let its own task notice.
fn meanwhile(server: &TestServer, other: &Locks, does: impl AsyncFnOnce(&Locks) + Send) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                server.lose("a").await.unwrap();
                does(other).await;
                freed(other).await;
            });
        });
        thread.join().unwrap();
    });
}

/// The clock of the server goes on, in small steps, until this is over.
async fn as_time_goes<T>(server: &TestServer, work: impl Future<Output = T>) -> T {
    tokio::select! {
        biased;
        done = work => done,
        () = async {
            loop {
                tokio::time::sleep(Duration::from_millis(1)).await;
                server.advance(Duration::from_millis(50));
            }
        } => unreachable!(),
    }
}

fn hosts() -> (TestServer, Locks, Locks) {
    let server = TestServer::new();
    let (one, two) = (server.locks().unwrap(), server.locks().unwrap());
    (server, one, two)
}

async fn state(locks: &Locks) -> (JobState, u32) {
    let jobs = locks.job("a").await.unwrap();
    (jobs[0].state, jobs[0].attempts)
}

#[tokio::test]
async fn a_key_is_done_once_and_keys_have_no_order() {
    let (_server, one, two) = hosts();
    assert_eq!(run(one.once("a", DAY)).await, Ok(Once::Ran(1)));
    for locks in [&one, &two] {
        let end = run(locks.once("a", DAY)).await;
        assert!(matches!(&end, Ok(Once::Done(job)) if job.key == DAY && job.attempts == 1), "{end:?}");
    }
    // A day that was missed, and the next one; and what is done stays done.
    for key in ["2026-11-28", "2026-11-30"] {
        assert_eq!(run(two.once("a", key)).await, Ok(Once::Ran(1)), "{key}");
        assert!(matches!(run(one.once("a", key)).await, Ok(Once::Done(_))), "{key}");
    }
    assert!(matches!(run(one.once("a", DAY)).await, Ok(Once::Done(_))));
    assert_eq!(run(one.once("b", DAY)).await, Ok(Once::Ran(1)), "another job");
}

#[tokio::test]
async fn the_key_is_not_done_while_the_job_runs() {
    let (_server, one, two) = hosts();
    let end = one.once("a", DAY).label("web-1").try_run(async |run| {
        assert!(run.held().is_held());
        let jobs = two.job("a").await?;
        assert_eq!((jobs[0].state, jobs[0].by.as_deref()), (JobState::Running, Some("web-1")));
        assert_eq!(jobs[0].token, Some(run.held().token()));
        let busy = two.once("a", DAY).wait(Duration::ZERO).try_run(async |_| Ok::<_, Error>(())).await;
        assert_eq!(busy.unwrap_err().kind(), ErrorKind::TimedOut);
        Ok::<_, Error>(())
    });
    assert_eq!(end.await.unwrap(), Once::Ran(()));
    assert_eq!(state(&two).await, (JobState::Done, 1));
    assert!(two.jobs().await.unwrap()[0].took.is_some());
}

#[tokio::test]
async fn the_next_host_takes_over_from_one_that_ends_in_the_middle() {
    let (_server, one, two) = hosts();
    die(one.once("a", DAY)).await;
    freed(&two).await;
    assert_eq!(state(&two).await, (JobState::Died, 1));
    let waiting = run(two.once("a", DAY));
    assert_eq!(waiting.await, Ok(Once::Ran(2)), "dropped");
    let panics = tokio::spawn(one.once("a", "x").try_run(async |_| {
        assert!(std::hint::black_box(false), "as the test wants");
        Ok::<(), Error>(())
    }));
    assert!(panics.await.unwrap_err().is_panic());
    assert_eq!(run(two.once("a", "x")).await, Ok(Once::Ran(2)), "panicked");
}

#[tokio::test]
async fn a_host_that_is_killed_is_followed_by_one_that_waits() {
    let (server, one, two) = hosts();
    let dies = one.once("a", DAY).try_run(async |_| {
        server.crash("a")?;
        std::future::pending::<Result<u32, Error>>().await
    });
    let follows = async {
        while two.job("a").await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        run(two.once("a", DAY)).await
    };
    let both = Box::pin(async { tokio::join!(dies, follows) });
    let (dead, next) = as_time_goes(&server, both).await;
    assert_eq!(dead.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(next, Ok(Once::Ran(2)));
}

#[tokio::test]
async fn a_failure_is_not_repeated_by_those_who_waited_for_it() {
    let (_server, one, two) = hosts();
    let runs = Arc::new(AtomicU32::new(0));
    let held = two.lock("a").await.unwrap();
    let hosts = [&one, &two, &one, &two].map(|locks| {
        let (request, runs) = (locks.once("a", DAY), Arc::clone(&runs));
        tokio::spawn(request.try_run(async move |_| {
            runs.fetch_add(1, Ordering::SeqCst);
            Err::<u32, _>(Failed::Work)
        }))
    });
    while two.inspect("a").await.unwrap().waiters < 4 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    held.release().await.unwrap();
    let mut left = 0;
    for host in hosts {
        left += u32::from(matches!(host.await.unwrap(), Ok(Once::FailedElsewhere(_))));
    }
    assert_eq!((runs.load(Ordering::SeqCst), left), (1, 3));
    // Who comes later tries again.
    assert_eq!(state(&one).await, (JobState::Failed, 1));
    assert_eq!(run(two.once("a", DAY)).await, Ok(Once::Ran(2)));
}

#[tokio::test]
async fn a_key_has_so_many_attempts() {
    let (_server, one, two) = hosts();
    assert_eq!(fail(one.once("a", DAY).attempts(3)).await, Err(Failed::Work));
    die(two.once("a", DAY).attempts(3)).await;
    assert_eq!(fail(one.once("a", DAY).attempts(3)).await, Err(Failed::Work));
    let end = run(two.once("a", DAY).attempts(3)).await;
    assert!(matches!(&end, Ok(Once::GivenUp(job)) if job.attempts == 3), "{end:?}");
    assert_eq!(run(two.once("a", DAY).attempts(4)).await, Ok(Once::Ran(4)));
    assert_eq!(run(two.once("a", "x").attempts(0)).await, Err(Failed::Lock(ErrorKind::InvalidInput)));
}

#[tokio::test]
async fn nothing_runs_without_a_record_of_it() {
    let (server, one, _) = hosts();
    let wrong = |kind| async move { Err(Failed::Lock(kind)) };
    for operation in [Operation::WriteRecord, Operation::ReadRecord] {
        server.fail(operation, ErrorKind::Refused);
        assert_eq!(run(one.once("a", DAY)).await, wrong(ErrorKind::Refused).await, "{operation:?}");
        server.heal();
    }
    freed(&one).await;
    for key in ["", "a\n", &"x".repeat(101)] {
        assert_eq!(run(one.once("a", key)).await, wrong(ErrorKind::InvalidInput).await, "{key:?}");
    }
    // A later version has written it.
    let guard = one.lock("a").await.unwrap();
    let later = RecordWrite { kind: RecordKind::Job, number: 1, value: br#"{"version":2}"# };
    one.backend().write_record(guard.grant(), later).await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(run(one.once("a", DAY)).await, wrong(ErrorKind::Misconfigured).await);
    assert_eq!(one.job("a").await.unwrap_err().kind(), ErrorKind::Misconfigured);
}

#[tokio::test]
async fn a_success_is_written_until_there_is_an_answer() {
    let (server, one, two) = hosts();
    let end = one.once("a", DAY).try_run(async |_| {
        server.fail_times(Operation::WriteRecord, ErrorKind::Unreachable, 3);
        Ok::<_, Failed>(7)
    });
    assert_eq!(as_time_goes(&server, end).await, Ok(Once::Ran(7)));
    assert_eq!(state(&two).await, (JobState::Done, 1));
}

#[tokio::test]
async fn a_success_is_written_after_a_loss_if_nobody_else_has_begun() {
    let (server, one, two) = hosts();
    let end = one.once("a", DAY).try_run(async |_| {
        server.lose("a").await?;
        Ok::<_, Failed>(7)
    });
    assert_eq!(as_time_goes(&server, end).await, Ok(Once::Ran(7)));
    assert_eq!(state(&two).await, (JobState::Done, 1));

    // Another host works now: its attempt is not the one that has succeeded.
    let end = one.once("a", "x").try_run(async |_| {
        meanwhile(&server, &two, async |two: &Locks| die(two.once("a", "x")).await);
        Ok::<_, Failed>(7)
    });
    assert_eq!(as_time_goes(&server, end).await, Err(Failed::Lock(ErrorKind::Lost)));
    freed(&two).await;
    assert_eq!(state(&two).await, (JobState::Died, 2));

    // Neither is one with the same number, after somebody has made the record forget.
    let end = one.once("a", "y").try_run(async |_| {
        meanwhile(&server, &two, async |two: &Locks| {
            assert!(two.forget_job("a", "y").await.unwrap());
            die(two.once("a", "y")).await;
        });
        Ok::<_, Failed>(7)
    });
    assert_eq!(as_time_goes(&server, end).await, Err(Failed::Lock(ErrorKind::Lost)));
    freed(&two).await;
    assert_eq!(state(&two).await, (JobState::Died, 1));

    // Nobody tries for ever.
    let end = one.once("a", "z").try_run(async |_| {
        server.fail(Operation::Acquire, ErrorKind::Unreachable);
        server.lose("a").await?;
        Ok::<_, Failed>(7)
    });
    let began = server.clock().clock().now();
    assert_eq!(as_time_goes(&server, end).await, Err(Failed::Lock(ErrorKind::Lost)));
    let took = server.clock().clock().now().since(began);
    assert!((Duration::from_secs(55)..Duration::from_secs(90)).contains(&took), "{took:?}");
}

#[tokio::test]
async fn a_job_that_takes_too_long_has_failed() {
    let (server, one, two) = hosts();
    let end = one
        .once("a", DAY)
        .max_hold(Duration::from_secs(5))
        .try_run(async |_| std::future::pending::<Result<u32, Failed>>().await);
    assert_eq!(as_time_goes(&server, end).await, Err(Failed::Lock(ErrorKind::Lost)));
    assert_eq!(state(&two).await, (JobState::Failed, 1));
}

#[tokio::test]
async fn a_lost_lock_ends_the_job_and_the_next_host_takes_over() {
    let (server, one, two) = hosts();
    let end = one.once("a", DAY).try_run(async |_| {
        server.lose("a").await?;
        std::future::pending::<Result<u32, Failed>>().await
    });
    assert_eq!(end.await, Err(Failed::Lock(ErrorKind::Lost)));
    assert_eq!(run(two.once("a", DAY)).await, Ok(Once::Ran(2)));
}

#[tokio::test]
async fn jobs_are_listed_and_forgotten() {
    let (_server, one, two) = hosts();
    for (name, key) in [("b", "1"), ("a", "1"), ("a", "2")] {
        assert_eq!(run(one.once(name, key)).await, Ok(Once::Ran(1)));
    }
    let newest: Vec<_> =
        two.jobs().await.unwrap().into_iter().map(|job| (job.name.to_string(), job.key)).collect();
    assert_eq!(newest, [("a".into(), "2".into()), ("b".into(), "1".to_owned())]);
    assert_eq!(two.job("a").await.unwrap().len(), 2);
    assert!(two.forget_job("a", "1").await.unwrap());
    assert!(!two.forget_job("a", "1").await.unwrap());
    assert_eq!(run(one.once("a", "1")).await, Ok(Once::Ran(1)));
    assert!(matches!(run(one.once("a", "2")).await, Ok(Once::Done(_))), "the other key stays");
}
