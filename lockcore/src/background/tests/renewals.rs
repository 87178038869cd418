//! Which leases are renewed together, and what becomes of a batch whose answers do not come.

use futures_util::FutureExt;

use super::*;
use crate::background::renewal::{Batch, batches};
use crate::background::{Book, HeldLock};
use crate::contract::Class;
use crate::life::{Event, Limits};
use crate::telemetry::Telemetry;
use crate::{Mode, Wait};

/// A server and its leases, on a clock that only the test moves.
struct Setup {
    clock: TestClock,
    server: Arc<Chosen>,
    book: Arc<Book>,
}

impl Setup {
    fn new() -> Self {
        let clock = TestClock::new();
        let inner = MemoryLock::with_clock(clock.clock());
        let server = Arc::new(Chosen { inner, ..Chosen::default() });
        let backend = Arc::clone(&server) as Arc<dyn DistributedLock>;
        let book = Book::new(backend).unwrap();
        Self { clock, server, book }
    }

    fn held(&self, name: &str) -> Arc<HeldLock> {
        self.held_for(name, LEASE)
    }

    fn held_for(&self, name: &str, ttl: Duration) -> Arc<HeldLock> {
        let (name, clock) = (LockName::new(name).unwrap(), self.clock.clock());
        let claim = Claim::new(name, Mode::Exclusive, ttl, Wait::No, "test".into()).with_clock(clock.clone());
        let grant = self.server.inner.acquire(&claim).now_or_never().unwrap().unwrap().expect("a free lock");
        Arc::new(HeldLock::new(grant, Class::default(), Limits::default(), &Telemetry::new("test")))
    }

    /// A lease whose renewals have no answer.
    fn hung(&self, name: &str) -> Arc<HeldLock> {
        lock(&self.server.hung).insert(LockName::new(name).unwrap());
        self.held(name)
    }

    /// The sizes of the batches in which these are renewed.
    fn sizes(&self, due: Batch) -> Vec<usize> {
        batches(due, self.clock.clock().now()).iter().map(Vec::len).collect()
    }

    fn renew(&self, batch: Batch) -> tokio::task::JoinHandle<()> {
        let book = Arc::clone(&self.book);
        tokio::spawn(async move { book.renew(batch).await })
    }

    fn asked(&self) -> u32 {
        self.server.renewals.load(Ordering::SeqCst)
    }
}

/// Lets the other tasks run until they wait.
async fn let_others_run() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

/// The end of a task, which must not depend on the clock of the test.
async fn ends(task: tokio::task::JoinHandle<()>) {
    tokio::time::timeout(LEASE / 4, task).await.expect("it ends").unwrap();
}

#[test]
fn leases_that_are_alike_are_renewed_together() {
    let setup = Setup::new();
    let held = ["a", "b", "c"].map(|name| setup.held(name));
    assert_eq!(setup.sizes(held.to_vec()), [3]);
    held[1].change(|lease| lease.narrow(4, Moment::NEVER, Moment::NEVER));
    assert_eq!(setup.sizes(held.to_vec()), [1, 2], "one of them has failed");
    let short = setup.held_for("short", Duration::from_secs(1));
    assert_eq!(setup.sizes(vec![setup.held("d"), short]), [1, 1], "one of them needs its answer soon");
}

#[test]
fn a_batch_has_at_most_500_leases() {
    let setup = Setup::new();
    let held: Batch = (0..501).map(|number| setup.held(&number.to_string())).collect();
    assert_eq!(setup.sizes(held), [500, 1]);
}

#[tokio::test]
async fn a_batch_that_has_failed_is_halved() {
    let setup = Setup::new();
    let held = ["a", "b", "c", "d"].map(|name| setup.hung(name));
    let renewing = setup.renew(held.to_vec());
    let_others_run().await;
    setup.clock.advance(LEASE / 4);
    ends(renewing).await;
    assert_eq!(held.each_ref().map(|held| held.lease().batch_limit()), [2; 4]);
    assert_eq!(setup.sizes(held.to_vec()), [2, 2]);
}

#[tokio::test]
async fn leases_in_doubt_do_not_delay_the_others() {
    let setup = Setup::new();
    let doubtful: Vec<_> = (0..9)
        .map(|number| {
            let held = setup.hung(&number.to_string());
            held.on(setup.clock.clock().now(), Event::Unknown(millis(5)));
            setup.renew(vec![held])
        })
        .collect();
    let_others_run().await;
    assert_eq!(setup.asked(), 8, "eight leases in doubt are renewed at a time");
    ends(setup.renew(vec![setup.held("healthy")])).await;
    assert_eq!(setup.asked(), 9);
    assert!(doubtful.iter().all(|renewing| !renewing.is_finished()));
}

#[tokio::test]
async fn a_renewal_without_an_answer_fails_a_little_after_its_time() {
    let setup = Setup::new();
    let held = setup.hung("a");
    let limit = held.lease().renewal_timeout(setup.clock.clock().now());
    let renewing = setup.renew(vec![Arc::clone(&held)]);
    let_others_run().await;
    setup.clock.advance(limit);
    let_others_run().await;
    assert!(!renewing.is_finished(), "the backend has a little longer");
    setup.clock.advance(limit / 8);
    ends(renewing).await;
    assert_eq!(held.lease().failures(), 1);
}

/// Has all these leases renewed at once, as often as they fail, by a server that refuses these batches.
/// Returns the sizes of the batches of each round.
async fn rounds(setup: &Setup, all: &Batch, refuses: impl Fn(&Batch) -> bool) -> Vec<Vec<usize>> {
    let mut rounds = Vec::new();
    for _ in 0..10 {
        let due: Batch =
            all.iter().filter(|held| rounds.is_empty() || held.lease().failures() > 0).cloned().collect();
        let batches = batches(due, setup.clock.clock().now());
        rounds.push(batches.iter().map(Vec::len).collect());
        for batch in batches {
            setup.server.refuses.store(refuses(&batch), Ordering::SeqCst);
            ends(setup.renew(batch)).await;
        }
        setup.clock.advance(millis(1));
    }
    rounds
}

/// A renewal with many small batches would take long after the outage.
#[tokio::test]
async fn an_outage_splits_no_batch_twice() {
    let setup = Setup::new();
    let held: Batch = (0..1000).map(|number| setup.held(&number.to_string())).collect();
    let rounds = rounds(&setup, &held, |_| true).await;
    assert_eq!(rounds[0], [500; 2]);
    assert!(rounds[1..].iter().all(|sizes| *sizes == [250; 4]), "{rounds:?}");
}

#[tokio::test]
async fn a_lease_that_fails_all_the_time_is_soon_alone() {
    let setup = Setup::new();
    let held: Batch = (0..1000).map(|number| setup.held(&number.to_string())).collect();
    let fails = Arc::clone(&held[777]);
    let rounds = rounds(&setup, &held, |batch| batch.iter().any(|held| Arc::ptr_eq(held, &fails))).await;
    assert_eq!(rounds.last().unwrap(), &[1], "{rounds:?}");
    assert!(fails.lease().failures() == 10 && rounds[1] == [250; 2], "{rounds:?}");
}

#[tokio::test]
async fn leases_that_are_due_soon_are_renewed_along_with_one_that_is_due() {
    let clock = TestClock::new();
    let inner = MemoryLock::with_clock(clock.clock());
    let server = Arc::new(Chosen { inner, ..Chosen::default() });
    let locks = Locks::new(Arc::clone(&server) as Arc<dyn DistributedLock>).unwrap();
    let first = locks.lock("a").ttl(LEASE).await.unwrap();
    clock.advance(LEASE / 20);
    let second = locks.lock("b").ttl(LEASE).await.unwrap();
    let began = Moment::now();
    while server.listened.load(Ordering::SeqCst) < 2 {
        assert!(Moment::now().since(began) < LEASE / 4, "the keeper does not look");
        tokio::time::sleep(millis(5)).await;
    }
    clock.advance(LEASE * 17 / 60);
    while locks.stats().renewals < 2 {
        assert!(Moment::now().since(began) < LEASE / 4, "the second one waits until it is due");
        tokio::time::sleep(millis(5)).await;
    }
    assert_eq!(server.renewals.load(Ordering::SeqCst), 1, "one call is for both");
    drop((first, second));
}
