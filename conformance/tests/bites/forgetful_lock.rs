//! The memory backend with grace periods, and one defect in them.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lockwell_core::backend::{
    Capabilities, Claim, Clock, DistributedLock, Error, ErrorKind, Grant, LockName, LockStatus, MemoryLock,
    Mode, Moment, Record, RecordKind, RecordWrite, Released, Renewal, Result, Wait, async_trait, closed_for,
};

use crate::defect::Defect;

/// How long such a server grants nothing.
const PERIOD: Duration = Duration::from_secs(60);
/// The pause between two tries of a claim that waits.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Forgetful {
    defect: Defect,
    clock: Clock,
    memory: MemoryLock,
    opens: Mutex<Option<Moment>>,
}

impl Forgetful {
    pub(crate) fn new(defect: Defect, clock: &Clock) -> Self {
        let memory = MemoryLock::with_clock(clock.clone());
        Self { defect, clock: clock.clone(), memory, opens: Mutex::default() }
    }

    /// For how long it grants nothing.
    fn left(&self) -> Option<Duration> {
        let opens = *self.opens.lock().unwrap_or_else(PoisonError::into_inner);
        opens.map(|opens| opens.since(self.clock.now())).filter(|left| !left.is_zero())
    }

    /// For how long this claim is refused.
    fn refuses(&self, claim: &Claim) -> Option<Duration> {
        let is_free = match self.defect {
            Defect::GrantsWithoutMark => true,
            Defect::GrantsToReadersWithoutMark => claim.mode() == Mode::Shared,
            _ => false,
        };
        self.left().filter(|_| !is_free)
    }
}

#[async_trait]
impl DistributedLock for Forgetful {
    fn capabilities(&self) -> Capabilities {
        self.memory.capabilities()
    }

    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        while let Some(left) = self.refuses(claim) {
            if self.defect == Defect::CallsTheUnknownHeld {
                return Ok(None);
            }
            if claim.wait() == Wait::No {
                return Err(Error::new(ErrorKind::GracePeriod, closed_for(left)));
            }
            let closed = Error::new(ErrorKind::GracePeriod, closed_for(left));
            claim.note_obstacle(Some(&closed));
            if self.clock.timeout(PAUSE, claim.wait_over()).await.is_some() {
                return Err(closed);
            }
        }
        claim.note_obstacle(None);
        self.memory.acquire(claim).await
    }

    async fn renew(&self, grants: &[Grant], until: Moment) -> Vec<Renewal> {
        if self.left().is_some() && self.defect == Defect::ReclaimsNothing {
            return grants.iter().map(|_| Renewal::Lost).collect();
        }
        self.memory.renew(grants, until).await
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        self.memory.release(claim).await
    }

    async fn downgrade(&self, grant: &Grant) -> Result<Grant> {
        self.memory.downgrade(grant).await
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        let mut status = self.memory.inspect(name).await?;
        status.unknown_for = self.left().filter(|_| self.defect != Defect::CallsTheUnknownFree);
        Ok(status)
    }

    async fn force_release(&self, name: &LockName) -> Result<usize> {
        self.memory.force_release(name).await
    }

    async fn write_record(&self, grant: &Grant, write: RecordWrite<'_>) -> Result<()> {
        if let Some(left) = self.left().filter(|_| self.defect != Defect::WritesInGracePeriods) {
            return Err(Error::new(ErrorKind::GracePeriod, closed_for(left)));
        }
        self.memory.write_record(grant, write).await
    }

    async fn read_record(
        &self,
        name: &LockName,
        kind: RecordKind,
        under: Option<&Grant>,
    ) -> Result<Option<Record>> {
        self.memory.read_record(name, kind, under).await
    }

    async fn grace_left(&self) -> Result<Option<Duration>> {
        Ok(self.left())
    }

    async fn begin_grace(&self) -> Result<Duration> {
        if self.left().is_none() || self.defect != Defect::BeginsNoPeriodAnew {
            let opens = self.clock.now().after(PERIOD);
            *self.opens.lock().unwrap_or_else(PoisonError::into_inner) = Some(opens);
        }
        Ok(PERIOD)
    }
}
