//! One server: alone, behind sentinels, or the cluster that acts as one.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use lockcore::backend::{self, PerRuntime, Queue, Waiter, Waiters, wait_for_turn};
use lockcore::{
    Capabilities, Claim, DistributedLock, Error, ErrorKind, Grant, LockName, LockStatus, Moment, Operation,
    Released, Renewal, Result, ServerUrl, Wait, async_trait,
};

use crate::address::{Address, Place};
use crate::answers::{self, Took};
use crate::calls::{Answer, Calls, Item};
use crate::check;
use crate::cluster::Cluster;
use crate::doubts::Demands;
use crate::error::SLOT_MOVES;
use crate::items::{Caller, recheck};
use crate::keys::{self, Keys};
use crate::options::Options;
use crate::replicas::time_to_confirm;
use crate::route::Route;
use crate::wire::{Subscriber, Wire};

/// Locks on a Redis server, on the master behind Sentinels, or in a cluster.
///
/// Each runtime that uses it has one connection to each server that its calls go to, for calls and notifications; the
/// keeper thread is one of them. That is one server, or the masters of a cluster. The number of locks and waiters does not
/// matter. Made by [`connect`](Self::connect).
pub struct RedisLock {
    shared: Arc<Shared>,
    clients: PerRuntime<Client>,
}

pub(crate) struct Settings {
    address: Address,
    options: Options,
    /// How many replicas must have a grant before it counts.
    pub(crate) wait_replicas: u32,
}

impl Settings {
    /// What is to be said of a server that keeps these locks.
    fn demands(&self) -> Demands {
        let by_sentinels = matches!(self.address.place, Place::Sentinel { .. });
        Demands { wait_replicas: self.wait_replicas, by_sentinels }
    }
}

pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) keys: Keys,
}

/// What one runtime has of the server.
pub(crate) struct Client {
    pub(crate) shared: Arc<Shared>,
    pub(crate) calls: Calls,
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
        let own = ["wait_replicas", "sentinel_user", "sentinel_password"];
        let options = Options::read(url, &own).map_err(context)?;
        let address = Address::read(url).map_err(context)?;
        if address.is_cluster() {
            keys::check_for_cluster(&options.namespace).map_err(context)?;
        }
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
        let demands = options.strict.then(|| shared.settings.demands());
        let address = address.clone();
        let route = if address.is_cluster() {
            Route::Cluster(Arc::new(Cluster::new(address, subscriber, demands)))
        } else {
            Route::One(Arc::new(Wire::new(address, Some(subscriber)).demanding(demands)))
        };
        let calls = Calls::new(route, options.timeout);
        Self { shared: Arc::clone(shared), calls, waiters, channel, tickets: AtomicI64::new(1) }
    }

    async fn check(&self) -> Result<()> {
        let settings = &self.shared.settings;
        let mut more = Vec::new();
        if settings.address.is_cluster() {
            more.extend(["EXPIRE", "ASKING"]);
        }
        if settings.wait_replicas > 0 {
            more.push("WAIT");
        }
        let (options, demands) = (&settings.options, settings.demands());
        check::route(self.calls.route(), &self.shared.keys, &more, options, demands).await
    }

    /// The slot of a lock; 0 where there is no cluster.
    fn slot(&self, claim: &Claim) -> u16 {
        self.shared.keys.slot(claim.name())
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
    pub(crate) fn take(
        &self,
        claim: &Claim,
        ticket: Option<i64>,
    ) -> impl Future<Output = Result<(Took, Answered)>> + use<> {
        let item = self.caller().take(claim, ticket);
        let (script, mode) = (item.script, claim.mode());
        let call = self.calls.call(item);
        async move {
            let Answer { value, sent, wire, generation, .. } = call.await?;
            Ok((answers::took(value, script, mode)?, Answered { sent, wire, generation }))
        }
    }

    async fn free(&self, item: Item) -> Result<(bool, Answer)> {
        let script = item.script;
        let mut answer = self.calls.call(item).await?;
        let freed = answers::freed(std::mem::replace(&mut answer.value, redis::Value::Nil), script)?;
        self.notify(freed.next);
        // An earlier try, whose answer was lost, may have done it.
        Ok((freed.released || answer.in_doubt, answer))
    }
}

/// A claim queues by the same script call that asks for the lock, and each call is a sign of life.
impl Queue for Client {
    type Place = Waiter;

    async fn subscribe(&self) {
        // In a cluster that depends on the claim.
        if let Route::One(wire) = self.calls.route() {
            wire.listen().await;
        }
    }

    async fn ask(&self, claim: &Claim, place: Option<&Waiter>) -> Result<backend::Answer> {
        if place.is_some() && !self.calls.route().is_listening(self.slot(claim)) {
            Box::pin(self.calls.route().listen(self.slot(claim))).await;
        }
        let call = self.take(claim, place.map(Waiter::ticket));
        let took = match self.calls.route() {
            Route::One(_) => call.await,
            Route::Cluster(_) => Box::pin(self.within_wait(claim, call)).await,
        };
        match took {
            Ok((Took::Granted(token), call)) => {
                claim.note_left_queue();
                Ok(match self.granted(claim, token, call).await? {
                    Some(grant) => backend::Answer::Granted(grant),
                    None => backend::Answer::Undecided { pause: Duration::ZERO },
                })
            }
            Ok((Took::Busy(busy), _)) => Ok(backend::Answer::Refused { recheck: recheck(&busy) }),
            // It will be at its new node in a moment, and nothing was done meanwhile.
            Err(error) if claim.wait() != Wait::No && error.is_retryable() && self.is_moving(claim) => {
                let error = self.explained(claim, error);
                Ok(backend::Answer::Unavailable { error, pause: Duration::from_millis(20) })
            }
            Err(error) => Err(error),
        }
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

impl Client {
    /// Whether the slot of a lock was found to be on its way to another node lately.
    fn is_moving(&self, claim: &Claim) -> bool {
        self.calls.route().is_moving(self.slot(claim))
    }

    /// Ends a wait for a slot that is on its way to another node in time to say so.
    async fn within_wait<T>(&self, claim: &Claim, call: impl Future<Output = Result<T>>) -> Result<T> {
        if claim.wait() == Wait::No {
            return call.await;
        }
        let mut call = std::pin::pin!(call);
        tokio::select! {
            biased;
            took = &mut call => return took,
            () = claim.given_up() => (),
        }
        if self.is_moving(claim) { Err(Error::new(ErrorKind::Unreachable, SLOT_MOVES)) } else { call.await }
    }

    /// Says why a wait came to nothing, if the slot of its lock was on its way to another node at its end.
    fn explained(&self, claim: &Claim, error: Error) -> Error {
        let vague = matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::Unreachable);
        if vague && self.is_moving(claim) { Error::new(ErrorKind::Unreachable, SLOT_MOVES) } else { error }
    }
}

/// When the call that brought an answer was sent, and on which connection.
pub(crate) struct Answered {
    pub(crate) sent: Moment,
    pub(crate) wire: Arc<Wire>,
    pub(crate) generation: u64,
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
        let place = if claim.wait() != Wait::No && client.calls.route().is_listening(client.slot(claim)) {
            claim.note_queued();
            Some(client.enter(claim).await?)
        } else {
            None
        };
        wait_for_turn(&*client, claim, place).await.map_err(|error| client.explained(claim, error))
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
            (Took::Granted(token), call) => client.granted(claim, token, call).await,
            (Took::Busy(_), _) => Ok(None),
        });
        join_all(answers).await
    }

    async fn renew(&self, grants: &[Grant], until: Moment) -> Vec<Renewal> {
        match self.client() {
            Ok(client) => client.renew(grants, until).await,
            Err(error) => grants.iter().map(|_| Renewal::Unknown(error.duplicate())).collect(),
        }
    }

    async fn downgrade(&self, grant: &Grant) -> Result<Grant> {
        let client = self.client()?;
        let (done, answer) = client.free(client.caller().downgrade(grant.claim())).await?;
        if !done {
            return Err(Error::new(ErrorKind::Lost, "the lock was lost before the downgrade"));
        }
        client.confirm_once(&answer.wire, answer.generation, time_to_confirm(grant.claim())).await?;
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
        self.clients.take_all().iter().for_each(|client| client.calls.route().close());
    }
}

impl fmt::Debug for RedisLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLock").field("address", &self.shared.settings.address).finish_non_exhaustive()
    }
}
