//! The backend under test, with faults between it and lockcore, which must not affect other leases.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lockwell_core::async_trait;

use super::stage::{KEPT, Stage, done, millis, pause, release, secs, ttl_of};
use super::time::{has_passed, now, sleep};
use lockwell_core::{
    Capabilities, Claim, Clock, DistributedLock, Grant, LeaseState, LockName, LockStatus, Locks, Moment,
    Released, Renewal, Result,
};

/// What goes wrong with renewals.
#[derive(Debug)]
enum Trouble {
    /// Nothing. They are counted.
    None,
    /// A call that has this lock among its leases never ends.
    HangsWith(LockName),
    /// This number of calls panics.
    Panics(AtomicU64),
}

/// A backend whose renewals fail.
#[derive(Debug)]
struct Troubled {
    inner: Arc<dyn DistributedLock>,
    trouble: Trouble,
    renewals: AtomicU64,
}

impl Troubled {
    async fn new(stage: &Stage, trouble: Trouble) -> (Arc<Self>, Locks) {
        let inner = Arc::clone(stage.client().await.backend());
        let troubled = Arc::new(Self { inner, trouble, renewals: AtomicU64::new(0) });
        let locks = Locks::new(Arc::clone(&troubled) as Arc<dyn DistributedLock>).expect("a keeper");
        (troubled, locks)
    }
}

#[async_trait]
impl DistributedLock for Troubled {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn clock(&self) -> Clock {
        self.inner.clock()
    }

    async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        self.inner.acquire(claim).await
    }

    async fn renew(&self, grants: &[Grant], until: Moment) -> Vec<Renewal> {
        self.renewals.fetch_add(1, Ordering::SeqCst);
        match &self.trouble {
            Trouble::HangsWith(name) if grants.iter().any(|grant| grant.claim().name() == name) => {
                std::future::pending::<()>().await;
            }
            Trouble::Panics(left) => {
                let taken = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
                assert!(taken.is_err(), "a renewal that panics, as it must in this case");
            }
            _ => (),
        }
        self.inner.renew(grants, until).await
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        self.inner.release(claim).await
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        self.inner.inspect(name).await
    }

    async fn force_release(&self, name: &LockName) -> Result<usize> {
        self.inner.force_release(name).await
    }

    async fn lost(&self, grant: &Grant) {
        self.inner.lost(grant).await;
    }

    async fn doubted(&self, grant: &Grant) {
        self.inner.doubted(grant).await;
    }
}

/// One lease whose renewal never ends is lost alone: the others of the client are renewed.
pub(super) async fn one_lease_in_doubt_costs_the_others_nothing(stage: Stage) {
    const OTHERS: usize = 40;
    let bad = stage.name("bad");
    let (_, locks) = Troubled::new(&stage, Trouble::HangsWith(bad.clone())).await;
    let ttl = ttl_of(&locks, 12_000);
    let lost = locks.lock(&bad).ttl(ttl).wait(secs(20)).await.expect("a free lock");
    let mut others = Vec::new();
    for number in 0..OTHERS {
        others.push(locks.lock(stage.name(number)).ttl(ttl).wait(secs(20)).await.expect("a free lock"));
    }
    let end = now().after(ttl * 5 / 2);
    while !has_passed(end) {
        for (number, other) in others.iter().enumerate() {
            assert!(
                other.is_held(),
                "lock {number} was lost, too: {:?}; {:?}",
                other.lease_state(),
                locks.stats()
            );
        }
        pause(20).await;
    }
    assert!(
        matches!(lost.lease_state(), LeaseState::Lost(_)),
        "nobody has renewed it: {:?}",
        lost.lease_state()
    );
    for other in others {
        release(other).await;
    }
}

/// One idle lock asks its server for little.
pub(super) async fn an_idle_lock_is_renewed_at_most_six_times_in_its_validity(stage: Stage) {
    let (troubled, locks) = Troubled::new(&stage, Trouble::None).await;
    let ttl = ttl_of(&locks, KEPT);
    let guard = locks.lock(stage.name("idle")).ttl(ttl).wait(secs(20)).await.expect("a free lock");
    let validity = guard.grant().deadline().since(guard.grant().sent());
    assert!(validity > millis(0), "no validity: {guard:?}");
    sleep(validity * 3).await;
    let renewals = troubled.renewals.load(Ordering::SeqCst);
    assert!(guard.is_held(), "{guard:?}");
    assert!(
        (2..=18).contains(&renewals),
        "{renewals} renewals in three times its validity of {validity:?}: {:?}",
        locks.stats()
    );
    release(guard).await;
}

/// A panic of the backend in a renewal is a failed renewal, and nothing more.
pub(super) async fn a_panic_in_a_renewal_costs_nothing(stage: Stage) {
    let (troubled, locks) = Troubled::new(&stage, Trouble::Panics(AtomicU64::new(2))).await;
    let ttl = ttl_of(&locks, 3000);
    let guard = locks.lock(stage.name("panic")).ttl(ttl).wait(secs(20)).await.expect("a free lock");
    let kept = async {
        let end = now().after(ttl * 2);
        while !has_passed(end) {
            assert!(guard.is_held(), "lost: {:?}; {:?}", guard.lease_state(), locks.stats());
            pause(20).await;
        }
    };
    done("two leases", ttl * 3, kept).await;
    assert!(troubled.renewals.load(Ordering::SeqCst) > 2, "it was tried again after the panics");
    release(guard).await;
}
