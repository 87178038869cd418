//! What the client promises whatever the backend, tested on memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;

use crate::testing::TestServer;
use crate::{
    Capabilities, Claim, DistributedLock, Error, ErrorKind, Grant, LockGuard, LockName, LockRequest,
    LockStatus, Locks, Loss, MemoryLock, Moment, Operation, Released, Renewal, Result, TestClock,
};

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// What is wrong with a server.
#[derive(Debug)]
enum Trouble {
    /// It never answers the first renewal, and never a release if that is said.
    Mute { releases: bool },
    /// Its answers to an acquire are lost, and it carries it out so much later.
    Late(Duration),
    /// Its first answer to a release comes late, after the keeper has asked for the second time.
    Slow,
}

/// A server in memory with one trouble.
#[derive(Debug)]
struct Troubled {
    inner: Arc<MemoryLock>,
    trouble: Trouble,
    asked: AtomicBool,
}

impl Troubled {
    fn locks(inner: &Arc<MemoryLock>, trouble: Trouble) -> Locks {
        Locks::new(Arc::new(Self { inner: Arc::clone(inner), trouble, asked: AtomicBool::new(false) }))
            .unwrap()
    }

    fn is_first(&self) -> bool {
        !self.asked.swap(true, Ordering::SeqCst)
    }
}

#[async_trait]
impl DistributedLock for Troubled {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        let Trouble::Late(by) = self.trouble else { return self.inner.acquire(claim).await };
        let (inner, claim) = (Arc::clone(&self.inner), claim.clone());
        drop(tokio::spawn(async move {
            tokio::time::sleep(by).await;
            inner.acquire(&claim).await
        }));
        Err(Error::new(ErrorKind::Unreachable, "the answer was lost"))
    }

    async fn renew(&self, grants: &[Grant], until: Moment) -> Vec<Renewal> {
        if matches!(self.trouble, Trouble::Mute { .. }) && self.is_first() {
            std::future::pending::<()>().await;
        }
        self.inner.renew(grants, until).await
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        match self.trouble {
            Trouble::Mute { releases: true } => std::future::pending().await,
            Trouble::Slow if self.is_first() => tokio::time::sleep(Duration::from_secs(2)).await,
            _ => (),
        }
        self.inner.release(claim).await
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        self.inner.inspect(name).await
    }

    async fn force_release(&self, name: &LockName) -> Result<usize> {
        self.inner.force_release(name).await
    }
}

#[tokio::test]
async fn a_release_that_the_keeper_has_overtaken_is_no_loss() {
    let locks = Troubled::locks(&Arc::default(), Trouble::Slow);
    let guard = locks.lock("a").ttl(Duration::from_secs(30)).await.unwrap();
    guard.release().await.expect("it was held to the end");
}

#[tokio::test]
async fn a_lock_that_is_granted_after_close_is_given_back() {
    let locks = Locks::in_memory();
    let held = locks.lock("a").await.unwrap();
    let waiting = tokio::spawn(locks.lock("a").into_future());
    tokio::time::sleep(millis(20)).await;
    locks.clone().close().await.unwrap();
    held.release().await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
}

#[tokio::test]
async fn a_claim_of_which_nothing_is_known_is_released_until_its_lease_has_ended() {
    let (inner, by) = (Arc::new(MemoryLock::new()), Duration::from_secs(3));
    let locks = Troubled::locks(&inner, Trouble::Late(by));
    let other = Locks::new(inner).unwrap();
    locks.lock("a").ttl(Duration::from_secs(60)).try_now().await.unwrap_err();
    tokio::time::sleep(by + millis(100)).await;
    let free = other.lock("a").wait(Duration::from_secs(10)).await.expect("the late one was released");
    free.release().await.unwrap();
    // Close does not wait for all that time.
    let asked = Moment::now();
    locks.close().await.unwrap();
    assert!(Moment::now().since(asked) < Duration::from_secs(4));
}

#[tokio::test]
async fn close_says_what_has_no_answer() {
    let locks = Troubled::locks(&Arc::default(), Trouble::Mute { releases: true });
    drop((locks.lock("a").await.unwrap(), locks.lock("b").await.unwrap()));
    let error = locks.close_within(millis(300)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome);
    assert!(error.to_string().contains("2 releases have no answer"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_runtime_whose_clock_is_paused_is_no_trouble() {
    let locks = Locks::in_memory();
    let ticks = tokio::time::Instant::now();
    let held = locks.lock("a").ttl(millis(600)).await.unwrap();
    let error = locks.lock("a").wait(millis(400)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(held.is_held());
    held.release().await.unwrap();
    assert!(ticks.elapsed() < Duration::from_secs(10), "the paused clock moved by {:?}", ticks.elapsed());
}

#[tokio::test]
async fn a_test_has_the_clock_of_leases_and_waits() {
    let clock = TestClock::new();
    let server = Arc::new(MemoryLock::with_clock(clock.clock()));
    let (one, two) = (Locks::new(server.clone()).unwrap(), Locks::new(server).unwrap());
    let hour = Duration::from_secs(3_600);
    let held = one.lock("a").ttl(hour).await.unwrap();
    let waiting = tokio::spawn(two.lock("a").wait(hour / 2).into_future());
    tokio::time::sleep(millis(20)).await;
    assert!(!waiting.is_finished() && held.is_held());
    clock.advance(hour / 2 + millis(50));
    assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::TimedOut);
    // The renewal that has become due is on its way.
    while one.stats().renewals == 0 {
        tokio::time::sleep(millis(5)).await;
    }
    clock.advance(hour * 3 / 4);
    assert!(held.is_held(), "the lease was renewed");
    clock.advance(hour);
    assert_eq!(held.lost().await, Loss::Expired);
}

#[tokio::test]
async fn a_traceparent_is_that_of_the_request_or_else_of_the_client() {
    let trace = |id: u32| format!("00-{id:032x}-00f067aa0ba902b7-01");
    let shown = async |locks: &Locks, request: LockRequest| {
        let guard = request.label("me").await.unwrap();
        let status = locks.inspect("a").await.unwrap();
        guard.release().await.unwrap();
        assert_eq!(status.holders[0].label, "me");
        status.holders[0].traceparent.as_ref().map(ToString::to_string)
    };
    let locks = Locks::in_memory();
    assert_eq!(shown(&locks, locks.lock("a")).await, None);
    let found = trace(1);
    let locks = locks.traceparent_from(move || Some(found.clone()));
    assert_eq!(shown(&locks, locks.lock("a")).await, Some(trace(1)));
    assert_eq!(shown(&locks, locks.lock("a").traceparent(trace(2))).await, Some(trace(2)));
    let refused = locks.lock("a").traceparent("00-1-2-3").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    // What the client finds is not the fault of the request.
    let locks = locks.traceparent_from(|| Some("00-1-2-3".to_owned()));
    assert_eq!(shown(&locks, locks.lock("a")).await, None);
}

#[tokio::test]
async fn a_lock_is_not_passed_on_to_a_task_of_another_trace() {
    let trace = |id: u32| format!("00-{id:032x}-00f067aa0ba902b7-01");
    for (next, is_handed) in [(1, true), (2, false)] {
        let locks = Locks::in_memory().hand_off(5, Duration::from_secs(30));
        let first = locks.lock("a").traceparent(trace(1)).await.unwrap();
        let owner = first.grant().claim().owner();
        let waiting = tokio::spawn(locks.lock("a").traceparent(trace(next)).into_future());
        tokio::time::sleep(millis(20)).await;
        first.release().await.unwrap();
        let second = waiting.await.unwrap().unwrap();
        assert_eq!(second.grant().claim().owner() == owner, is_handed);
        let shown = locks.inspect("a").await.unwrap().holders.remove(0).traceparent.unwrap();
        assert_eq!(shown.as_str(), trace(next));
    }
}

#[tokio::test]
async fn a_long_lock_delay_does_not_make_renewals_patient() {
    let locks = Troubled::locks(&Arc::default(), Trouble::Mute { releases: false });
    let ttl = Duration::from_secs(6);
    let guard = locks.lock("a").ttl(ttl).lock_delay(Duration::from_secs(30)).await.unwrap();
    tokio::select! {
        loss = guard.lost() => panic!("{loss:?}: the renewal was not tried again in time"),
        () = tokio::time::sleep(ttl + ttl / 4) => assert!(guard.is_held()),
    }
}

#[tokio::test]
async fn a_downgrade_of_what_was_lost_does_not_end_the_lock_delay() {
    let locks = Locks::in_memory();
    let (longest, delay) = (millis(50), millis(1000));
    let asked = Moment::now();
    let guard = locks.lock("a").max_hold(longest).lock_delay(delay).await.unwrap();
    guard.lost().await;
    assert_eq!(guard.downgrade().await.unwrap_err().kind(), ErrorKind::Lost);
    drop(locks.lock("a").await.unwrap());
    let took = Moment::now().since(asked);
    assert!(took >= longest + delay, "free again after {took:?}");
}

#[tokio::test]
async fn a_downgrade_keeps_the_lease_and_begins_the_limits_anew() {
    let locks = Locks::in_memory();
    let longest = Duration::from_secs(4);
    let writer = locks.write("a").ttl(Duration::from_secs(60)).max_hold(longest).await.unwrap();
    tokio::time::sleep(longest / 8).await;
    let ends = Moment::now().after(longest);
    let reader = writer.downgrade().await.unwrap();
    assert!(reader.grant().deadline() > ends, "the end of the lease is not the end of the longest hold");
    assert_eq!(reader.lost().await, Loss::HeldTooLong);
    assert!(ends.has_passed());
}

#[test]
fn an_observer_without_a_pause_lets_others_run() {
    let (say, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut observer = Locks::in_memory().observe("a").every(Duration::ZERO);
            assert_eq!(observer.next().await.unwrap(), None);
            assert!(tokio::time::timeout(millis(20), observer.next()).await.is_err(), "no change");
            say.send(()).unwrap();
        });
    });
    told.recv_timeout(Duration::from_secs(20)).expect("the observer's thread is not blocked");
}

#[tokio::test]
async fn limits_of_several_locks_begin_when_all_are_held() {
    let locks = Locks::in_memory();
    let progress = millis(300);
    let held = locks.lock("b").await.unwrap();
    let both = tokio::spawn(
        locks.lock_all(["a", "b"]).progress_within(progress).wait(Duration::from_secs(20)).into_future(),
    );
    tokio::time::sleep(progress * 2).await;
    held.release().await.unwrap();
    let both = both.await.unwrap().expect("nobody can report progress while waiting");
    let (_, loss) =
        tokio::time::timeout(Duration::from_secs(10), both.lost()).await.expect("the limit counts");
    assert_eq!(loss, Loss::NoProgress);
}

#[tokio::test]
async fn an_observer_sees_the_token_of_the_leader() {
    let locks = Locks::in_memory().hand_off(10, Duration::from_secs(1));
    let leading = locks.campaign("a").await.unwrap();
    let seen = locks.observe("a").next().await.unwrap().expect("somebody leads");
    assert_eq!(seen.token, leading.token());
}

#[tokio::test]
async fn tasks_share_a_place_with_neither_owners_nor_campaigns() {
    let server = Arc::new(MemoryLock::new());
    let (one, two) = (Locks::new(server.clone()).unwrap(), Locks::new(server).unwrap());
    let held = two.lock("a").await.unwrap();
    let mut tasks = [(); 2].map(|()| Box::pin(one.lock("a").into_future()));
    let mut owned = one.owner().lock("a").into_future();
    let mut leads = Box::pin(one.campaign("a").into_future());
    let mut places = Vec::new();
    for task in &mut tasks {
        assert!(task.as_mut().now_or_never().is_none(), "it is held");
        places.push(two.inspect("a").await.unwrap().waiters);
    }
    assert!(owned.as_mut().now_or_never().is_none(), "it is held");
    places.push(two.inspect("a").await.unwrap().waiters);
    assert!(leads.as_mut().now_or_never().is_none(), "it is held");
    places.push(two.inspect("a").await.unwrap().waiters);
    assert_eq!(places, [1, 1, 2, 3]);
    drop(held);
}

#[tokio::test]
async fn an_owner_forgets_the_name_of_a_dropped_release() {
    let locks = Troubled::locks(&Arc::default(), Trouble::Mute { releases: true });
    let owner = locks.owner();
    let guard = owner.lock("a").await.unwrap();
    assert_eq!(owner.names(), 1);
    assert!(tokio::time::timeout(millis(10), guard.release()).await.is_err(), "there is no answer");
    assert_eq!(owner.names(), 0);
}

#[tokio::test]
async fn the_loss_of_one_of_several_ends_the_wait_for_the_others() {
    let locks = Locks::in_memory();
    let held = locks.lock("b").await.unwrap();
    let both = tokio::spawn(locks.lock_all(["a", "b"]).ttl(millis(300)).into_future());
    while locks.force_release("a").await.unwrap() == 0 {
        tokio::task::yield_now().await;
    }
    let waited = tokio::time::timeout(Duration::from_secs(20), both).await.expect("no wait in vain");
    let error = waited.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.lock().map(LockName::as_str)), (ErrorKind::Lost, Some("a")), "{error:#}");
    drop(held);
}

#[test]
fn the_end_of_a_runtime_passes_its_turn_on() {
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let span = Duration::from_secs(60);
    for locks in [Locks::in_memory(), Locks::in_memory().hand_off(100, span)] {
        let (ends, stays) = (runtime(), runtime());
        let held = ends.block_on(locks.lock("a").into_future()).unwrap();
        ends.spawn(async move {
            std::future::pending::<()>().await;
            drop(held);
        });
        for _ in 0..10 {
            ends.spawn(locks.lock("a").into_future());
        }
        ends.block_on(async { tokio::time::sleep(millis(20)).await });
        let waiting = stays.spawn(locks.lock("a").wait(span).into_future());
        drop(ends);
        let guard = stays.block_on(waiting).unwrap().expect("its turn comes");
        stays.block_on(guard.release()).unwrap();
    }
}

/// A request that waits for the lock "b" in this process gets its turn near the end of its wait, and the
/// answer after that.
async fn gets_a_late_answer<T>(
    server: &TestServer,
    held: LockGuard,
    request: impl IntoFuture<Output = Result<T>>,
) -> T {
    let mut request = std::pin::pin!(request.into_future());
    assert!(request.as_mut().now_or_never().is_none(), "it is held");
    server.advance(millis(4990));
    server.delay(Operation::Acquire, millis(500));
    held.release().await.unwrap();
    for passed in [0, 20, 30, 30] {
        server.advance(millis(passed));
        if let Some(answer) = request.as_mut().now_or_never() {
            panic!("it ended without the answer: {:#}", answer.err().expect("no answer"));
        }
    }
    server.advance(millis(500));
    request.await.unwrap()
}

#[tokio::test]
async fn a_wait_for_several_locks_covers_a_grace_period() {
    let server = TestServer::new();
    let locks = server.locks().unwrap();
    // Of the requests for all at once.
    server.fail_times(Operation::Acquire, ErrorKind::GracePeriod, 2);
    let both = locks.lock_all(["a", "b"]).wait(Duration::from_secs(30)).await.expect("it waits");
    assert!(both.is_held());
    server.fail_times(Operation::Acquire, ErrorKind::GracePeriod, 2);
    let error = locks.lock_all(["c", "d"]).wait(Duration::ZERO).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::GracePeriod);
}

#[tokio::test]
async fn one_that_leaves_before_the_first_answer_sends_the_others_nowhere() {
    async fn tasks_run() {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }
    let server = TestServer::new();
    let locks = server.locks().unwrap();
    server.delay(Operation::Acquire, Duration::from_secs(1));
    let mut first = Box::pin(locks.lock("a").into_future());
    assert!(first.as_mut().now_or_never().is_none(), "there is no answer yet");
    let others = [(); 3].map(|()| tokio::spawn(locks.lock("a").into_future()));
    tasks_run().await;
    server.heal();
    drop(first);
    tasks_run().await;
    // Its answer is not waited for any longer.
    server.advance(millis(100));
    tasks_run().await;
    let status = locks.inspect("a").await.unwrap();
    assert_eq!((status.holders.len(), status.waiters), (1, 0), "one claim is for all of them");
    drop(others);
}

#[tokio::test]
async fn a_wait_in_this_process_covers_the_first_answer() {
    let server = TestServer::new();
    let locks = server.locks().unwrap();
    let (ttl, wait) = (Duration::from_secs(60), Duration::from_secs(5));
    let held = locks.lock("b").ttl(ttl).await.unwrap();
    let held = gets_a_late_answer(&server, held, locks.lock("b").ttl(ttl).wait(wait)).await;
    server.heal();
    let both = locks.lock_all(["a", "b"]).ttl(ttl).wait(wait);
    gets_a_late_answer(&server, held, both).await.release().await.unwrap();
}

#[tokio::test]
async fn several_locks_wait_for_another_kind() {
    let locks = Locks::in_memory();
    let permit = locks.permit("b", 2).await.unwrap();
    let error = locks.lock_all(["a", "b"]).try_now().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::KindClash);
    let error = locks.lock_all(["a", "b"]).wait(Duration::ZERO).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "as for one lock");
    let both = tokio::spawn(locks.lock_all(["a", "b"]).wait(Duration::from_secs(60)).into_future());
    while locks.inspect("b").await.unwrap().waiters == 0 {
        tokio::time::sleep(millis(1)).await;
    }
    permit.release().await.unwrap();
    both.await.unwrap().expect("it waits").release().await.unwrap();
}
