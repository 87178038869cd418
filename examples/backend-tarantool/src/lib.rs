//! Tarantool as a backend of lockwell, written against its public API alone: `tarantool://HOST:PORT`, where
//! `locks.lua` runs. It has the queue of waiters as well, and a call that takes a lock waits there.

mod connection;

use std::time::Duration;

use connection::Connection;
use lockwell::backend::{
    Capabilities, Claim, DistributedLock, Error, ErrorKind, Failure, FencingToken, Grant, Holder, LockName,
    LockStatus, Mode, Moment, Reconnect, Released, Renewal, Requirement, Result, ServerUrl, Wait,
    async_trait, valid_until,
};
use serde::{Serialize, de::DeserializeOwned};

/// A request without an answer for this time is repeated on a new connection.
const SILENCE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct TarantoolLock {
    address: String,
    timeout: Duration,
    connections: Reconnect<Connection>,
}

/// lockwell's backends and this one.
pub fn registry() -> Result<lockwell::Registry> {
    lockwell::Registry::new().with("tarantool", |url| async move { TarantoolLock::connect(&url).await })
}

impl TarantoolLock {
    async fn connect(url: &ServerUrl) -> Result<Self> {
        url.allow_options(&["timeout"])?;
        if url.hosts()?.len() > 1 || url.user().is_some() {
            return Err(Error::new(ErrorKind::InvalidInput, "the address is one HOST:PORT, without a user"));
        }
        let (address, connections) = (url.servers(3301), Reconnect::new(SILENCE));
        let this = Self { address, timeout: url.timeout()?, connections };
        this.inspect(&LockName::new("any")?).await?;
        Ok(this)
    }

    fn soon(&self) -> Moment {
        Moment::now().after(self.timeout)
    }

    /// What a procedure returned, when the call was sent, and whether there was an earlier copy of it, which
    /// may still take the lock for this claim.
    async fn call<T: DeserializeOwned>(
        &self,
        until: Moment,
        claim: Option<&Claim>,
        function: &str,
        arguments: impl Serialize,
    ) -> Result<(T, Moment, bool)> {
        let doubtful = |error| {
            Failure::Doubtful(Error::new(ErrorKind::Unreachable, "Tarantool is not there").with_source(error))
        };
        let internal = |error| Error::new(ErrorKind::Internal, "another kind of value").with_source(error);
        let arguments = rmpv::ext::to_value(arguments).map_err(internal)?;
        let connect = || async { Connection::open(&self.address).await.map_err(doubtful) };
        let call = |on: Connection, again: bool| {
            claim.filter(|_| again).map(Claim::note_in_doubt);
            let (arguments, sent) = (arguments.clone(), Moment::now());
            async move {
                match on.call(function, arguments).await.map_err(doubtful)? {
                    Ok(value) => Ok((rmpv::ext::from_value(value).map_err(internal), sent, again)),
                    Err(text) => Err(Failure::Refused(Error::new(ErrorKind::Refused, text))),
                }
            }
        };
        let named = |error: Error| error.on_backend("tarantool").at(self.address.as_str());
        let (value, sent, again) = self.connections.ask(until, connect, call).await.map_err(named)?;
        Ok((value?, sent, again))
    }
}

fn owner(claim: &Claim) -> String {
    format!("{:032x}", claim.owner().as_u128())
}

#[async_trait]
impl DistributedLock for TarantoolLock {
    fn capabilities(&self) -> Capabilities {
        use Requirement::{AcrossHosts, Durable, Fencing, Fifo, HerdFree, Push};
        Capabilities::minimal("tarantool").promising([Fencing, Fifo, Push, HerdFree, AcrossHosts, Durable])
    }

    async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        // The first call is answered at once. The others wait at the server, for less than `SILENCE`, and for
        // a small part of the lease, which counts from before the call.
        let seconds = |waits: Duration| waits.min(SILENCE / 2).as_secs_f64();
        let (mut is_first, mut waits) = (true, if claim.wait() == Wait::No { 0.0 } else { 0.001 });
        if waits > 0.0 {
            claim.note_queued();
        }
        loop {
            let (name, ttl) = (claim.name().as_str(), claim.ttl().as_secs_f64());
            let arguments = (name, owner(claim), ttl, claim.label(), waits);
            let call = self.call(self.soon(), Some(claim), "lockwell.take", arguments);
            let (token, sent, _) = if is_first {
                claim.within_wait(call).await?
            } else {
                tokio::select! { () = claim.wait_over() => return Ok(None), reply = call => reply? }
            };
            if let Some(token) = token {
                return Ok(Some(Grant::new(claim, FencingToken::new(token), sent)));
            }
            claim.note_waiting();
            if claim.is_wait_over() {
                return Ok(None);
            }
            (is_first, waits) = (false, seconds(claim.ttl() / 8));
        }
    }

    async fn renew(&self, grants: &[Grant], until: Moment) -> Vec<Renewal> {
        let claims = grants.iter().map(Grant::claim);
        let all: Vec<_> = claims.map(|it| (it.name().as_str(), owner(it), it.ttl().as_secs_f64())).collect();
        let (kept, sent, _) = match self.call::<Vec<bool>>(until, None, "lockwell.renew", (all,)).await {
            Ok(answer) => answer,
            Err(error) => return grants.iter().map(|_| Renewal::Unknown(error.duplicate())).collect(),
        };
        let renewed = |grant: &Grant| Renewal::Renewed(valid_until(sent, grant.claim().ttl()));
        grants.iter().zip(kept).map(|(it, kept)| if kept { renewed(it) } else { Renewal::Lost }).collect()
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        let arguments = (claim.name().as_str(), owner(claim));
        let (freed, _, again) = self.call(self.soon(), None, "lockwell.release", arguments).await?;
        Ok(Released::from_answer(freed, again))
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        type Status = (usize, Option<(u64, String, f64, f64)>);
        let arguments = (name.as_str(),);
        let (status, ..) = self.call::<Status>(self.soon(), None, "lockwell.status", arguments).await?;
        let seconds = |number| Duration::try_from_secs_f64(number).unwrap_or_default();
        let holder = status.1.map(|(token, label, left, held)| {
            Holder::new(FencingToken::new(token), label, Mode::Exclusive, seconds(left))
                .held_for(seconds(held))
        });
        Ok(LockStatus::new(name.clone(), holder.into_iter().collect(), status.0))
    }

    async fn force_release(&self, name: &LockName) -> Result<usize> {
        let (freed, ..): (bool, _, _) =
            self.call(self.soon(), None, "lockwell.force", (name.as_str(),)).await?;
        Ok(usize::from(freed))
    }
}
