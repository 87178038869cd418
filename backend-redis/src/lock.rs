//! One server: alone, behind sentinels, or the cluster that acts as one.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use lockcore::backend::{self, PerRuntime, Queue, Waiter, Waiters, valid_until, wait_for_turn};
use lockcore::{
    Capabilities, Claim, DistributedLock, Error, ErrorKind, FencingToken, Grant, LockName, LockStatus,
    Moment, Operation, Released, Renewal, Result, ServerUrl, Wait, async_trait,
};

use crate::address::Address;
use crate::answers::{self, Took};
use crate::calls::{Answer, Calls, Item};
use crate::items::{self, Caller, recheck};
use crate::keys::Keys;
use crate::options::Options;
use crate::wire::{Subscriber, Wire};
use crate::{check, replicas};

/// Locks on a Redis server, on the master behind Sentinels, or in a cluster.
///
/// Each runtime that uses it has one connection, for its calls and its notifications; the keeper thread is one of them.
/// The number of locks and waiters does not matter. Made by [`connect`](Self::connect).
pub struct RedisLock {
    shared: Arc<Shared>,
    clients: PerRuntime<Client>,
}

struct Settings {
    address: Address,
    options: Options,
    /// How many replicas must have a grant before it counts.
    wait_replicas: u32,
}

struct Shared {
    settings: Settings,
    keys: Keys,
}

/// What one runtime has of the server.
struct Client {
    shared: Arc<Shared>,
    calls: Calls,
    waiters: Arc<Waiters>,
    /// Where this client is notified.
    channel: Arc<str>,
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
        let settings = Settings { address, options, wait_replicas: wait_replicas.unwrap_or(0) };
        let lock = Self { shared: Arc::new(Shared { settings, keys }), clients: PerRuntime::new() };
        lock.client()?.check().await.map_err(context)?;
        Ok(lock)
    }

    fn client(&self) -> Result<Arc<Client>> {
        self.clients.get(|| Client::new(&self.shared))
    }

    /// The key of a lock, as other programs see it.
    pub fn key(&self, name: &LockName) -> String {
        self.shared.keys.lock(name)
    }
}

impl Client {
    fn new(shared: &Arc<Shared>) -> Self {
        let Settings { address, options, .. } = &shared.settings;
        let waiters = Waiters::new();
        let channel: Arc<str> = shared.keys.channel(waiters.client().simple()).into();
        let subscriber = Subscriber { waiters: Arc::clone(&waiters), channel: Arc::clone(&channel) };
        let wire = Arc::new(Wire::new(address.clone(), Some(subscriber)));
        let calls = Calls::new(wire, options.timeout);
        Self { shared: Arc::clone(shared), calls, waiters, channel, tickets: AtomicI64::new(1) }
    }

    async fn check(&self) -> Result<()> {
        let (wire, settings) = (self.calls.wire(), &self.shared.settings);
        check::server(wire, &settings.options).await?;
        let mut more = Vec::new();
        if settings.address.is_cluster() {
            more.push("EXPIRE");
        }
        if settings.wait_replicas > 0 {
            more.push("WAIT");
        }
        check::rights(wire, &self.shared.keys, &more, settings.options.timeout).await
    }

    fn caller(&self) -> Caller<'_> {
        let exact = !self.shared.settings.address.is_cluster();
        Caller { keys: &self.shared.keys, channel: &self.channel, exact }
    }

    fn ticket(&self) -> i64 {
        self.tickets.fetch_add(1, Ordering::Relaxed)
    }

    fn notify(&self, ticket: Option<i64>) {
        ticket.inspect(|&ticket| self.waiters.notify(ticket));
    }

    /// One call of the acquiring script: with a ticket it queues, and gives a sign of life. The item is in the queue when
    /// this returns.
    fn take(
        &self,
        claim: &Claim,
        ticket: Option<i64>,
    ) -> impl Future<Output = Result<(Took, Answered)>> + use<> {
        let item = self.caller().take(claim, ticket);
        let (script, mode) = (item.script, claim.mode());
        let call = self.calls.call(item);
        async move {
            let Answer { value, sent, generation, .. } = call.await?;
            Ok((answers::took(value, script, mode)?, Answered { sent, generation }))
        }
    }

    async fn granted(&self, claim: &Claim, token: FencingToken, call: Answered) -> Result<Grant> {
        self.confirm(call.generation, time_to_confirm(claim)).await?;
        Ok(Grant::new(claim, token, call.sent))
    }

    /// Waits until enough replicas have what was written on our connection.
    async fn confirm(&self, generation: u64, limit: Duration) -> Result<()> {
        match self.shared.settings.wait_replicas {
            0 => Ok(()),
            replicas => replicas::confirm(self.calls.wire(), generation, replicas, limit).await,
        }
    }

    async fn free(&self, item: Item) -> Result<(bool, u64)> {
        let script = item.script;
        let answer = self.calls.call(item).await?;
        let freed = answers::freed(answer.value, script)?;
        self.notify(freed.next);
        // An earlier try, whose answer was lost, may have done it.
        Ok((freed.released || answer.in_doubt, answer.generation))
    }

    async fn renew_group(&self, grants: &[&Grant], slot: u16, until: Moment) -> Result<Vec<Renewal>> {
        let item = items::renewal(&self.shared.keys, grants.iter().copied(), slot);
        let answer = self.calls.call_within(item, until.remaining()).await?;
        let confirming = self.confirm(answer.generation, until.remaining());
        let unknown = |_| Error::new(ErrorKind::Unreachable, "the replicas have not answered in time");
        tokio::time::timeout(until.remaining(), confirming).await.map_err(unknown)??;
        let values = match answer.value {
            redis::Value::Array(values) => values,
            one => vec![one],
        };
        let pairs = grants.iter().zip(&values);
        pairs
            .map(|(grant, value)| {
                Ok(if answers::extended(value)? {
                    Renewal::Renewed(valid_until(answer.sent, grant.claim().ttl()))
                } else {
                    Renewal::Lost
                })
            })
            .collect()
    }
}

/// A claim queues by the same script call that asks for the lock, and each call is a sign of life.
impl Queue for Client {
    type Place = Waiter;

    async fn subscribe(&self) {
        self.calls.wire().listen().await;
    }

    async fn ask(&self, claim: &Claim, place: Option<&Waiter>) -> Result<backend::Answer> {
        let (took, call) = self.take(claim, place.map(Waiter::ticket)).await?;
        Ok(match took {
            Took::Granted(token) => {
                claim.note_left_queue();
                backend::Answer::Granted(self.granted(claim, token, call).await?)
            }
            Took::Busy(busy) => backend::Answer::Refused { recheck: recheck(&busy) },
        })
    }

    async fn enter(&self, claim: &Claim) -> Result<Waiter> {
        Ok(self.waiters.register(claim.name(), self.ticket()))
    }

    async fn notified(&self, place: &Waiter) {
        place.notified().await;
    }

    async fn leave(&self, claim: &Claim) -> Result<()> {
        self.free(self.caller().release(claim, true, String::new())).await.map(drop)
    }
}

/// How long replicas may take. Other calls of the connection wait meanwhile.
fn time_to_confirm(claim: &Claim) -> Duration {
    (claim.ttl() / 4).clamp(Duration::from_millis(5), Duration::from_secs(5))
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
        let client = self.client()?;
        // One that waited a moment ago is likely to wait again, and queues with its first call.
        let place = if claim.wait() != Wait::No && client.calls.wire().is_listening() {
            claim.note_queued();
            Some(client.enter(claim).await?)
        } else {
            None
        };
        wait_for_turn(&*client, claim, place).await
    }

    /// All claims go into one call; in a cluster, into one for each slot.
    async fn acquire_each(&self, claims: &[Claim]) -> Vec<Result<Option<Grant>>> {
        let client = match self.client() {
            Ok(client) => client,
            Err(error) => return claims.iter().map(|_| Err(error.duplicate())).collect(),
        };
        // All are in the queue before the first is polled.
        let asked: Vec<_> = claims.iter().map(|claim| client.take(claim, None)).collect();
        let answers = claims.iter().zip(asked).map(async |(claim, asked)| match asked.await? {
            (Took::Granted(token), call) => client.granted(claim, token, call).await.map(Some),
            (Took::Busy(_), _) => Ok(None),
        });
        join_all(answers).await
    }

    async fn renew(&self, grants: &[Grant], until: Moment) -> Vec<Renewal> {
        let client = match self.client() {
            Ok(client) => client,
            Err(error) => return grants.iter().map(|_| Renewal::Unknown(error.duplicate())).collect(),
        };
        // In a cluster each slot has a call of its own.
        let mut groups: Vec<(u16, Vec<usize>)> = Vec::new();
        for (place, grant) in grants.iter().enumerate() {
            let slot = self.shared.keys.slot(grant.claim().name());
            match groups.iter_mut().find(|(one, _)| *one == slot) {
                Some((_, places)) => places.push(place),
                None => groups.push((slot, vec![place])),
            }
        }
        let calls = groups.iter().map(async |(slot, places)| {
            let group: Vec<_> = places.iter().map(|&place| &grants[place]).collect();
            client
                .renew_group(&group, *slot, until)
                .await
                .unwrap_or_else(|error| group.iter().map(|_| Renewal::Unknown(error.duplicate())).collect())
        });
        let answers = join_all(calls).await;
        let mut sorted: Vec<_> =
            groups.into_iter().flat_map(|(_, places)| places).zip(answers.into_iter().flatten()).collect();
        sorted.sort_by_key(|(place, _)| *place);
        sorted.into_iter().map(|(_, renewal)| renewal).collect()
    }

    async fn downgrade(&self, grant: &Grant) -> Result<Grant> {
        let client = self.client()?;
        let (done, generation) = client.free(client.caller().downgrade(grant.claim())).await?;
        if !done {
            return Err(Error::new(ErrorKind::Lost, "the lock was lost before the downgrade"));
        }
        client.confirm(generation, time_to_confirm(grant.claim())).await?;
        Ok(grant.downgraded())
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        let client = self.client()?;
        let item = client.caller().release(claim, claim.may_be_queued(), String::new());
        let (released, _) = client.free(item).await?;
        Ok(if released { Released::Released } else { Released::NotHeld })
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        let client = self.client()?;
        let answer = client.calls.call(client.caller().inspect(name)).await?;
        Ok(answers::look(&answer.value)?.status(name))
    }

    async fn force_release(&self, name: &LockName) -> Result<usize> {
        let client = self.client()?;
        let found = client.calls.call(client.caller().inspect(name)).await?;
        let holders: Vec<_> = answers::look(&found.value)?.names().map(str::to_owned).collect();
        if holders.is_empty() {
            return Ok(0);
        }
        // It names them, so that a repeated call does not free a successor.
        let answer = client.calls.call(client.caller().force(name, &holders)).await?;
        let forced = answers::forced(&answer.value)?;
        client.notify(forced.next);
        Ok(if answer.in_doubt { holders.len() } else { forced.freed })
    }

    async fn close(&self) {
        self.clients.take_all().iter().for_each(|client| client.calls.wire().close());
    }
}

impl fmt::Debug for RedisLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLock").field("address", &self.shared.settings.address).finish_non_exhaustive()
    }
}
