//! One server: alone, behind sentinels, or the cluster that acts as one.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use lockcore::seats::{SEAT_LIFE, SEAT_REFRESH, Seats};
use lockcore::{
    Capabilities, Claim, DistributedLock, Error, ErrorKind, Grant, LockName, LockStatus, Mode, Moment,
    Operation, Released, Renewal, Result, ServerUrl, Wait, async_trait, lease,
};

use crate::address::Address;
use crate::answers::{self, Busy, Took};
use crate::keys::{Keys, LockKeys};
use crate::lane::{Answer, Item, Lane};
use crate::options::Options;
use crate::script::{FORCE, INSPECT, RELEASE, RENEW, TAKE};
use crate::wire::{Ear, Wire};
use crate::{check, replicas};

/// How often the first in the queue asks while another program holds the lock, since that will not tell.
const FOREIGN: Duration = Duration::from_millis(50);
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

    /// One call of the acquiring script: with a ticket it queues, and gives a sign of life.
    async fn take(&self, claim: &Claim, ticket: Option<i64>) -> Result<(Took, Answered)> {
        let LockKeys { lock, queue, seats, token, slot } = self.shared.keys.of(claim.name());
        let seat = ticket.map(|ticket| format!("{}:{ticket}", self.shared.ear.channel));
        let item = Item {
            script: &TAKE,
            slot,
            keys: vec![token, lock, queue, seats].into(),
            args: vec![
                self.shared.keys.token_life().to_owned(),
                SEAT_LIFE.as_micros().to_string(),
                owner(claim),
                claim.ttl().as_millis().to_string(),
                claim.label().to_owned(),
                seat.unwrap_or_default(),
            ]
            .into(),
        };
        let Answer { value, sent, generation, .. } = claim.within_wait(self.lane.call(item)).await?;
        Ok((answers::took(value, &TAKE)?, Answered { sent, generation }))
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
        let (mut keys, mut args) = (Vec::new(), Vec::new());
        let mut shortest = SEAT_LIFE;
        for grant in grants {
            let claim = grant.claim();
            keys.push(self.shared.keys.lock(claim.name()));
            args.extend([owner(claim), claim.ttl().as_millis().to_string()]);
            shortest = shortest.min(claim.ttl());
        }
        let item = Item { script: &RENEW, slot, keys: keys.into(), args: args.into() };
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

/// The releasing of a claim. `exact`: the server's count of listeners is to be trusted. `round`: only what this round of
/// Redlock has taken; empty for all.
pub(crate) fn release_item(
    keys: LockKeys,
    claim: &Claim,
    channel: &str,
    exact: bool,
    queued: bool,
    round: String,
) -> Item {
    let LockKeys { lock, queue, seats, slot, .. } = keys;
    let exact = if exact { "exact" } else { "" };
    let queued = if queued { "1" } else { "0" };
    let args = vec![channel.to_owned(), exact.to_owned(), owner(claim), queued.to_owned(), round];
    Item { script: &RELEASE, slot, keys: vec![lock, queue, seats].into(), args: args.into() }
}

/// The owner as the scripts know it.
pub(crate) fn owner(claim: &Claim) -> String {
    claim.owner().as_uuid().simple().to_string()
}

/// How long to wait for a word. One that stands first watches the holder's lease, since the dead send no word.
pub(crate) fn nap(busy: &Busy) -> Duration {
    if !busy.first {
        return SEAT_REFRESH;
    }
    let most = if busy.foreign { FOREIGN } else { SEAT_REFRESH };
    // A little later than the end, so that waiters of several processes do not meet.
    let jitter = Duration::from_millis(1).mul_f64(1.0 + 4.0 * rand::random::<f64>());
    busy.left.map_or(most, |left| left.saturating_add(jitter).min(most))
}

#[async_trait]
impl DistributedLock for RedisLock {
    fn capabilities(&self) -> Capabilities {
        let mut promised = Capabilities::minimal("redis");
        promised.fencing = true;
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
        if claim.mode() != Mode::Exclusive {
            return Err(Error::new(ErrorKind::Unsupported, "this backend has exclusive locks only"));
        }
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

    async fn release(&self, claim: &Claim) -> Result<Released> {
        let (keys, exact) = (self.shared.keys.of(claim.name()), !self.shared.address.is_cluster());
        let queued = claim.may_be_queued();
        let item = release_item(keys, claim, &self.shared.ear.channel, exact, queued, String::new());
        let answer = self.lane.call(item).await?;
        let freed = answers::freed(answer.value, &RELEASE)?;
        freed.next.inspect(|&ticket| self.seats().wake(ticket));
        // An earlier try, whose answer was lost, may have freed the lock.
        Ok(if freed.released || answer.in_doubt { Released::Released } else { Released::NotHeld })
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        let LockKeys { lock, queue, seats, slot, .. } = self.shared.keys.of(name);
        let item =
            Item { script: &INSPECT, slot, keys: vec![lock, queue, seats].into(), args: Arc::default() };
        answers::status(name, &self.lane.call(item).await?.value)
    }

    async fn force_release(&self, name: &LockName) -> Result<usize> {
        let LockKeys { lock, queue, seats, slot, .. } = self.shared.keys.of(name);
        let item = Item { script: &FORCE, slot, keys: vec![lock, queue, seats].into(), args: Arc::default() };
        let held = answers::int(Some(&self.lane.call(item).await?.value))?;
        Ok(usize::from(held == 1))
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
