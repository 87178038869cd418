//! NATS JetStream as a backend of lockwell, written against its public API alone:
//! `nats://USER:PASSWORD@HOST:PORT,HOST:PORT/BUCKET?replicas=3`. It needs NATS 2.11.
//!
//! A lock is a key of the bucket, and its token is the revision that granted it. Revisions rise while the bucket
//! exists; a bucket that is deleted and made anew gives the same tokens again. Waiters compete, since there is no
//! queue. Whoever may read the bucket sees the secret owner ids; notifications have none. Leases end by the clock
//! of the server that leads, so the clocks of all servers must agree. A server acknowledges what it has not
//! flushed to its disk: if its machine crashes, a grant can be undone, and a token given again, unless it is
//! configured with `jetstream { sync_interval: always }`. Replicas make that rarer, not impossible.

mod bucket;
mod connection;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_nats::Subscriber;
use bucket::{OPERATION, Record};
use futures_util::{StreamExt, future::join_all};
use lockwell::backend::{
    Capabilities, Claim, DistributedLock, Error, ErrorKind, FencingToken, Finding, Grant, Holder, LockName,
    LockStatus, Mode, Moment, Released, Renewal, Requirement, Result, Wait, async_trait, valid_until,
};

pub use bucket::NatsLock;

/// What renewals need: the last revision that this holder has made, and the beginning of its hold.
struct Hold {
    revision: AtomicU64,
    since: Moment,
}

/// A waiter asks again after this time, since a notification can be lost.
const RECHECK: Duration = Duration::from_secs(5);

/// lockwell's backends and this one.
pub fn registry() -> Result<lockwell::Registry> {
    lockwell::Registry::new().with("nats", |url| async move { NatsLock::connect(&url).await })
}

fn owner(claim: &Claim) -> String {
    format!("{:032x}", claim.owner().as_u128())
}

fn record(claim: &Claim, token: u64, held: Duration) -> Record {
    let label = claim.label().to_owned();
    Record { owner: owner(claim), label, ttl: claim.ttl(), token, held, ..Record::default() }
}

/// Waits for a release after this revision. False: the connection has ended.
async fn hears_release(changes: &mut Subscriber, after: u64) -> bool {
    while let Some(change) = changes.next().await {
        let headers = change.headers.unwrap_or_default();
        let revision = headers.get("Nats-Sequence").and_then(|number| number.as_str().parse().ok());
        // Grants and renewals have no such header.
        if headers.get(OPERATION).is_some() && revision > Some(after) {
            return true;
        }
    }
    false
}

impl NatsLock {
    /// Takes the lock, or returns how much is left of the lease of another holder.
    async fn take(&self, claim: &Claim) -> Result<std::result::Result<Grant, Duration>> {
        let until = self.soon();
        loop {
            let (revision, holder) = self.look(claim.name(), until).await?;
            let (token, held) = match holder {
                // By an earlier copy of the change, whose answer was lost. It is renewed now.
                Some(found) if found.owner == owner(claim) => (found.token, found.held),
                Some(other) => return Ok(Err(other.left)),
                None => (0, Duration::ZERO),
            };
            let wanted = record(claim, token, held);
            let (changed, sent, _) =
                self.change(claim.name(), revision, Some(&wanted), until, Some(claim)).await?;
            if let Some(revision) = changed {
                let token = FencingToken::new(if token == 0 { revision } else { token });
                let hold = Hold { revision: revision.into(), since: sent.before(held) };
                return Ok(Ok(Grant::new(claim, token, sent).with_record(Arc::new(hold))));
            }
        }
    }

    async fn renew_one(&self, grant: &Grant, until: Moment) -> Result<Renewal> {
        let (claim, token) = (grant.claim(), grant.last_token().get());
        let strange = || Error::new(ErrorKind::Internal, "a grant of another backend");
        let hold = grant.record::<Hold>().ok_or_else(strange)?;
        loop {
            let wanted = record(claim, token, Moment::now().since(hold.since));
            let revision = hold.revision.load(Ordering::Relaxed);
            let (changed, sent, _) = self.change(claim.name(), revision, Some(&wanted), until, None).await?;
            if let Some(revision) = changed {
                hold.revision.store(revision, Ordering::Relaxed);
                return Ok(Renewal::Renewed(valid_until(sent, claim.ttl())));
            }
            match self.look(claim.name(), until).await? {
                // By an earlier copy.
                (revision, Some(found)) if found.owner == wanted.owner && found.token == token => {
                    hold.revision.store(revision, Ordering::Relaxed);
                }
                _ => return Ok(Renewal::Lost),
            }
        }
    }

    /// Frees a lock, if this owner has it, or whoever has it.
    async fn free(&self, name: &LockName, owner: Option<String>) -> Result<Released> {
        let (until, mut in_doubt) = (self.soon(), false);
        loop {
            let (revision, holder) = self.look(name, until).await?;
            if holder.is_none_or(|holder| owner.as_ref().is_some_and(|owner| holder.owner != *owner)) {
                return Ok(Released::from_answer(false, in_doubt));
            }
            let (changed, _, again) = self.change(name, revision, None, until, None).await?;
            if changed.is_some() {
                return Ok(Released::Released);
            }
            in_doubt |= again;
        }
    }
}

#[async_trait]
impl DistributedLock for NatsLock {
    fn capabilities(&self) -> Capabilities {
        use Requirement::{AcrossHosts, Durable, Fencing, LossPush, Push};
        Capabilities::minimal("nats").promising([Fencing, Push, LossPush, AcrossHosts, Durable])
    }

    fn servers(&self) -> Option<&str> {
        Some(&self.servers)
    }

    async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        // Not by `wait_for_turn`: that tells lockcore of a place in a queue, which would have to be released. Here
        // is only a subscription, and it ends with its connection.
        let mut changes = None;
        loop {
            let left = match claim.within_wait(self.take(claim)).await? {
                Ok(grant) => return Ok(Some(grant)),
                Err(left) => left,
            };
            claim.note_waiting();
            if claim.wait() == Wait::No || claim.is_wait_over() {
                return Ok(None);
            }
            match &mut changes {
                // It asks once more: a release may have come before.
                None => changes = Some(claim.within_wait(self.changes(claim.name())).await?),
                Some(heard) => tokio::select! {
                    () = claim.wait_over() => return Ok(None),
                    is_connected = hears_release(heard, 0) => if !is_connected { changes = None },
                    // Nobody says that a lease has ended.
                    () = claim.clock().sleep(left.min(RECHECK)) => (),
                },
            }
        }
    }

    async fn renew(&self, grants: &[Grant], until: Moment) -> Vec<Renewal> {
        let renew = async |grant| self.renew_one(grant, until).await.unwrap_or_else(Renewal::Unknown);
        join_all(grants.iter().map(renew)).await
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        self.free(claim.name(), Some(owner(claim))).await
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        let holder = self.look(name, self.soon()).await?.1.map(|record| {
            let token = FencingToken::new(record.token);
            Holder::new(token, record.label, Mode::Exclusive, record.left).held_for(record.held)
        });
        Ok(LockStatus::new(name.clone(), holder.into_iter().collect(), 0))
    }

    async fn force_release(&self, name: &LockName) -> Result<usize> {
        Ok(usize::from(self.free(name, None).await? == Released::Released))
    }

    async fn lost(&self, grant: &Grant) {
        let (claim, token) = (grant.claim(), grant.last_token().get());
        loop {
            if let Ok(mut changes) = self.changes(claim.name()).await
                && hears_release(&mut changes, token).await
            {
                return;
            }
            claim.clock().sleep(connection::SILENCE / 4).await;
        }
    }

    async fn examine(&self) -> Result<Vec<Finding>> {
        let text = "clients cannot see whether the server flushes what it acknowledges";
        Ok(vec![Finding::doubtful("persistence", text, "set jetstream { sync_interval: always }")])
    }

    async fn close(&self) {
        self.disconnect();
    }
}
