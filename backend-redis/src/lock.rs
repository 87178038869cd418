//! One server: alone, behind sentinels, or the cluster that acts as one.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::join_all;
use lockcore::seats::{SEAT_LIFE, Seats};
use lockcore::{
    Capabilities, Claim, DistributedLock, Error, ErrorKind, Grant, LockName, LockStatus, Moment, Operation,
    Released, Renewal, Result, ServerUrl, Wait, async_trait, lease,
};

use crate::address::Address;
use crate::answers::{self, Took};
use crate::items::{self, Caller, nap};
use crate::keys::Keys;
use crate::lane::{Answer, Lane};
use crate::options::Options;
use crate::wire::{Ear, Wire};
use crate::{check, replicas};

/// Locks on a Redis server, on the master behind Sentinels, or in a cluster.
///
/// It holds one connection for its calls and its wake-ups, and one for the keeper thread once a lease is renewed:
/// whatever the number of locks and waiters. Made by [`connect`](Self::connect).
pub struct RedisLock {
    shared: Arc<Shared>,
    lane: Lane,
}

struct Shared {
    address: Address,
    options: Options,
    /// How many replicas must have a grant before it counts.
    wait_replicas: u32,
    keys: Keys,
    ear: Ear,
    tickets: AtomicI64,
}

impl RedisLock {
    /// Connects to the server, the sentinels or the cluster at this address, and checks whether it can keep locks.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is locked.
    pub async fn connect(url: &ServerUrl) -> Result<Self> {
        let context = |error: Error| error.during(Operation::Connect).on_backend("redis");
        let options = Options::read(url, &["wait_replicas"]).map_err(context)?;
        let address = Address::read(url).map_err(context)?;
        let wait_replicas = url.parsed("wait_replicas", "a number of replicas").map_err(context)?;
        let keys = Keys::new(&options.namespace, address.is_cluster());
        let seats = Seats::new();
        let channel = keys.channel(seats.client.simple()).into();
        let lock = Self::on(Arc::new(Shared {
            address,
            wait_replicas: wait_replicas.unwrap_or(0),
            keys,
            ear: Ear { seats, channel },
            tickets: AtomicI64::new(1),
            options,
        }));
        lock.check().await.map_err(context)?;
        Ok(lock)
    }

    fn on(shared: Arc<Shared>) -> Self {
        let wire = Wire::new(shared.address.clone(), Some(shared.ear.clone()));
        Self { lane: Lane::new(Arc::new(wire), shared.options.timeout), shared }
    }

    async fn check(&self) -> Result<()> {
        let (wire, shared) = (self.lane.wire(), &self.shared);
        check::server(wire, &shared.options).await?;
        let mut more = Vec::new();
        if shared.address.is_cluster() {
            more.push("EXPIRE");
        }
        if shared.wait_replicas > 0 {
            more.push("WAIT");
        }
        check::rights(wire, &shared.keys, &more, shared.options.timeout).await
    }

    /// The key of a lock, as other programs see it.
    pub fn key(&self, name: &LockName) -> String {
        self.shared.keys.lock(name)
    }

    fn seats(&self) -> &Arc<Seats> {
        &self.shared.ear.seats
    }

    fn caller(&self) -> Caller<'_> {
        let Shared { keys, ear, address, .. } = &*self.shared;
        Caller { keys, channel: &ear.channel, exact: !address.is_cluster() }
    }

    /// One call of the acquiring script: with a ticket it queues, and gives a sign of life.
    async fn take(&self, claim: &Claim, ticket: Option<i64>) -> Result<(Took, Answered)> {
        let item = self.caller().take(claim, ticket);
        let script = item.script;
        let Answer { value, sent, generation, .. } = claim.within_wait(self.lane.call(item)).await?;
        Ok((answers::took(value, script, claim.mode())?, Answered { sent, generation }))
    }

    async fn granted(&self, claim: &Claim, token: lockcore::FencingToken, call: Answered) -> Result<Grant> {
        if self.shared.wait_replicas > 0 {
            self.confirm(call.generation, claim.ttl()).await?;
        }
        Ok(Grant::new(claim, token, call.sent))
    }

    /// Waits until enough replicas have what was written on our connection.
    async fn confirm(&self, generation: u64, ttl: Duration) -> Result<()> {
        let limit = lease::Lease::patience(ttl);
        replicas::confirm(self.lane.wire(), generation, self.shared.wait_replicas, limit).await
    }

    /// Queues and waits for the turn.
    ///
    /// The order of steps leaves no gap for a lost wake-up: the client listens before it queues, and it takes its place
    /// in the same script call that finds the lock held. Whoever frees the lock after that sees the place and sends a
    /// word. The word can be lost with a connection, which wakes everybody here; and behind it stands the timer.
    async fn wait_for_turn(&self, claim: &Claim) -> Result<Option<Grant>> {
        let ticket = self.shared.tickets.fetch_add(1, Ordering::Relaxed);
        let seat = self.seats().sit(claim.name(), ticket);
        claim.note_queued();
        loop {
            self.lane.wire().listen().await;
            let (took, sent) = self.take(claim, Some(ticket)).await?;
            let busy = match took {
                Took::Granted(token) => {
                    claim.note_left_queue();
                    return self.granted(claim, token, sent).await.map(Some);
                }
                Took::Busy(busy) => busy,
            };
            tokio::select! {
                () = seat.called() => (),
                () = tokio::time::sleep(nap(&busy)) => (),
                () = claim.given_up() => return Ok(None),
            }
        }
    }

    async fn renew_group(&self, grants: &[&Grant], slot: u16) -> Result<Vec<Renewal>> {
        let ttls = grants.iter().map(|grant| grant.claim().ttl());
        let shortest = ttls.min().unwrap_or(SEAT_LIFE).min(SEAT_LIFE);
        let item = items::renewal(&self.shared.keys, grants.iter().copied(), slot);
        let answer = self.lane.call_within(item, lease::Lease::patience(shortest)).await?;
        if self.shared.wait_replicas > 0 {
            self.confirm(answer.generation, shortest).await?;
        }
        let values = match answer.value {
            redis::Value::Array(values) => values,
            one => vec![one],
        };
        let pairs = grants.iter().zip(&values);
        pairs
            .map(|(grant, value)| {
                Ok(if answers::extended(value)? {
                    Renewal::Renewed(lease::belief(answer.sent, grant.claim().ttl()))
                } else {
                    Renewal::Lost
                })
            })
            .collect()
    }
}

/// When the call that brought an answer was sent, and on which connection.
struct Answered {
    sent: Moment,
    generation: u64,
}

#[async_trait]
impl DistributedLock for RedisLock {
    fn capabilities(&self) -> Capabilities {
        let mut promised = Capabilities::minimal("redis");
        promised.shared = true;
        promised.permits = true;
        promised.downgrade = true;
        promised.fencing = true;
        promised.token_blocks = true;
        promised.fifo = true;
        promised.push = true;
        promised.herd_free = true;
        promised.across_hosts = true;
        // That depends on the server's configuration, which the start-up check looks at.
        promised.durable = true;
        // Replication is asynchronous: a replica that takes over may not have the lock.
        promised.failover_safe = false;
        promised
    }

    async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        // One that waited a moment ago is likely to wait again, and queues with its first call.
        if claim.wait() != Wait::No && self.lane.wire().is_listening() {
            return self.wait_for_turn(claim).await;
        }
        match self.take(claim, None).await? {
            (Took::Granted(token), sent) => self.granted(claim, token, sent).await.map(Some),
            _ if claim.wait() == Wait::No => Ok(None),
            _ => self.wait_for_turn(claim).await,
        }
    }

    /// All claims go into one call; in a cluster, into one for each slot.
    async fn acquire_each(&self, claims: &[Claim]) -> Vec<Result<Option<Grant>>> {
        let mut answers = Box::pin(join_all(claims.iter().map(|claim| self.acquire(claim))));
        let gathering = self.lane.gather();
        // The first poll brings every claim to the lane.
        let at_once = poll_fn(|cx| Poll::Ready(answers.as_mut().poll(cx))).await;
        drop(gathering);
        match at_once {
            Poll::Ready(answers) => answers,
            Poll::Pending => answers.await,
        }
    }

    async fn renew(&self, grants: &[Grant]) -> Vec<Renewal> {
        // In a cluster each slot has a call of its own.
        let mut groups: Vec<(u16, Vec<usize>)> = Vec::new();
        for (place, grant) in grants.iter().enumerate() {
            let slot = self.shared.keys.slot(grant.claim().name());
            match groups.iter_mut().find(|(one, _)| *one == slot) {
                Some((_, places)) => places.push(place),
                None => groups.push((slot, vec![place])),
            }
        }
        let calls = groups.iter().map(|(slot, places)| {
            let group: Vec<_> = places.iter().map(|&place| &grants[place]).collect();
            async move {
                self.renew_group(&group, *slot).await.unwrap_or_else(|error| {
                    group.iter().map(|_| Renewal::Unknown(error.duplicate())).collect()
                })
            }
        });
        let answers = join_all(calls).await;
        let mut sorted: Vec<_> =
            groups.into_iter().flat_map(|(_, places)| places).zip(answers.into_iter().flatten()).collect();
        sorted.sort_by_key(|(place, _)| *place);
        sorted.into_iter().map(|(_, renewal)| renewal).collect()
    }

    async fn downgrade(&self, grant: &Grant) -> Result<Grant> {
        let item = self.caller().downgrade(grant.claim());
        let script = item.script;
        let answer = self.lane.call(item).await?;
        let done = answers::freed(answer.value, script)?;
        done.next.inspect(|&ticket| self.seats().wake(ticket));
        if !done.released {
            return Err(Error::new(ErrorKind::Lost, "the lock was lost before the downgrade"));
        }
        if self.shared.wait_replicas > 0 {
            self.confirm(answer.generation, grant.claim().ttl()).await?;
        }
        Ok(grant.downgraded())
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        let item = self.caller().release(claim, claim.may_be_queued(), String::new());
        let script = item.script;
        let answer = self.lane.call(item).await?;
        let freed = answers::freed(answer.value, script)?;
        freed.next.inspect(|&ticket| self.seats().wake(ticket));
        // An earlier try, whose answer was lost, may have freed the lock.
        Ok(if freed.released || answer.in_doubt { Released::Released } else { Released::NotHeld })
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        let answer = self.lane.call(self.caller().inspect(name)).await?;
        Ok(answers::look(&answer.value)?.status(name))
    }

    async fn force_release(&self, name: &LockName) -> Result<usize> {
        let forced = answers::forced(&self.lane.call(self.caller().force(name)).await?.value)?;
        forced.next.inspect(|&ticket| self.seats().wake(ticket));
        Ok(forced.owners.len())
    }

    fn for_keeper(&self) -> Option<Arc<dyn DistributedLock>> {
        Some(Arc::new(Self::on(Arc::clone(&self.shared))))
    }

    async fn close(&self) {
        self.lane.wire().close();
    }
}

impl fmt::Debug for RedisLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLock").field("address", &self.shared.address).finish_non_exhaustive()
    }
}
