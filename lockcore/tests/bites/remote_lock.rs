//! A lock at a server behind a network that fails, right or with one mistake.

use std::sync::Arc;
use std::time::Duration;

use lockcore::backend::{
    Capabilities, Claim, DistributedLock, Error, ErrorKind, Grant, LockName, LockStatus, MemoryLock, Moment,
    Released, Renewal, Result, Wait, async_trait, valid_until,
};

use crate::network::{Lost, Machine, Network, Work};

/// What is wrong with a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// None: it passes all cases.
    None,
    /// A renewal without an answer counts as done.
    RenewsBlindly,
    /// The error of a server that is silent says that the program is wrong.
    CallsSilenceInternal,
    /// The error of a connection that breaks says that the lock was lost.
    CallsResetsLosses,
    /// A call has no limit.
    WaitsForEver,
    /// A release that is repeated says that nothing was held.
    DeniesWhatItRepeats,
    /// It repeats an acquire, and does not say that it is in doubt.
    ForgetsLateCopies,
    /// A free lock takes three round trips.
    AsksThreeTimes,
    /// The connection is never replaced.
    NeverReconnects,
    /// A restart of the server ends all leases, and tokens begin anew.
    ForgetsAtRestart,
    /// A waiter whose server is silent gives up.
    GivesUpInSilence,
    /// An acquire goes on after the end of its wait.
    KeepsAsking,
}

/// For how long a call is repeated.
const LIMIT: Duration = Duration::from_secs(2);
/// For how long an acquire goes on that nobody waits for.
const AFTERWARDS: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(crate) struct Remote {
    mistake: Mistake,
    machine: Arc<Machine>,
    network: Arc<Network>,
    /// How often the server had been restarted when the client was made.
    restarts: u64,
}

impl Remote {
    pub(crate) fn new(mistake: Mistake, machine: &Arc<Machine>, network: &Arc<Network>) -> Self {
        let (machine, network) = (Arc::clone(machine), Arc::clone(network));
        Self { mistake, restarts: machine.restarts(), machine, network }
    }

    fn is(&self, mistake: Mistake) -> bool {
        self.mistake == mistake
    }

    fn error(&self, lost: Lost) -> Error {
        let (kind, text) = match lost {
            Lost::Silent if self.is(Mistake::CallsSilenceInternal) => (ErrorKind::Internal, "no answer"),
            Lost::Silent => (ErrorKind::Unreachable, "the server does not answer"),
            Lost::Reset if self.is(Mistake::CallsResetsLosses) => (ErrorKind::Lost, "the connection is lost"),
            Lost::Reset => (ErrorKind::Unreachable, "the connection was reset"),
        };
        Error::new(kind, text)
    }

    fn check_connection(&self) -> Result<()> {
        if self.is(Mistake::NeverReconnects) && self.machine.restarts() != self.restarts {
            return Err(Error::new(ErrorKind::Internal, "the connection has ended"));
        }
        Ok(())
    }

    /// Whether a call without an answer is repeated after a pause.
    async fn tries_again(&self, lost: Lost, until: Moment) -> bool {
        let hasty = match lost {
            Lost::Silent => self.is(Mistake::CallsSilenceInternal) || self.is(Mistake::GivesUpInSilence),
            Lost::Reset => self.is(Mistake::CallsResetsLosses),
        };
        if hasty || (until.has_passed() && !self.is(Mistake::WaitsForEver)) {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        true
    }

    /// Asks until there is an answer, for a while.
    async fn ask<T: Send + 'static>(&self, make: impl Fn(Arc<MemoryLock>) -> Work<T>) -> Result<(T, bool)> {
        let until = Moment::now().after(LIMIT);
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
            () = self.machine.is_silent(), if self.is(Mistake::GivesUpInSilence) => Err(Lost::Silent),
        }
    }

    /// Takes the lock as soon as the server can be reached, and keeps it, though nobody waits for it any more.
    fn keep_asking(&self, claim: &Claim) {
        let wait = Wait::Until(Moment::now().after(AFTERWARDS));
        let again = Claim::new(claim.name().clone(), claim.mode(), claim.ttl(), wait, claim.label().into());
        let (network, machine) = (Network::default(), Arc::clone(&self.machine));
        drop(tokio::spawn(async move {
            let asked = again.clone();
            let granted =
                network.call(&machine, |memory| Box::pin(async move { memory.acquire(&asked).await }));
            let Ok(Ok(Some(grant))) = granted.await else { return };
            while !again.is_wait_over() {
                let grants = [grant.clone()];
                let renewed = network.call(&machine, |memory| {
                    Box::pin(async move { memory.renew(&grants, Moment::now()).await })
                });
                drop(renewed.await);
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }));
    }
}

#[async_trait]
impl DistributedLock for Remote {
    fn capabilities(&self) -> Capabilities {
        let mut promised = MemoryLock::new().capabilities();
        promised.downgrade = false;
        promised
    }

    async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        if self.is(Mistake::AsksThreeTimes) {
            for _ in 0..2 {
                self.inspect(claim.name()).await?;
            }
        }
        let until = match claim.wait() {
            Wait::No => Moment::now().after(LIMIT),
            Wait::Until(end) => end,
            _ => Moment::NEVER,
        };
        loop {
            self.check_connection()?;
            let lost = match self.acquire_once(claim).await {
                Ok(answer) => return answer,
                Err(lost) => lost,
            };
            if self.is(Mistake::KeepsAsking) {
                self.keep_asking(claim);
            }
            if claim.is_cancelled() || !self.tries_again(lost, until).await {
                return Err(self.error(lost));
            }
            if !self.is(Mistake::ForgetsLateCopies) {
                claim.note_in_doubt();
            }
        }
    }

    async fn renew(&self, grants: &[Grant], _: Moment) -> Vec<Renewal> {
        let wanted = grants.to_vec();
        let sent = Moment::now();
        let answers = self.network.call(&self.machine, |memory| {
            Box::pin(async move { memory.renew(&wanted, Moment::now()).await })
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
            Err(_) if self.is(Mistake::RenewsBlindly) => {
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
        Ok(match answer? {
            Released::NotHeld if repeated && !self.is(Mistake::DeniesWhatItRepeats) => Released::InDoubt,
            answer => answer,
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
}
