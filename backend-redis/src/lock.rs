//! One server: alone, behind sentinels, or the cluster that acts as one.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use lockcore::backend::{self, PerRuntime, Queue, SignOfLife, Waiter, Waiters, valid_until, wait_for_turn};
use lockcore::{
    Capabilities, Claim, DistributedLock, Error, ErrorKind, FencingToken, Grant, LockName, LockStatus,
    Moment, Operation, Released, Renewal, Result, ServerUrl, Wait, async_trait,
};

use crate::address::Address;
use crate::answers::{self, Acquired, Let, Took};
use crate::calls::{Answer, Calls, Item};
use crate::hot::Hot;
use crate::items::{self, recheck};
use crate::keys::Keys;
use crate::options::Options;
use crate::requests::{Requests, is_simple};
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
    /// Where and how this client is told of its grants.
    subscriber: Subscriber,
    tickets: AtomicI64,
    hot: Hot,
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
        let subscriber = Subscriber { waiters: Arc::clone(&waiters), channel, generation: 0 };
        let wire = Arc::new(Wire::new(address.clone(), Some(subscriber.clone())));
        let calls = Calls::new(wire, options.timeout);
        let (tickets, hot) = (AtomicI64::new(1), Hot::new());
        Self { shared: Arc::clone(shared), calls, waiters, subscriber, tickets, hot }
    }

    async fn check(&self) -> Result<()> {
        let (wire, settings) = (self.calls.wire(), &self.shared.settings);
        check::server(wire, &settings.options).await?;
        let mut more = Vec::new();
        if settings.wait_replicas > 0 {
            more.push("WAIT");
        }
        check::rights(wire, &self.shared.keys, &more, settings.options.timeout).await
    }

    fn requests(&self) -> Requests<'_> {
        let exact = !self.shared.settings.address.is_cluster();
        Requests { keys: &self.shared.keys, channel: &self.subscriber.channel, exact }
    }

    /// Asks for a lock once, and leaves no trace if it is refused. The item is in the queue when this returns.
    fn acquire(&self, claim: &Claim) -> impl Future<Output = Result<(Took, Answered)>> {
        let simple = is_simple(claim) && !self.hot.is_hot(claim.name());
        let first = simple.then(|| self.calls.call(self.requests().acquire(claim)));
        let second = (!simple).then(|| self.claim(claim, None));
        let held = Took::Busy(answers::Busy { left: None, first: false, foreign: false });
        async move {
            if let Some(second) = second {
                return second.await;
            }
            let Some(first) = first else { unreachable!("one of the two") };
            let answer = first.await?;
            match answers::acquired(&answer.value)? {
                Acquired::Granted(token) => Ok((Took::Granted(token), answered(&answer))),
                Acquired::Held => Ok((held, answered(&answer))),
                Acquired::Unclear => self.claim(claim, None).await,
            }
        }
    }

    /// One call of the script that knows all cases: with a place it queues, and gives a sign of life. The item is in the
    /// queue when this returns.
    fn claim(&self, claim: &Claim, place: Option<&Waiter>) -> impl Future<Output = Result<(Took, Answered)>> {
        let place = place.map(|waiter| (waiter, waiter.next_sign()));
        let call = self.calls.call(self.requests().claim(claim, place));
        let mode = claim.mode();
        async move {
            let answer = call.await?;
            let (took, clock) = answers::claimed(&answer.value, mode)?;
            // Of a request that was repeated, nobody knows which copy the server has seen last.
            if let (Some((waiter, number)), Took::Busy(_), false) = (place, &took, answer.in_doubt) {
                let Answer { sent, generation, .. } = answer;
                waiter.note_sign(SignOfLife { sent, clock, number, generation });
            }
            Ok((took, answered(&answer)))
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

    /// Gives up what a claim holds, and its place.
    async fn give_up(&self, claim: &Claim, queued: bool) -> Result<bool> {
        let mut in_doubt = false;
        if !queued && is_simple(claim) && !self.hot.is_hot(claim.name()) {
            let answer = self.calls.call(self.requests().release(claim)).await?;
            in_doubt = answer.in_doubt;
            match answers::let_go(&answer.value)? {
                Let::Go => return Ok(true),
                // An earlier try, whose answer was lost, may have done it.
                Let::NotHeld => return Ok(in_doubt),
                Let::Unclear => self.hot.note(claim.name()),
            }
        }
        let answer = self.calls.call(self.requests().give_up(claim, queued)).await?;
        let (released, told) = answers::given_up(&answer.value, answer.generation)?;
        self.tell(told);
        Ok(released || in_doubt || answer.in_doubt)
    }

    /// Tells waiters of this client what a script has answered for them.
    fn tell(&self, told: Vec<answers::Told>) {
        for told in told {
            self.subscriber.tell(told);
        }
    }

    /// Calls a script for one lock that frees something. Says how many were freed, and whether an earlier try may have
    /// done it.
    async fn free(&self, item: Item) -> Result<(usize, Answer)> {
        let answer = self.calls.call(item).await?;
        let (freed, told) = answers::freed_all(&answer.value, answer.generation)?;
        self.tell(told);
        Ok((freed, answer))
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
        let (took, call) = match place {
            None => self.acquire(claim).await?,
            Some(_) => self.claim(claim, place).await?,
        };
        Ok(match took {
            Took::Granted(token) => {
                claim.note_left_queue();
                backend::Answer::Granted(self.granted(claim, token, call).await?)
            }
            Took::Busy(busy) => backend::Answer::Refused { recheck: recheck(&busy) },
        })
    }

    async fn enter(&self, claim: &Claim) -> Result<Waiter> {
        self.hot.note(claim.name());
        Ok(self.waiters.register(claim.name(), self.tickets.fetch_add(1, Ordering::Relaxed)))
    }

    /// Where a grant counts only when it is confirmed, the claim asks, which extends the lease.
    fn taken(&self, claim: &Claim, place: &Waiter) -> Option<Grant> {
        let Settings { options, wait_replicas, .. } = &self.shared.settings;
        if options.strict || *wait_replicas > 0 {
            return None;
        }
        let (granted, sent, deadline) = place.granted(Moment::now())?;
        claim.note_left_queue();
        Some(Grant::new(claim, granted.token, sent).provisional(deadline))
    }

    async fn notified(&self, place: &Waiter) {
        place.notified().await;
    }

    async fn leave(&self, claim: &Claim) -> Result<()> {
        self.give_up(claim, true).await.map(drop)
    }
}

/// How long replicas may take. Other calls of the connection wait meanwhile.
fn time_to_confirm(claim: &Claim) -> Duration {
    (claim.ttl() / 4).clamp(Duration::from_millis(5), Duration::from_secs(5))
}

fn answered(answer: &Answer) -> Answered {
    Answered { sent: answer.sent, generation: answer.generation }
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
        // Where somebody waited a moment ago, it is likely to wait, too, and queues with its first call.
        let hot = client.hot.is_hot(claim.name()) && client.calls.wire().is_listening();
        let place = if hot && claim.wait() != Wait::No {
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
        let asked: Vec<_> = claims.iter().map(|claim| client.acquire(claim)).collect();
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
        let (freed, Answer { in_doubt, generation, .. }) =
            client.free(client.requests().downgrade(grant.claim())).await?;
        if freed == 0 && !in_doubt {
            return Err(Error::new(ErrorKind::Lost, "the lock was lost before the downgrade"));
        }
        client.confirm(generation, time_to_confirm(grant.claim())).await?;
        Ok(grant.downgraded())
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        let client = self.client()?;
        let released = client.give_up(claim, claim.may_be_queued()).await?;
        Ok(if released { Released::Released } else { Released::NotHeld })
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        let client = self.client()?;
        let answer = client.calls.call(items::inspection(&self.shared.keys, name)).await?;
        Ok(answers::look(&answer.value)?.status(name))
    }

    async fn force_release(&self, name: &LockName) -> Result<usize> {
        let client = self.client()?;
        Ok(client.free(client.requests().force(name)).await?.0)
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
