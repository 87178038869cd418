//! A lock at one server, which asks again and again until it is free.

use std::sync::Arc;
use std::time::Duration;

use lockwell::backend::{
    Claim, DistributedLock, Grant, Moment, OwnerId, Released, Renewal, Requirement, async_trait, valid_until,
};
use lockwell::{Capabilities, Error, ErrorKind, FencingToken, Holder, LockName, LockStatus, Mode, Result};

use super::defect::Defect;
use super::server::Server;

/// Between two questions.
const PAUSE: Duration = Duration::from_millis(1);

/// How long a request or an answer takes, where that matters.
const WAY: Duration = Duration::from_millis(3);

#[derive(Debug)]
pub(super) struct OneServer {
    defect: Defect,
    server: Arc<Server>,
}

fn is_odd(owner: OwnerId) -> bool {
    owner.as_u128() % 2 == 1
}

impl OneServer {
    pub(super) fn new(defect: Defect) -> Self {
        Self { defect, server: Arc::default() }
    }

    fn is(&self, defect: Defect) -> bool {
        self.defect == defect
    }

    /// Whether leases have an end. Without one, what is left behind stays.
    fn lease(&self, claim: &Claim, now: Moment) -> Moment {
        match self.defect {
            Defect::ReleaseOvertakes | Defect::NoCleanUp => now.after(Duration::from_hours(1)),
            Defect::NowOfTransaction => claim.began().after(claim.ttl()),
            Defect::StaleSession | Defect::OutlivesSession => now.after(claim.ttl() / 4),
            _ => now.after(claim.ttl()),
        }
    }

    /// Asks once.
    fn ask(&self, claim: &Claim) -> Option<u64> {
        let (name, owner) = (claim.name(), claim.owner());
        let mut now = Moment::now();
        if self.is(Defect::ClientsWallClock) && is_odd(owner) {
            now = now.after(claim.ttl());
        }
        let token = self.server.take(name, owner, now, self.lease(claim, now));
        let forgets = matches!(self.defect, Defect::TokenTwice | Defect::GuardTakesEqualTokens);
        if token.is_none() && forgets && is_odd(owner) {
            return Some(self.server.with(name, |row| row.token));
        }
        token
    }

    /// The request is under way for a while, whatever becomes of the caller.
    async fn ask_from_afar(&self, claim: &Claim) -> Option<u64> {
        let (server, until) = (Arc::clone(&self.server), self.lease(claim, Moment::now()));
        let (name, owner) = (claim.name().clone(), claim.owner());
        let request = tokio::spawn(async move {
            tokio::time::sleep(WAY).await;
            server.take(&name, owner, Moment::now(), until)
        });
        tokio::select! {
            answer = request => answer.unwrap_or_default(),
            () = claim.wait_over() => None,
        }
    }
}

#[async_trait]
impl DistributedLock for OneServer {
    fn capabilities(&self) -> Capabilities {
        Capabilities::minimal("broken").promising([Requirement::Fencing])
    }

    async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        while !claim.is_wait_over() {
            let mut sent = Moment::now();
            let mut token = match self.defect {
                Defect::ReleaseOvertakes => self.ask_from_afar(claim).await,
                _ => self.ask(claim),
            };
            if matches!(self.defect, Defect::NoCleanUp) {
                tokio::time::sleep(WAY).await;
            }
            if self.is(Defect::CountsFromAnswer) && token.is_some() && is_odd(claim.owner()) {
                tokio::time::sleep(claim.ttl() / 3).await;
                sent = Moment::now();
            }
            if self.is(Defect::GrantWithoutLook) && Moment::now().since(claim.began()) > WAY {
                token = token.or_else(|| {
                    Some(self.server.with(claim.name(), |row| {
                        row.token += 1;
                        row.token
                    }))
                });
            }
            if let Some(token) = token {
                return Ok(Some(Grant::new(claim, FencingToken::new(token), sent)));
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(None)
    }

    async fn renew(&self, grants: &[Grant], _: Moment) -> Vec<Renewal> {
        let each = grants.iter().map(|grant| {
            let (claim, sent) = (grant.claim(), Moment::now());
            let renewed = Renewal::Renewed(valid_until(sent, claim.ttl()));
            match self.defect {
                // Nothing arrives: the lease runs out.
                Defect::CountsFromAnswer
                | Defect::OutlivesSession
                | Defect::ReleaseWithoutCompare
                | Defect::NotRenewed => Renewal::Unknown(Error::new(ErrorKind::Unreachable, "no answer")),
                Defect::RenewsStolen => {
                    self.server.with(claim.name(), |row| row.until = sent.after(claim.ttl()));
                    renewed
                }
                Defect::StaleSession | Defect::TokenTwice | Defect::GuardTakesEqualTokens => renewed,
                _ if self.server.extend(claim.name(), claim.owner(), sent.after(claim.ttl())) => renewed,
                _ => Renewal::Lost,
            }
        });
        each.collect()
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        if self.is(Defect::ReleaseWithoutCompare) {
            tokio::time::sleep(2 * WAY).await;
        }
        let is_released = match self.defect {
            Defect::ReleaseWithoutCompare => self.server.free_by_name(claim.name()),
            Defect::NoCleanUp if claim.is_cancelled() => false,
            _ => self.server.free(claim.name(), claim.owner()),
        };
        Ok(if is_released { Released::Released } else { Released::NotHeld })
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        let (row, now) = (self.server.with(name, |row| *row), Moment::now());
        let holder =
            || Holder::new(FencingToken::new(row.token), "somebody", Mode::Exclusive, row.until.since(now));
        Ok(LockStatus::new(name.clone(), row.is_held(now).then(holder).into_iter().collect(), 0))
    }

    async fn force_release(&self, name: &LockName) -> Result<usize> {
        let freed = self.server.free_by_name(name);
        if self.is(Defect::ForceRepeated) {
            let (server, name) = (Arc::clone(&self.server), name.clone());
            drop(tokio::spawn(async move {
                for _ in 0..2 {
                    tokio::time::sleep(2 * WAY).await;
                    server.free_by_name(&name);
                }
            }));
        }
        Ok(usize::from(freed))
    }
}
