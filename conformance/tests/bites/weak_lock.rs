//! The memory backend with one defect, most of them in what few calls or few claims do.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockwell_core::backend::{
    Capabilities, Claim, Clock, DistributedLock, Grant, LockName, LockStatus, MemoryLock, Mode, Moment,
    OwnerId, Record, RecordKind, RecordWrite, Released, Renewal, Result, Wait, async_trait, valid_until,
};

use crate::defect::Defect;
use crate::lock;

#[derive(Debug)]
pub(crate) struct Weak {
    defect: Defect,
    clock: Clock,
    right: Mutex<Arc<MemoryLock>>,
    /// Where those go who should have waited.
    second: MemoryLock,
    /// What the memory backend knows a claim as, where that differs.
    aliases: Mutex<HashMap<OwnerId, Claim>>,
    granted: Mutex<HashSet<OwnerId>>,
    waiting: AtomicUsize,
    numbers: AtomicU64,
    released: tokio::sync::Notify,
    door: tokio::sync::Mutex<()>,
}

impl Weak {
    pub(crate) fn new(defect: Defect, clock: &Clock) -> Self {
        let store = || MemoryLock::with_clock(clock.clone());
        Self {
            defect,
            clock: clock.clone(),
            right: Mutex::new(Arc::new(store())),
            second: store(),
            aliases: Mutex::default(),
            granted: Mutex::default(),
            waiting: AtomicUsize::new(0),
            numbers: AtomicU64::new(0),
            released: tokio::sync::Notify::new(),
            door: tokio::sync::Mutex::new(()),
        }
    }

    fn is(&self, defect: Defect) -> bool {
        self.defect == defect
    }

    fn right(&self) -> Arc<MemoryLock> {
        Arc::clone(&lock(&self.right))
    }

    /// Deletes what idle locks leave behind: nothing, if all is well.
    pub(crate) async fn purge(&self) {
        match self.defect {
            Defect::PurgeForgetsTokens => {
                *lock(&self.right) = Arc::new(MemoryLock::with_clock(self.clock.clone()));
            }
            Defect::PurgeFreesAll => {
                let right = self.right();
                for name in right.names().await.expect("a list") {
                    right.force_release(&name).await.expect("an answer");
                }
            }
            _ => (),
        }
    }

    /// The claim as the memory backend knows it.
    fn alias(&self, claim: &Claim) -> Claim {
        let (mut name, mut ttl, mut wait) = (claim.name().clone(), claim.ttl(), claim.wait());
        match self.defect {
            Defect::LeasesTooShort => ttl /= 10,
            Defect::ForgetsTheLockDelay => ttl -= claim.lock_delay(),
            Defect::ReservesNothing => (),
            Defect::LooksSeldom => wait = Wait::No,
            Defect::ForeverIsNoWait if wait == Wait::Forever => wait = Wait::No,
            Defect::ExcludesNobody => {
                let number = self.numbers.fetch_add(1, Ordering::SeqCst);
                name = LockName::new(format!("{name}/{number}")).expect("a little longer");
            }
            _ => return claim.clone(),
        }
        let make =
            || Claim::new(name, claim.mode(), ttl, wait, claim.label().into()).with_clock(self.clock.clone());
        lock(&self.aliases).entry(claim.owner()).or_insert_with(make).clone()
    }

    async fn ask(&self, claim: &Claim) -> Result<Option<Grant>> {
        let (right, alias) = (self.right(), self.alias(claim));
        let held = right.acquire(&alias);
        match self.defect {
            Defect::EndsWaitsEarly | Defect::BlocksItsThread => {
                let Wait::Until(end) = claim.wait() else { return held.await };
                let blocks = self.is(Defect::BlocksItsThread);
                let limit = if blocks { Duration::ZERO } else { end.since(self.clock.now()) / 2 };
                let Some(answer) = self.clock.timeout(limit, held).await else {
                    right.release(&alias).await?;
                    if blocks {
                        lockwell_conformance::block(
                            &self.clock,
                            end.since(self.clock.now()) + Duration::from_millis(900),
                        );
                    }
                    return Ok(None);
                };
                answer
            }
            Defect::LooksSeldom => {
                drop(held);
                self.waiting.fetch_add(usize::from(claim.wait() != Wait::No), Ordering::SeqCst);
                let answer = self.look_until_granted(claim, &alias).await;
                self.waiting.fetch_sub(usize::from(claim.wait() != Wait::No), Ordering::SeqCst);
                answer
            }
            Defect::ReadersOvertake | Defect::PermitsOvertake
                if self.is(Defect::ReadersOvertake) == (claim.mode() == Mode::Shared) =>
            {
                let holders = right.inspect(claim.name()).await?.holders;
                if claim.mode() != Mode::Exclusive && holders.iter().any(|holder| holder.mode == claim.mode())
                {
                    self.second.acquire(claim).await
                } else {
                    held.await
                }
            }
            Defect::ForgetsAnotherKind | Defect::KeepsAnotherKind if claim.wait() != Wait::No => {
                let holders = right.inspect(claim.name()).await?.holders;
                if holders.iter().all(|holder| holder.mode.is_same_kind(claim.mode())) {
                    return held.await;
                }
                claim.note_waiting();
                if self.is(Defect::KeepsAnotherKind) {
                    let wait = Wait::Until(self.clock.now().after(Duration::from_secs(60)));
                    let (name, label) = (claim.name().clone(), claim.label().into());
                    let place = Claim::new(name, claim.mode(), claim.ttl(), wait, label);
                    let (server, place) = (Arc::clone(&right), place.with_clock(self.clock.clone()));
                    drop(tokio::spawn(async move { server.acquire(&place).await }));
                    claim.wait_over().await;
                    return Ok(None);
                }
                self.waiting.fetch_add(1, Ordering::SeqCst);
                claim.wait_over().await;
                self.waiting.fetch_sub(1, Ordering::SeqCst);
                Ok(None)
            }
            Defect::ReadersHaveOneLease if claim.mode() == Mode::Shared => {
                let answer = held.await?;
                let (server, clock) = (Arc::clone(&right), self.clock.clone());
                let (name, ttl) = (claim.name().clone(), claim.ttl());
                drop(tokio::spawn(async move {
                    clock.sleep(ttl).await;
                    server.force_release(&name).await
                }));
                Ok(answer)
            }
            Defect::OneAtATime => {
                let _inside = self.door.lock().await;
                tokio::task::yield_now().await;
                held.await
            }
            _ => held.await,
        }
    }

    async fn look_until_granted(&self, claim: &Claim, alias: &Claim) -> Result<Option<Grant>> {
        loop {
            let answer = self.right().acquire(alias).await?;
            if answer.is_some() || claim.is_wait_over() {
                return Ok(answer);
            }
            tokio::select! {
                () = self.released.notified() => (),
                () = self.clock.sleep(Duration::from_secs(4)) => (),
                () = claim.wait_over() => (),
            }
        }
    }

    /// The grant as the caller gets it.
    fn spoil(&self, claim: &Claim, grant: Grant) -> Grant {
        let is_new = lock(&self.granted).insert(claim.owner());
        match self.defect {
            Defect::ReservesNothing => grant,
            Defect::PromisesAnewWhenAskedAgain if !is_new => {
                Grant::new(claim, grant.last_token(), self.clock.now())
            }
            _ => Grant::new(claim, grant.last_token(), grant.sent()),
        }
    }
}

#[async_trait]
impl DistributedLock for Weak {
    fn capabilities(&self) -> Capabilities {
        let promised = self.right().capabilities();
        if self.is(Defect::AllowsAnyTtl) {
            promised.with_ttl(Duration::ZERO, Duration::MAX)
        } else {
            promised
        }
    }

    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        Ok(self.ask(claim).await?.map(|grant| self.spoil(claim, grant)))
    }

    async fn renew(&self, grants: &[Grant], until: Moment) -> Vec<Renewal> {
        let known = |grant: &Grant| {
            let alias = lock(&self.aliases).get(&grant.claim().owner()).cloned();
            alias.map_or_else(|| grant.clone(), |alias| Grant::new(&alias, grant.token(), grant.sent()))
        };
        let sent = self.clock.now();
        let mut answers = self.right().renew(&grants.iter().map(known).collect::<Vec<_>>(), until).await;
        if self.is(Defect::ForgetsTheLockDelay) {
            for (grant, answer) in grants.iter().zip(&mut answers) {
                if let Renewal::Renewed(deadline) = answer {
                    *deadline = valid_until(sent, grant.claim().ttl());
                }
            }
        }
        answers
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        let alias = lock(&self.aliases).get(&claim.owner()).unwrap_or(claim).clone();
        let mut answer = self.right().release(&alias).await?;
        if answer == Released::NotHeld {
            answer = self.second.release(&alias).await?;
        }
        self.released.notify_one();
        Ok(if self.is(Defect::DeniesTheRelease) { Released::NotHeld } else { answer })
    }

    async fn downgrade(&self, grant: &Grant) -> Result<Grant> {
        self.right().downgrade(grant).await
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        let mut status = self.right().inspect(name).await?;
        status.waiters += self.waiting.load(Ordering::SeqCst);
        Ok(status)
    }

    async fn names(&self) -> Result<Vec<LockName>> {
        let mut listed = Vec::new();
        for name in self.right().names().await? {
            let holders = self.right().inspect(&name).await?.holders;
            let alone = holders.iter().any(|holder| holder.mode == Mode::Exclusive);
            if alone || !self.is(Defect::ListsWritersOnly) {
                listed.push(name);
            }
        }
        Ok(listed)
    }

    async fn force_release(&self, name: &LockName) -> Result<usize> {
        self.right().force_release(name).await
    }

    async fn write_record(&self, grant: &Grant, write: RecordWrite<'_>) -> Result<()> {
        self.right().write_record(grant, write).await
    }

    async fn read_record(
        &self,
        name: &LockName,
        kind: RecordKind,
        under: Option<&Grant>,
    ) -> Result<Option<Record>> {
        self.right().read_record(name, kind, under).await
    }
}
