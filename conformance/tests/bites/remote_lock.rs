//! A lock at a server behind a network that fails, right or with one defect.

use std::sync::Arc;
use std::time::Duration;

use lockwell_core::backend::{
    Capabilities, Claim, Clock, DistributedLock, Error, ErrorKind, Grant, LockName, LockStatus, MemoryLock,
    Moment, Record, RecordKind, RecordWrite, Released, Renewal, Requirement, Result, Wait, async_trait,
    valid_until,
};

use crate::defect::Defect;
use crate::network::{Lost, Machine, Network, Work};

/// For how long a call is repeated.
const LIMIT: Duration = Duration::from_secs(2);
/// For how long an acquire goes on that nobody waits for.
const AFTERWARDS: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(crate) struct Remote {
    defect: Defect,
    machine: Arc<Machine>,
    clock: Clock,
    network: Arc<Network>,
    /// How often the server had been restarted when the client was made.
    restarts: u64,
}

impl Remote {
    pub(crate) fn new(defect: Defect, machine: &Arc<Machine>, network: &Arc<Network>) -> Self {
        let (machine, network) = (Arc::clone(machine), Arc::clone(network));
        Self { defect, restarts: machine.restarts(), clock: machine.clock.clone(), machine, network }
    }

    fn is(&self, defect: Defect) -> bool {
        self.defect == defect
    }

    fn error(&self, lost: Lost) -> Error {
        let is_hasty = self.is(Defect::CallsSilenceInternal) || self.is(Defect::GivesUpInSilence);
        let (kind, text) = match lost {
            Lost::Silent if is_hasty => (ErrorKind::Internal, "no answer"),
            Lost::Silent => (ErrorKind::Unreachable, "the server does not answer"),
            Lost::Reset if self.is(Defect::CallsResetsLosses) => (ErrorKind::Lost, "the connection is lost"),
            Lost::Reset => (ErrorKind::Unreachable, "the connection was reset"),
        };
        Error::new(kind, text)
    }

    fn check_connection(&self) -> Result<()> {
        if self.is(Defect::NeverReconnects) && self.machine.restarts() != self.restarts {
            return Err(Error::new(ErrorKind::Internal, "the connection has ended"));
        }
        Ok(())
    }

    /// Whether a call without an answer is repeated after a pause.
    async fn tries_again(&self, lost: Lost, until: Moment) -> bool {
        let hasty = match lost {
            Lost::Silent => self.is(Defect::CallsSilenceInternal) || self.is(Defect::GivesUpInSilence),
            Lost::Reset => self.is(Defect::CallsResetsLosses),
        };
        if hasty || (self.clock.has_passed(until) && !self.is(Defect::WaitsForEver)) {
            return false;
        }
        self.clock.sleep(Duration::from_millis(20)).await;
        true
    }

    /// Asks until there is an answer, for a while.
    async fn ask<T: Send + 'static>(&self, make: impl Fn(Arc<MemoryLock>) -> Work<T>) -> Result<(T, bool)> {
        let until = self.clock.now().after(LIMIT);
        let mut repeated = false;
        loop {
            self.check_connection()?;
            let lost = match self.network.call(&self.machine, &make).await {
                Ok(value) => return Ok((value, repeated)),
                Err(lost) => lost,
            };
            if !self.tries_again(lost, until).await {
                return Err(self.error(lost));
            }
            repeated = true;
        }
    }

    async fn acquire_once(&self, claim: &Claim) -> std::result::Result<Result<Option<Grant>>, Lost> {
        let wanted = claim.clone();
        let call =
            self.network.call(&self.machine, |memory| Box::pin(async move { memory.acquire(&wanted).await }));
        tokio::select! {
            answer = call => answer,
            () = self.machine.is_silent(), if self.is(Defect::GivesUpInSilence) => Err(Lost::Silent),
        }
    }

    /// Takes the lock as soon as the server can be reached, and keeps it, though nobody waits for it any
    /// more.
    fn keep_asking(&self, claim: &Claim) {
        let wait = Wait::Until(self.clock.now().after(AFTERWARDS));
        let again = Claim::new(claim.name().clone(), claim.mode(), claim.ttl(), wait, claim.label().into())
            .with_clock(self.clock.clone());
        let (network, machine) = (Network::new(&self.clock), Arc::clone(&self.machine));
        let clock = self.clock.clone();
        drop(tokio::spawn(async move {
            let asked = again.clone();
            let granted =
                network.call(&machine, |memory| Box::pin(async move { memory.acquire(&asked).await }));
            let Ok(Ok(Some(grant))) = granted.await else { return };
            while !again.is_wait_over() {
                let grants = [grant.clone()];
                let renewed = network.call(&machine, |memory| {
                    Box::pin(async move { memory.renew(&grants, Moment::NEVER).await })
                });
                drop(renewed.await);
                clock.sleep(Duration::from_millis(200)).await;
            }
        }));
    }
}

#[async_trait]
impl DistributedLock for Remote {
    fn capabilities(&self) -> Capabilities {
        MemoryLock::new().capabilities().without([Requirement::Downgrade])
    }

    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        if self.is(Defect::AsksThreeTimes) {
            for _ in 0..2 {
                self.inspect(claim.name()).await?;
            }
        }
        let until = match claim.wait() {
            Wait::No => self.clock.now().after(LIMIT),
            Wait::Until(end) => end,
            _ => Moment::NEVER,
        };
        let mut asked = claim.clone();
        loop {
            self.check_connection()?;
            let answered = match claim.wait() {
                Wait::Until(end) if self.is(Defect::EndsByTheClock) => {
                    self.clock.timeout_at(end, self.acquire_once(&asked)).await
                }
                _ => Some(self.acquire_once(&asked).await),
            };
            let lost = match answered {
                Some(Ok(Ok(Some(grant)))) if asked.name() != claim.name() => {
                    return Ok(Some(Grant::new(claim, grant.last_token(), grant.sent())));
                }
                Some(Ok(answer)) => return answer,
                Some(Err(lost)) => lost,
                None => return Err(Error::new(ErrorKind::TimedOut, "the wait ended")),
            };
            if self.is(Defect::MixesKindsWhenRepeated) && asked.name() == claim.name() {
                let name = LockName::new(format!("{}/again", claim.name())).expect("a little longer");
                asked = Claim::new(name, claim.mode(), claim.ttl(), claim.wait(), claim.label().into())
                    .with_clock(self.clock.clone());
            }
            if self.is(Defect::KeepsAsking) {
                self.keep_asking(claim);
            }
            if claim.is_cancelled() || !self.tries_again(lost, until).await {
                return Err(self.error(lost));
            }
            if !self.is(Defect::ForgetsLateCopies) {
                claim.note_in_doubt();
            }
        }
    }

    async fn renew(&self, grants: &[Grant], _: Moment) -> Vec<Renewal> {
        let wanted = grants.to_vec();
        let sent = self.clock.now();
        let answers = self.network.call(&self.machine, |memory| {
            Box::pin(async move { memory.renew(&wanted, Moment::NEVER).await })
        });
        match answers.await {
            Ok(answers) => {
                // The server does not know when this was sent.
                let from = |answer, grant: &Grant| match answer {
                    Renewal::Renewed(_) => Renewal::Renewed(valid_until(sent, grant.claim().ttl())),
                    answer => answer,
                };
                answers.into_iter().zip(grants).map(|(answer, grant)| from(answer, grant)).collect()
            }
            Err(_) if self.is(Defect::RenewsBlindly) => {
                let blind = |grant: &Grant| Renewal::Renewed(valid_until(sent, grant.claim().ttl()));
                grants.iter().map(blind).collect()
            }
            Err(lost) => grants.iter().map(|_| Renewal::Unknown(self.error(lost))).collect(),
        }
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        let wanted = claim.clone();
        let (answer, repeated) = self
            .ask(move |memory| {
                let wanted = wanted.clone();
                Box::pin(async move { memory.release(&wanted).await })
            })
            .await?;
        Ok(match (answer?, self.defect) {
            (Released::NotHeld, Defect::ConfirmsWhatItRepeats) if repeated => Released::Released,
            (answer, Defect::DeniesWhatItRepeats) => answer,
            (Released::NotHeld, _) if repeated => Released::InDoubt,
            (answer, _) => answer,
        })
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        let wanted = name.clone();
        let asked = self.ask(move |memory| {
            let wanted = wanted.clone();
            Box::pin(async move { memory.inspect(&wanted).await })
        });
        asked.await?.0
    }

    async fn force_release(&self, name: &LockName) -> Result<usize> {
        let wanted = name.clone();
        let asked = self.ask(move |memory| {
            let wanted = wanted.clone();
            Box::pin(async move { memory.force_release(&wanted).await })
        });
        asked.await?.0
    }

    async fn write_record(&self, grant: &Grant, write: RecordWrite<'_>) -> Result<()> {
        let (grant, kind, number) = (grant.clone(), write.kind, write.number);
        let value = write.value.to_vec();
        let asked = self.ask(move |memory| {
            let (grant, value) = (grant.clone(), value.clone());
            Box::pin(
                async move { memory.write_record(&grant, RecordWrite { kind, number, value: &value }).await },
            )
        });
        asked.await?.0
    }

    async fn read_record(
        &self,
        name: &LockName,
        kind: RecordKind,
        _: Option<&Grant>,
    ) -> Result<Option<Record>> {
        let wanted = name.clone();
        let asked = self.ask(move |memory| {
            let wanted = wanted.clone();
            Box::pin(async move { memory.read_record(&wanted, kind, None).await })
        });
        asked.await?.0
    }

    async fn records(&self, kind: RecordKind) -> Result<Vec<LockName>> {
        let asked = self.ask(move |memory| Box::pin(async move { memory.records(kind).await }));
        asked.await?.0
    }
}
