//! Locks on one server, on the master behind sentinels, or in a cluster.

pub(crate) mod client;
mod reclaim;
mod records;
pub(crate) mod renewal;
mod replicas;
mod waiting;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use lockwell_core::backend::{PerRuntime, wait_for_turn};
use lockwell_core::{
    Capabilities, Claim, DistributedLock, Error, ErrorKind, Finding, Grant, LockName, LockStatus, Moment,
    Operation, Record, RecordKind, RecordWrite, Released, Renewal, Requirement, Result, ServerUrl,
    async_trait,
};

use redis::ConnectionInfo;

use self::client::{Client, Common, Settings};
use crate::calls::grace::{GraceGate, Part};
use crate::calls::items;
use crate::checks::examine;
use crate::server::replicas::time_to_confirm;
use crate::wire::sentinel::Decision;
use crate::words::address::{Address, SENTINEL_OPTIONS};
use crate::words::answers::{self, ClaimAnswer};
use crate::words::durability;
use crate::words::keys::{self, Keys};
use crate::words::options::RedisOptions;

/// What bounds a lease where there are grace periods.
const LONGEST_TTL: &str =
    "longest_ttl in the address, the same for all clients: the longest lease that the server may forget";

/// Locks on a Redis server, on the master behind Sentinels, or in a cluster.
///
/// Each runtime that uses it has one connection to each server that its calls go to, for calls and
/// notifications; the keeper thread is one of them. That is one server, or the masters of a cluster. The
/// number of locks and waiters does not matter. Made by [`connect`](Self::connect).
pub struct RedisLock {
    common: Arc<Common>,
    clients: PerRuntime<Client>,
    servers: String,
    /// Whether each server has told, when the first client connected, that its locks survive a restart.
    is_durable: bool,
}

fn context(error: Error) -> Error {
    error.during(Operation::Connect).on_backend("redis")
}

impl RedisLock {
    /// Connects to the server, the sentinels or the cluster at this address, and checks whether it can keep
    /// locks.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is locked.
    pub async fn connect(url: &ServerUrl) -> Result<Self> {
        let mut own = vec!["create", "wait_replicas"];
        own.extend(SENTINEL_OPTIONS);
        own.extend(durability::OPTIONS);
        let options = RedisOptions::read(url, &own).map_err(context)?;
        Self::reach(url, Address::read(url).map_err(context)?, options).await
    }

    /// Connects to the server of a client that the application has, with its login and its certificates:
    /// `client.get_connection_info()` of a `redis::Client`. It is one server.
    ///
    /// The address has the other options: `redis://?namespace=app:`. The password is that of the client,
    /// unless the address came with a [file or a function](lockwell_core::LockConfig::password_from) for it.
    ///
    /// The connections are made for lockwell alone. lockwell cannot use a connection of the application, such
    /// as a `ConnectionManager`: notifications arrive over the connection that makes the calls, a call has
    /// its own time limit, and lockwell must know when a connection is replaced.
    ///
    /// ```no_run
    /// # mod lockwell { pub use lockwell_core::*; pub use lockwell_redis as redis; }
    /// # async fn example(client: lockwell::redis::client::Client) -> lockwell::Result<()> {
    /// use std::sync::Arc;
    /// use lockwell::redis::RedisLock;
    /// use lockwell::{LockConfig, Locks};
    ///
    /// let (url, config) = LockConfig::new("redis://?namespace=app:").resolve()?;
    /// let backend = RedisLock::connect_with(&url, client.get_connection_info()).await?;
    /// let locks = Locks::with_config(Arc::new(backend), &config)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`connect`](Self::connect), and [`InvalidInput`](ErrorKind::InvalidInput) if the address names a
    /// server, a user, a database or certificates.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is locked.
    pub async fn connect_with(url: &ServerUrl, info: &ConnectionInfo) -> Result<Self> {
        let mut own = vec!["create", "wait_replicas"];
        own.extend(durability::OPTIONS);
        let options = RedisOptions::read(url, &own).map_err(context)?;
        Self::reach(url, Address::of_client(url, info).map_err(context)?, options).await
    }

    async fn reach(url: &ServerUrl, address: Address, options: RedisOptions) -> Result<Self> {
        let longest = durability::read(url, address.can_move()).map_err(context)?;
        if address.is_cluster() {
            keys::check_for_cluster(&options.namespace).map_err(context)?;
        }
        let wait_replicas = url.parsed("wait_replicas", "a number of replicas").map_err(context)?;
        let keys = Keys::new(&options.namespace, address.is_cluster());
        let servers = address.topology.to_string();
        let wait_replicas = wait_replicas.unwrap_or(0);
        let create = url.parsed("create", "true or false").map_err(context)?.unwrap_or(true);
        let settings = Settings { address, options, wait_replicas, longest, create };
        let gate = Arc::new(GraceGate::new(longest, keys.clone(), create));
        let common = Arc::new(Common { settings, keys, gate, decision: Arc::new(Decision::new()) });
        let lock = Self { common, clients: PerRuntime::new(), servers, is_durable: false };
        let checked = lock.client()?.check().await;
        let is_durable = checked.map_err(|error| context(error.at(lock.servers.as_str())))?;
        Ok(Self { is_durable, ..lock })
    }

    fn client(&self) -> Result<Arc<Client>> {
        self.clients.get(|| Client::new(&self.common))
    }

    /// The key of a lock, as other programs see it.
    pub fn key(&self, name: &LockName) -> String {
        self.common.keys.lock(name)
    }
}

#[async_trait]
impl DistributedLock for RedisLock {
    fn capabilities(&self) -> Capabilities {
        // Not `FailoverSafe`: replication is asynchronous, and a replica that takes over may not have the
        // lock. A grace period makes up for that only if the old master no longer answers.
        let promised = Capabilities::minimal("redis").promising([
            Requirement::Shared,
            Requirement::Permits,
            Requirement::Downgrade,
            Requirement::Fencing,
            Requirement::TokenBlocks,
            Requirement::Fifo,
            Requirement::Push,
            Requirement::HerdFree,
            Requirement::AcrossHosts,
            Requirement::Records,
        ]);
        let promised = promised.promising(self.is_durable.then_some(Requirement::Durable));
        match self.common.settings.longest {
            // What a server may forget must have ended within a grace period.
            Some(longest) => {
                let (shortest, longest) = (promised.min_ttl(), promised.max_ttl().min(longest));
                promised.with_ttl(shortest, longest).bounded_by(LONGEST_TTL)
            }
            None => promised,
        }
    }

    fn servers(&self) -> Option<&str> {
        Some(&self.servers)
    }

    async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        durability::check(claim, self.common.settings.longest)?;
        let client = self.client()?;
        wait_for_turn(&*client, claim).await.map_err(|error| client.explained(claim, error))
    }

    /// All claims go into one call; in a cluster, into one for each slot.
    async fn acquire_each(&self, claims: &[Claim]) -> Vec<Result<Option<Grant>>> {
        let client = match self.client() {
            Ok(client) => client,
            Err(error) => return claims.iter().map(|_| Err(error.duplicate())).collect(),
        };
        // All are in the queue before the first is polled.
        let longest = self.common.settings.longest;
        let ask = |claim| durability::check(claim, longest).map(|()| client.acquire(claim));
        let asked: Vec<_> = claims.iter().map(ask).collect();
        let answers = claims.iter().zip(asked).map(async |(claim, asked)| match asked?.await? {
            (ClaimAnswer::Granted(tokens), call) => client.granted(claim, tokens, call).await,
            (ClaimAnswer::Busy(_), _) => Ok(None),
        });
        join_all(answers).await
    }

    async fn renew(&self, grants: &[Grant], until: Moment) -> Vec<Renewal> {
        match self.client() {
            Ok(client) => client.renew(grants, until).await,
            Err(error) => Renewal::all_unknown(grants, &error),
        }
    }

    async fn downgrade(&self, grant: &Grant) -> Result<Grant> {
        let client = self.client()?;
        let downgrade = || client.free(client.requests().downgrade(grant.claim(), ""));
        let (mut freed, mut answer) = downgrade().await?;
        // Also if it was repeated: a copy that has made a reader of the writer is found.
        if freed == 0 && client.reclaim_one(grant, &answer).await? {
            (freed, answer) = downgrade().await?;
        }
        if freed == 0 {
            return Err(Error::new(ErrorKind::Lost, "the lock was lost before the downgrade"));
        }
        client.confirm_once(&answer.wire, answer.generation, time_to_confirm(grant.claim())).await?;
        Ok(grant.downgraded())
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        // From now on it is not reclaimed: see `reclaim.rs`.
        claim.cancel();
        self.client()?.release_claim(claim, claim.may_be_queued()).await
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        let client = self.client()?;
        let answer = client.calls.call(items::inspection(&self.common.keys, name)).await?;
        Ok(answers::lock_view(&answer.value)?.status(name).unknown_for(answer.closed_for))
    }

    async fn names(&self) -> Result<Vec<LockName>> {
        self.client()?.names(None).await
    }

    async fn write_record(&self, grant: &Grant, write: RecordWrite<'_>) -> Result<()> {
        self.client()?.write_record(grant, write).await
    }

    async fn read_record(
        &self,
        name: &LockName,
        kind: RecordKind,
        _: Option<&Grant>,
    ) -> Result<Option<Record>> {
        self.client()?.read_record(name, kind).await
    }

    async fn records(&self, kind: RecordKind) -> Result<Vec<LockName>> {
        self.client()?.names(Some(kind)).await
    }

    async fn examine(&self) -> Result<Vec<Finding>> {
        let (client, settings) = (self.client()?, &self.common.settings);
        let masters = client.calls.route().masters();
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        for wire in &masters {
            let examined = async {
                let mut findings =
                    examine::examine(wire, settings.demands(), settings.options.timeout).await?;
                let left = client.closed(wire, settings.options.timeout, Part::Server).await?;
                findings.extend(left.map(examine::closed));
                Ok(findings)
            };
            match examined.await {
                Ok(findings) => found.push((wire, findings)),
                Err(error) if masters.len() == 1 => return Err(error),
                Err(error) => missing.push(format!("{}: {error:#}", wire.address.topology)),
            }
        }
        let mut findings = examine::of_each(found);
        let remedy = "bring it back, or let a replica take over: the locks of its slots cannot be used";
        findings.extend(missing.into_iter().map(|text| Finding::bad("node", text, remedy)));
        Ok(findings)
    }

    async fn force_release(&self, name: &LockName) -> Result<usize> {
        let client = self.client()?;
        let found = client.calls.call(items::inspection(&self.common.keys, name)).await?;
        let holders: Vec<_> =
            answers::lock_view(&found.value)?.names().map(|(name, _)| name.to_owned()).collect();
        // In a grace period there may be one that the server has forgotten, and who must not reclaim the
        // lock.
        if holders.is_empty() && found.closed_for.is_none() {
            return Ok(0);
        }
        let grace = self.common.gate.period();
        // The call names the holders, so that a repeated call does not free a successor.
        let (freed, answer) = client.free(client.requests().force(name, &holders, grace)).await?;
        Ok(if answer.in_doubt { holders.len() } else { freed })
    }

    async fn grace_left(&self) -> Result<Option<Duration>> {
        self.client()?.grace_left().await
    }

    async fn begin_grace(&self) -> Result<Duration> {
        self.client()?.set_marks(false).await
    }

    async fn end_grace(&self) -> Result<()> {
        self.client()?.set_marks(true).await.map(drop)
    }

    async fn close(&self) {
        self.clients.take_all().iter().for_each(|client| client.calls.route().close());
    }
}

impl fmt::Debug for RedisLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLock").field("address", &self.common.settings.address).finish_non_exhaustive()
    }
}
