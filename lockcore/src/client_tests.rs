//! What the client promises whatever the backend, tested on memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use crate::{
    Capabilities, Claim, DistributedLock, ErrorKind, Grant, LockName, LockStatus, Locks, Loss, MemoryLock,
    Moment, Released, Renewal, Result,
};

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A server that never answers the first renewal, and never a release if that is said.
#[derive(Debug, Default)]
struct Mute {
    inner: MemoryLock,
    renewed: AtomicBool,
    releases: bool,
}

#[async_trait]
impl DistributedLock for Mute {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        self.inner.acquire(claim).await
    }

    async fn renew(&self, grants: &[Grant]) -> Vec<Renewal> {
        if !self.renewed.swap(true, Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        self.inner.renew(grants).await
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        if self.releases {
            std::future::pending::<()>().await;
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
async fn a_long_lock_delay_does_not_make_renewals_patient() {
    let locks = Locks::new(Arc::<Mute>::default());
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
    let (longest, rest) = (millis(50), millis(1000));
    let asked = Moment::now();
    let guard = locks.lock("a").max_hold(longest).lock_delay(rest).await.unwrap();
    guard.lost().await;
    assert_eq!(guard.downgrade().await.unwrap_err().kind(), ErrorKind::Lost);
    drop(locks.lock("a").await.unwrap());
    let took = Moment::now().since(asked);
    assert!(took >= longest + rest, "free again after {took:?}");
}

#[tokio::test]
async fn a_downgrade_keeps_the_lease_and_begins_the_limits_anew() {
    let locks = Locks::in_memory();
    let longest = Duration::from_secs(4);
    let writer = locks.write("a").ttl(Duration::from_mins(1)).max_hold(longest).await.unwrap();
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
    let patience = millis(300);
    let held = locks.lock("b").await.unwrap();
    let both = tokio::spawn(
        locks.lock_all(["a", "b"]).progress(patience).wait(Duration::from_secs(20)).into_future(),
    );
    tokio::time::sleep(patience * 2).await;
    held.release().await.unwrap();
    let both = both.await.unwrap().expect("nobody can report progress while waiting");
    let (_, loss) =
        tokio::time::timeout(Duration::from_secs(10), both.lost()).await.expect("the limit counts");
    assert_eq!(loss, Loss::NoProgress);
}

#[tokio::test]
async fn an_observer_sees_the_token_of_the_leader() {
    let locks = Locks::in_memory().hand_over(10, Duration::from_secs(1));
    let leading = locks.campaign("a").await.unwrap();
    let seen = locks.observe("a").next().await.unwrap().expect("somebody leads");
    assert_eq!(seen.token, leading.token());
}

#[tokio::test]
async fn an_owner_forgets_the_name_of_a_dropped_release() {
    let locks = Locks::new(Arc::new(Mute { releases: true, ..Mute::default() }));
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
    let span = Duration::from_mins(1);
    for locks in [Locks::in_memory().coalesce(), Locks::in_memory().hand_over(100, span)] {
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
