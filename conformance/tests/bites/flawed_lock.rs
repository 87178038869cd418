//! The memory backend with one defect, for what [`Broken`](super::broken_lock::Broken) does not break.

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockwell_conformance::skipping_clock;
use lockwell_core::backend::MemoryLock;
use lockwell_core::backend::{
    Capabilities, Claim, Clock, DistributedLock, Error, ErrorKind, FencingToken, Grant, Holder, LockName,
    LockStatus, Mode, Moment, OwnerId, Released, Renewal, Requirement, Result, Wait, WaitingClaim,
    async_trait,
};

use crate::defect::Defect;
use crate::lock;

/// What the harness counts and does at the server of a lock.
#[derive(Clone, Debug)]
pub(crate) struct Controls {
    /// The clock of the server.
    pub(crate) clock: Clock,
    /// How many requests the server has got.
    pub(crate) requests: Arc<AtomicU64>,
    /// Whether another server has taken over.
    pub(crate) failed_over: Arc<AtomicBool>,
}

impl Controls {
    pub(crate) fn new() -> Self {
        Self { clock: skipping_clock(), requests: Arc::default(), failed_over: Arc::default() }
    }
}

/// A lock that works, but for one thing.
pub(crate) struct Flawed {
    defect: Defect,
    controls: Controls,
    clock: Clock,
    first: MemoryLock,
    /// The server that takes over.
    second: MemoryLock,
    /// Rings at each release.
    released: tokio::sync::Notify,
    /// What the memory backend knows a claim as, where that differs.
    aliases: Mutex<HashMap<OwnerId, Claim>>,
    seen: Mutex<HashMap<LockName, Holder>>,
    named: Mutex<HashMap<LockName, Vec<WaitingClaim>>>,
    last: Mutex<Option<OwnerId>>,
    /// The last grant of each lock.
    granted: Mutex<HashMap<LockName, Grant>>,
    waiting: AtomicUsize,
}

impl fmt::Debug for Flawed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = lock(&self.last).filter(|_| self.is(Defect::ShowsItsOwners));
        f.debug_struct("Flawed")
            .field("last", &last.map(|owner| owner.as_u128().to_be_bytes()))
            .finish_non_exhaustive()
    }
}

const LONG: Duration = Duration::from_millis(800);

impl Flawed {
    pub(crate) fn new(defect: Defect, controls: &Controls) -> Self {
        Self {
            defect,
            controls: controls.clone(),
            clock: controls.clock.clone(),
            first: MemoryLock::with_clock(controls.clock.clone()),
            second: MemoryLock::with_clock(controls.clock.clone()),
            released: tokio::sync::Notify::new(),
            aliases: Mutex::default(),
            seen: Mutex::default(),
            named: Mutex::default(),
            last: Mutex::default(),
            granted: Mutex::default(),
            waiting: AtomicUsize::new(0),
        }
    }

    fn is(&self, defect: Defect) -> bool {
        self.defect == defect
    }

    /// The server that serves now.
    fn right(&self) -> &MemoryLock {
        let forgets = self.is(Defect::ForgetsAtFailover) && self.controls.failed_over.load(Ordering::SeqCst);
        if forgets { &self.second } else { &self.first }
    }

    /// Whether waiters ask again and again instead of queueing.
    fn asks_again(&self) -> bool {
        matches!(self.defect, Defect::PromisesWakeUps | Defect::WakesAll)
    }

    /// Whether the release of this claim is answered, and not done.
    fn keeps(&self, claim: &Claim) -> bool {
        match self.defect {
            Defect::KeepsReaders => claim.mode() == Mode::Shared,
            Defect::KeepsTheCancelled => claim.is_cancelled(),
            _ => false,
        }
    }

    async fn acquire_once(&self, alias: &Claim) -> Result<Option<Grant>> {
        if self.is(Defect::KeepsTheCancelled) {
            self.clock.sleep(Duration::from_millis(1)).await;
        }
        self.controls.requests.fetch_add(1, Ordering::SeqCst);
        self.right().acquire(alias).await
    }

    /// The claim as the memory backend gets it.
    fn alias(&self, claim: &Claim) -> Claim {
        let mode = match claim.mode() {
            Mode::Shared if self.is(Defect::ReadersAreWriters) => Mode::Exclusive,
            Mode::Permit { limit } if self.is(Defect::OnePermitMore) => {
                Mode::Permit { limit: limit.saturating_add(1) }
            }
            mode => mode,
        };
        let wait = match claim.wait() {
            Wait::Until(_) if self.asks_again() => Wait::No,
            wait => wait,
        };
        let name = self.shelf(claim.name(), claim.mode());
        // Another claim, which reserves one token.
        let reserves_less = self.is(Defect::ReservesOneToken);
        if mode == claim.mode() && wait == claim.wait() && name == *claim.name() && !reserves_less {
            return claim.clone();
        }
        let make =
            || Claim::new(name, mode, claim.ttl(), wait, claim.label().into()).with_clock(self.clock.clone());
        lock(&self.aliases).entry(claim.owner()).or_insert_with(make).clone()
    }

    /// Where a lock is kept.
    fn shelf(&self, name: &LockName, mode: Mode) -> LockName {
        match mode {
            Mode::Permit { limit } if self.is(Defect::MixesKinds) => {
                LockName::new(format!("{name}/{limit}")).expect("a little longer")
            }
            _ => name.clone(),
        }
    }

    fn spoil(&self, claim: &Claim, grant: &Grant) -> Grant {
        let token = match claim.mode() {
            _ if self.is(Defect::ReservesOneToken) => {
                FencingToken::new(grant.last_token().get() + u64::from(claim.tokens().get()) - 1)
            }
            Mode::Shared if self.is(Defect::ReadersHaveNoTokens) => FencingToken::new(0),
            _ => grant.last_token(),
        };
        let spoiled = Grant::new(claim, token, grant.sent());
        lock(&self.last).replace(claim.owner());
        spoiled
    }

    async fn ask(&self, claim: &Claim) -> Result<Option<Grant>> {
        let alias = self.alias(claim);
        let mut answer = self.acquire_once(&alias).await?;
        if answer.is_some() || claim.wait() == Wait::No || !self.asks_again() {
            return Ok(answer);
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while answer.is_none() && !claim.is_wait_over() {
            let second = self.clock.timeout(Duration::from_secs(1), claim.wait_over());
            tokio::select! {
                ended = second => ended.unwrap_or_default(),
                () = self.released.notified(), if self.is(Defect::WakesAll) => (),
            }
            answer = self.acquire_once(&alias).await?;
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        Ok(answer)
    }
}

#[async_trait]
impl DistributedLock for Flawed {
    fn capabilities(&self) -> Capabilities {
        let promised = self.right().capabilities();
        match self.defect {
            Defect::PromisesNoOrder => promised.without([Requirement::Fifo]),
            Defect::PromisesNews => promised.promising([Requirement::LossPush]),
            Defect::PromisesOtherHosts => promised.promising([Requirement::AcrossHosts]),
            _ => promised,
        }
    }

    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        let answer = self.ask(claim).await?;
        if answer.is_none() && claim.wait() == Wait::No && self.is(Defect::RefusesLate) {
            self.clock.sleep(LONG).await;
        }
        if let Some(grant) = &answer {
            lock(&self.granted).insert(claim.name().clone(), grant.clone());
        }
        Ok(answer.map(|grant| self.spoil(claim, &grant)))
    }

    async fn renew(&self, grants: &[Grant], until: Moment) -> Vec<Renewal> {
        if self.is(Defect::NeverRenews) {
            let unknown = || Renewal::Unknown(Error::new(ErrorKind::Unreachable, "never"));
            return grants.iter().map(|_| unknown()).collect();
        }
        if self.is(Defect::RenewsOneByOne) {
            self.clock
                .sleep(Duration::from_millis(20) * u32::try_from(grants.len()).unwrap_or(u32::MAX))
                .await;
        }
        let known = |grant: &Grant| Grant::new(&self.alias(grant.claim()), grant.token(), self.clock.now());
        self.right().renew(&grants.iter().map(known).collect::<Vec<_>>(), until).await
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        self.controls.requests.fetch_add(1, Ordering::SeqCst);
        if self.keeps(claim) {
            return Ok(Released::Released);
        }
        let answer = self.right().release(&self.alias(claim)).await?;
        self.released.notify_waiters();
        Ok(if self.is(Defect::AlwaysReleased) { Released::Released } else { answer })
    }

    async fn downgrade(&self, grant: &Grant) -> Result<Grant> {
        if self.is(Defect::NeverDowngrades) {
            return Ok(grant.downgraded());
        }
        if self.is(Defect::DowngradesWithAGap) {
            let reader = grant.downgraded();
            self.right().release(grant.claim()).await?;
            self.clock.sleep(Duration::from_millis(50)).await;
            drop(self.right().acquire(reader.claim()).await?);
            return Ok(reader);
        }
        let answer = self.right().downgrade(grant).await;
        let present = lock(&self.granted).get(grant.claim().name()).cloned();
        if let Some(present) = present.filter(|_| answer.is_err() && self.is(Defect::DowngradesByName)) {
            drop(self.right().downgrade(&present).await);
        }
        answer
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        let status = self.right().inspect(name).await?;
        let mut holders = status.holders;
        if self.is(Defect::MixesKinds) {
            let limits = (1..4).filter_map(NonZeroU32::new);
            for limit in limits {
                let shelf = self.shelf(name, Mode::Permit { limit });
                holders.extend(self.right().inspect(&shelf).await?.holders);
            }
        }
        for holder in &mut holders {
            if self.is(Defect::CutsLabels) {
                holder.label = holder.label.chars().take(20).collect();
            }
            if self.is(Defect::HeldSinceNow) {
                holder.held_for = Duration::ZERO;
            }
        }
        if self.is(Defect::ShowsTheDead) {
            let mut seen = lock(&self.seen);
            match holders.first() {
                Some(holder) => drop(seen.insert(name.clone(), holder.clone())),
                None if lock(&self.last).is_some() => {
                    let dead = Holder::new(FencingToken::new(1), "dead", Mode::Exclusive, Duration::ZERO);
                    holders.push(seen.get(name).cloned().unwrap_or(dead));
                }
                None => (),
            }
        }
        let waiters = if self.is(Defect::CountsNoWaiters) {
            0
        } else {
            status.waiters + self.waiting.load(Ordering::SeqCst)
        };
        let waits = |waited: Duration| match self.defect {
            Defect::WaitsSinceNow => Duration::from_nanos(waited.subsec_nanos().into()),
            _ => waited,
        };
        let mut waiting = status.waiting;
        match self.defect {
            Defect::NamesThoseWhoLeft => {
                let mut named = lock(&self.named);
                let seen = named.entry(name.clone()).or_default();
                if waiting.len() > seen.len() {
                    seen.clone_from(&waiting);
                }
                waiting.clone_from(seen);
            }
            Defect::NamesTheLastFirst => waiting.reverse(),
            _ => (),
        }
        let status = LockStatus::new(name.clone(), holders, waiters).waiting(waiting);
        let longest = status.longest_wait.map(waits);
        Ok(status.longest_wait(longest))
    }

    async fn force_release(&self, name: &LockName) -> Result<usize> {
        let freed = self.right().force_release(name).await?;
        Ok(match self.defect {
            Defect::CountsOneTooMany => freed + 1,
            Defect::FreesOneReaderOfAll => freed.min(1),
            _ => freed,
        })
    }
}
