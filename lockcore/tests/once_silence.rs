//! Jobs that run once for a key, with a server that is away or whose answers are lost.

#[path = "support/host.rs"]
mod host;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use lockwell_core::testing::TestServer;
use lockwell_core::{
    DistributedLock, Error, ErrorKind, Grant, JobState, Keyed, LockRequest, Locks, Once, Operation,
    RecordWrite, Result,
};

use host::{Between, host};

const DAY: &str = "2026-11-29";
const MINUTE: Duration = Duration::from_secs(60);

/// A server that carries out so many writes of records, and whose answers to them are lost. With `loses`, the
/// lock is lost as well.
#[derive(Debug)]
struct Deaf {
    server: TestServer,
    silences: AtomicU32,
    loses: bool,
}

impl Deaf {
    fn locks(server: &TestServer, silences: u32, loses: bool) -> Locks {
        host(server, Self { server: server.clone(), silences: AtomicU32::new(silences), loses })
    }
}

#[async_trait]
impl Between for Deaf {
    async fn write(&self, server: &dyn DistributedLock, grant: &Grant, write: RecordWrite<'_>) -> Result<()> {
        server.write_record(grant, write).await?;
        let left = |left: u32| left.checked_sub(1);
        if self.silences.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left).is_err() {
            return Ok(());
        }
        if self.loses {
            self.server.lose(grant.claim().name()).await?;
        }
        Err(Error::new(ErrorKind::UnknownOutcome, "the answer was lost"))
    }
}

/// Runs the job, which says with which attempt it ran.
async fn run(request: LockRequest<Keyed>) -> Result<Once<u32>> {
    request.try_run(async |run| Ok(run.attempt())).await
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

/// The only attempt there may be is made, however often it is written that it begins.
#[tokio::test]
async fn an_attempt_whose_beginning_has_no_answer_counts_once() {
    for loses in [false, true] {
        let server = TestServer::new();
        let locks = Deaf::locks(&server, 3, loses);
        let request = locks.once("a", DAY).attempts(1).ttl(MINUTE * 10).wait(MINUTE);
        let end = as_time_goes(&server, run(request)).await;
        assert_eq!(end.unwrap(), Once::Ran(1), "{loses}");
        let job = &locks.job("a").await.unwrap()[0];
        assert_eq!((job.state, job.attempts), (JobState::Done, 1), "{loses}");
    }
    // Who does not wait for the lock does not end with the first silence either.
    let server = TestServer::new();
    let locks = Deaf::locks(&server, 1, false);
    let end = as_time_goes(&server, run(locks.once("a", DAY).attempts(1).wait(Duration::ZERO))).await;
    assert_eq!(end.unwrap(), Once::Ran(1));
    // It does not wait for one that it has lost.
    let locks = Deaf::locks(&server, 1, true);
    let end = as_time_goes(&server, run(locks.once("b", DAY).wait(Duration::ZERO))).await;
    assert_eq!(end.unwrap_err().kind(), ErrorKind::Lost);
}

/// Also where the record does not say with which token it began, since a newer key was done since.
#[tokio::test]
async fn an_attempt_of_another_host_is_not_taken_for_the_own_one() {
    for is_newest in [true, false] {
        let server = TestServer::new();
        let (one, two) = (Deaf::locks(&server, 1, true), server.locks().unwrap());
        let mut waits = Box::pin(run(one.once("a", DAY).attempts(3).ttl(MINUTE * 10).wait(MINUTE)));
        // Its beginning is written, and its lock is lost. Until it asks again, another host begins, and dies.
        // Somebody has made the record forget, so that both attempts have one number.
        while two.job("a").await.unwrap().is_empty() {
            assert!((&mut waits).now_or_never().is_none(), "it waits");
            tokio::task::yield_now().await;
        }
        assert_eq!(two.job("a").await.unwrap()[0].state, JobState::Died);
        assert!(two.forget_job("a", DAY).await.unwrap());
        // They do not begin in one millisecond.
        tokio::time::sleep(Duration::from_millis(5)).await;
        let (say, said) = tokio::sync::oneshot::channel();
        let dies = two.once("a", DAY).try_run(async |run| {
            say.send(run.attempt()).unwrap();
            std::future::pending::<Result<()>>().await
        });
        tokio::select! {
            end = dies => panic!("{end:?}"),
            attempt = said => assert_eq!(attempt, Ok(1)),
        }
        if !is_newest {
            assert_eq!(run(two.once("a", "next day")).await.unwrap(), Once::Ran(1));
        }
        assert_eq!(as_time_goes(&server, waits).await.unwrap(), Once::Ran(2), "{is_newest}");
    }
}

/// A host whose requests for the record do not pass, and which renews the lock, does not keep it from others.
#[tokio::test]
async fn who_has_no_answer_for_a_minute_leaves_the_job_to_others() {
    let server = TestServer::new();
    let locks = server.locks().unwrap();
    server.fail(Operation::WriteRecord, ErrorKind::Unreachable);
    let end = as_time_goes(&server, run(locks.once("a", DAY).ttl(MINUTE * 10))).await;
    assert_eq!(end.unwrap_err().kind(), ErrorKind::Unreachable);
    server.heal();
    assert_eq!(run(locks.once("a", DAY)).await.unwrap(), Once::Ran(1));
}

/// The longest time of the work counts from the grant, as that of the lock does.
#[tokio::test]
async fn a_job_that_hangs_has_failed_also_if_it_began_late() {
    let server = TestServer::new();
    let locks = server.locks().unwrap();
    // The pauses between them are longer, together, than what the lock is held beyond the longest time.
    server.fail_times(Operation::WriteRecord, ErrorKind::Unreachable, 8);
    let hangs = locks.once("a", DAY).ttl(MINUTE * 10).max_hold(MINUTE);
    let hangs = hangs.try_run(async |_| std::future::pending::<Result<()>>().await);
    assert!(as_time_goes(&server, hangs).await.is_err());
    assert_eq!(locks.job("a").await.unwrap()[0].state, JobState::Failed);
}

#[tokio::test]
async fn a_wait_covers_a_server_that_is_away() {
    for away in [&[Operation::ReadRecord][..], &[Operation::ReadRecord, Operation::Acquire]] {
        let server = TestServer::new();
        let locks = server.locks().unwrap();
        for operation in away {
            server.fail_times(*operation, ErrorKind::Unreachable, 4);
        }
        let end = as_time_goes(&server, run(locks.once("a", DAY).wait(MINUTE))).await;
        assert_eq!(end.unwrap(), Once::Ran(1), "{away:?}");
    }
    let server = TestServer::new();
    let locks = server.locks().unwrap();
    // It is away when the lock is held.
    let held = locks.lock("a").await.unwrap();
    let mut waits = Box::pin(run(locks.once("a", DAY).wait(MINUTE)));
    while locks.inspect("a").await.unwrap().waiters == 0 {
        assert!((&mut waits).now_or_never().is_none(), "it waits");
        tokio::task::yield_now().await;
    }
    server.fail_times(Operation::ReadRecord, ErrorKind::Unreachable, 4);
    held.release().await.unwrap();
    assert_eq!(as_time_goes(&server, waits).await.unwrap(), Once::Ran(1));
    // No wait is longer than it is.
    for fault in [Some(ErrorKind::Unreachable), None] {
        match fault {
            Some(kind) => server.fail(Operation::ReadRecord, kind),
            None => server.delay(Operation::ReadRecord, Duration::MAX),
        }
        let began = server.clock().clock().now();
        let end = as_time_goes(&server, run(locks.once("b", DAY).wait(MINUTE))).await;
        let took = server.clock().clock().now().since(began);
        assert_eq!(end.unwrap_err().kind(), fault.unwrap_or(ErrorKind::TimedOut));
        assert!((MINUTE..MINUTE * 2).contains(&took), "{took:?}");
        server.heal();
    }
    // Who has not said that it waits learns that the server is away.
    server.fail_times(Operation::ReadRecord, ErrorKind::Unreachable, 1);
    for request in [locks.once("c", DAY), locks.once("c", DAY).wait(Duration::ZERO)] {
        server.fail_times(Operation::ReadRecord, ErrorKind::Unreachable, 1);
        assert_eq!(run(request).await.unwrap_err().kind(), ErrorKind::Unreachable);
    }
}

/// The record is read before the lock is looked at, and the job ends in between.
#[tokio::test]
async fn one_that_ends_while_it_is_looked_at_has_not_died() {
    let server = TestServer::new();
    let (one, two) = (server.locks().unwrap(), server.locks().unwrap());
    let end = one.once("a", DAY).try_run(async |run| {
        server.delay(Operation::Inspect, Duration::from_secs(1));
        let mut looks = Box::pin(async move { two.job("a").await });
        assert!((&mut looks).now_or_never().is_none(), "it looks at the lock");
        assert!(run.held().is_held());
        Ok::<_, Error>(looks)
    });
    let Once::Ran(looks) = end.await.unwrap() else { panic!("not done") };
    let jobs = as_time_goes(&server, looks).await.unwrap();
    assert_eq!((jobs[0].state, jobs[0].attempts), (JobState::Done, 1));
}
