//! A lock that works, but for one thing.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use lockwell_core::backend::{
    Claim, Clock, DistributedLock, Grant, MemoryLock, Moment, OwnerId, Released, Renewal, Wait, async_trait,
    valid_until,
};
use lockwell_core::{Capabilities, Error, ErrorKind, FencingToken, LockName, LockStatus, Result};

use crate::defect::Defect;
use crate::flawed_lock::Controls;
use crate::lock;

#[derive(Debug)]
pub(crate) struct Broken {
    defect: Defect,
    clock: Clock,
    right: Arc<MemoryLock>,
    second: Arc<MemoryLock>,
    /// What the memory backend knows a claim as, where that differs.
    aliases: Mutex<HashMap<OwnerId, Claim>>,
    tokens: Mutex<HashMap<LockName, u64>>,
    asked: AtomicU64,
    waiting: AtomicUsize,
    /// The runtime that was the first to use it.
    home: OnceLock<tokio::runtime::Handle>,
}

impl Broken {
    pub(crate) fn new(defect: Defect, controls: &Controls) -> Self {
        let store = || Arc::new(MemoryLock::with_clock(controls.clock.clone()));
        Self {
            defect,
            clock: controls.clock.clone(),
            right: store(),
            second: store(),
            aliases: Mutex::default(),
            tokens: Mutex::default(),
            asked: AtomicU64::new(1),
            waiting: AtomicUsize::new(0),
            home: OnceLock::new(),
        }
    }

    /// Does something where this lock does everything, if it belongs to one runtime.
    async fn at_home<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        if !self.is(Defect::BelongsToOneRuntime) {
            return work.await;
        }
        let home = self.home.get_or_init(tokio::runtime::Handle::current);
        let gone = |_| Error::new(ErrorKind::Unreachable, "the runtime has ended");
        home.spawn(work).await.map_err(gone).and_then(|done| done)
    }

    fn is(&self, defect: Defect) -> bool {
        self.defect == defect
    }

    /// The store that keeps this claim. Half of the claims go to a second one if the lock grants twice.
    fn store(&self, claim: &Claim) -> &Arc<MemoryLock> {
        let odd = claim.owner().as_u128() % 2 == 1;
        if self.is(Defect::GrantsTwice) && odd { &self.second } else { &self.right }
    }

    /// The claim as the memory backend knows it.
    fn alias(&self, claim: &Claim) -> Claim {
        lock(&self.aliases).get(&claim.owner()).unwrap_or(claim).clone()
    }

    /// Makes another claim out of this one.
    fn disguise(&self, claim: &Claim, name: LockName, wait: Wait) -> Claim {
        let mut aliases = lock(&self.aliases);
        let make = || {
            Claim::new(name, claim.mode(), claim.ttl(), wait, claim.label().into())
                .with_clock(self.clock.clone())
        };
        aliases.entry(claim.owner()).or_insert_with(make).clone()
    }

    fn seen_name(&self, name: &LockName) -> LockName {
        if self.is(Defect::IgnoresCase) {
            LockName::new(name.as_str().to_ascii_lowercase()).expect("as good as before")
        } else {
            name.clone()
        }
    }

    async fn ask(&self, claim: &Claim) -> Result<Option<Grant>> {
        match self.defect {
            Defect::SetsWithoutLookingAgain | Defect::OvertakesTheQueue => self.without_a_queue(claim).await,
            Defect::IgnoresCase => {
                let disguised = self.disguise(claim, self.seen_name(claim.name()), claim.wait());
                self.right.acquire(&disguised).await
            }
            Defect::KeepsWaitersThatLeft if claim.wait() != Wait::No => {
                let patient = self.disguise(claim, claim.name().clone(), Wait::Forever);
                tokio::select! {
                    answer = self.right.acquire(&patient) => answer,
                    () = claim.wait_over() => Ok(None),
                }
            }
            _ => {
                let (store, claim) = (Arc::clone(self.store(claim)), claim.clone());
                self.at_home(async move { store.acquire(&claim).await }).await
            }
        }
    }

    /// Asks again and again instead of queueing. Between the look and the deed there may be time for another.
    async fn without_a_queue(&self, claim: &Claim) -> Result<Option<Grant>> {
        let now = self.disguise(claim, claim.name().clone(), Wait::No);
        self.waiting.fetch_add(usize::from(claim.wait() != Wait::No), Ordering::SeqCst);
        let answer = loop {
            if !self.right.inspect(claim.name()).await?.is_held() {
                if self.is(Defect::SetsWithoutLookingAgain) {
                    self.clock.sleep(Duration::from_millis(1)).await;
                    self.right.force_release(claim.name()).await?;
                }
                if let Some(grant) = self.right.acquire(&now).await? {
                    break Some(grant);
                }
            }
            if claim.is_wait_over() {
                break None;
            }
            self.clock.sleep(Duration::from_millis(2)).await;
        };
        self.waiting.fetch_sub(usize::from(claim.wait() != Wait::No), Ordering::SeqCst);
        Ok(answer)
    }

    /// The grant as the caller gets it.
    fn spoil(&self, claim: &Claim, grant: &Grant) -> Grant {
        let token = match self.defect {
            Defect::TokenStaysTheSame => FencingToken::new(7),
            Defect::LowerTokenWhenAskedAgain => {
                FencingToken::new(1000 - self.asked.fetch_add(1, Ordering::SeqCst))
            }
            Defect::TokenStartsAgainAfterRelease => {
                let mut tokens = lock(&self.tokens);
                let last = tokens.entry(claim.name().clone()).or_default();
                *last += 1;
                FencingToken::new(*last)
            }
            _ => grant.token(),
        };
        let excess = if self.is(Defect::ValidTooLong) { claim.ttl() / 2 } else { Duration::ZERO };
        Grant::new(claim, token, self.clock.now()).with_deadline(grant.deadline().after(excess))
    }
}

#[async_trait]
impl DistributedLock for Broken {
    fn capabilities(&self) -> Capabilities {
        self.right.capabilities()
    }

    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        Ok(self.ask(claim).await?.map(|grant| self.spoil(claim, &grant)))
    }

    async fn renew(&self, grants: &[Grant], until: Moment) -> Vec<Renewal> {
        let mut answers = Vec::new();
        for grant in grants {
            let ttl = grant.claim().ttl();
            let inner = Grant::new(&self.alias(grant.claim()), grant.token(), self.clock.now());
            let answer = self.store(grant.claim()).renew(&[inner], until).await.pop();
            answers.push(match answer.expect("one answer for one grant") {
                Renewal::Renewed(deadline) if self.is(Defect::ValidTooLongAfterRenewal) => {
                    Renewal::Renewed(deadline.after(ttl / 2))
                }
                Renewal::Renewed(_) if self.is(Defect::ExtendsLittle) => {
                    Renewal::Renewed(self.clock.now().after(ttl / 5))
                }
                Renewal::Lost if self.is(Defect::RenewsTheDead) => {
                    Renewal::Renewed(valid_until(self.clock.now(), ttl))
                }
                answer => answer,
            });
        }
        if self.is(Defect::LosesAllOrNone) && answers.iter().any(|one| !matches!(one, Renewal::Lost)) {
            for (grant, answer) in grants.iter().zip(&mut answers) {
                if matches!(answer, Renewal::Lost) {
                    *answer = Renewal::Renewed(valid_until(self.clock.now(), grant.claim().ttl()));
                }
            }
        }
        if self.is(Defect::AnswersForAll) && answers.iter().any(|one| matches!(one, Renewal::Lost)) {
            let unknown = || Renewal::Unknown(Error::new(ErrorKind::Unreachable, "one of them is lost"));
            return grants.iter().map(|_| unknown()).collect();
        }
        answers
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        match self.defect {
            Defect::ForgetsTheRelease => return Ok(Released::Released),
            Defect::FreesByNameAlone => {
                self.right.force_release(claim.name()).await?;
                return Ok(Released::Released);
            }
            Defect::TokenStartsAgainAfterRelease => drop(lock(&self.tokens).remove(claim.name())),
            Defect::KeepsWaitersThatLeft if self.inspect(claim.name()).await?.waiters > 0 => {
                return Ok(Released::NotHeld);
            }
            _ => (),
        }
        let (store, claim) = (Arc::clone(self.store(claim)), self.alias(claim));
        if self.is(Defect::ReleasesLater) {
            let clock = self.clock.clone();
            drop(tokio::spawn(async move {
                clock.sleep(Duration::from_millis(300)).await;
                store.release(&claim).await
            }));
            return Ok(Released::Released);
        }
        self.at_home(async move { store.release(&claim).await }).await
    }

    async fn names(&self) -> Result<Vec<LockName>> {
        self.right.names().await
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        let status = self.right.inspect(&self.seen_name(name)).await?;
        let waiters = status.waiters + self.waiting.load(Ordering::SeqCst);
        Ok(LockStatus::new(name.clone(), status.holders, waiters).waiting(status.waiting))
    }

    async fn force_release(&self, name: &LockName) -> Result<usize> {
        self.right.force_release(&self.seen_name(name)).await
    }
}
