//! Locks on one server, on the master behind sentinels, or in a cluster.

pub(crate) mod client;
pub(crate) mod renewal;
mod replicas;
mod waiting;

use std::fmt;
use std::sync::Arc;

use futures_util::future::join_all;
use lockcore::backend::{PerRuntime, Queue, wait_for_turn};
use lockcore::{
    Capabilities, Claim, DistributedLock, Error, ErrorKind, Finding, Grant, LockName, LockStatus, Moment,
    Operation, Released, Renewal, Requirement, Result, ServerUrl, Wait, async_trait,
};

use self::client::{Client, Common, Settings};
use crate::calls::items;
use crate::checks::examine;
use crate::server::replicas::time_to_confirm;
use crate::words::address::Address;
use crate::words::answers::{self, ClaimAnswer};
use crate::words::keys::{self, Keys};
use crate::words::options::RedisOptions;

/// Locks on a Redis server, on the master behind Sentinels, or in a cluster.
///
/// Each runtime that uses it has one connection to each server that its calls go to, for calls and
/// notifications; the keeper thread is one of them. That is one server, or the masters of a cluster. The
/// number of locks and waiters does not matter. Made by [`connect`](Self::connect).
pub struct RedisLock {
    common: Arc<Common>,
    clients: PerRuntime<Client>,
}

impl RedisLock {
    /// Connects to the server, the sentinels or the cluster at this address, and checks whether it can keep
    /// locks.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is locked.
    pub async fn connect(url: &ServerUrl) -> Result<Self> {
        let context = |error: Error| error.during(Operation::Connect).on_backend("redis");
        let own = ["wait_replicas", "sentinel_user", "sentinel_password"];
        let options = RedisOptions::read(url, &own).map_err(context)?;
        let address = Address::read(url).map_err(context)?;
        if address.is_cluster() {
            keys::check_for_cluster(&options.namespace).map_err(context)?;
        }
        let wait_replicas = url.parsed("wait_replicas", "a number of replicas").map_err(context)?;
        let keys = Keys::new(&options.namespace, address.is_cluster());
        let settings = Settings { address, options, wait_replicas: wait_replicas.unwrap_or(0) };
        let lock = Self { common: Arc::new(Common { settings, keys }), clients: PerRuntime::new() };
        lock.client()?.check().await.map_err(context)?;
        Ok(lock)
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
        // lock.
        Capabilities::minimal("redis").promising([
            Requirement::Shared,
            Requirement::Permits,
            Requirement::Downgrade,
            Requirement::Fencing,
            Requirement::TokenBlocks,
            Requirement::Fifo,
            Requirement::Push,
            Requirement::HerdFree,
            Requirement::AcrossHosts,
            // That depends on the server's configuration, which the start-up check looks at.
            Requirement::Durable,
        ])
    }

    async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        let client = self.client()?;
        // If the lock was contended a moment ago, the claim is likely to wait, too, and queues with its first
        // call.
        let hot = client.hot.is_hot(claim.name()) && client.calls.route().is_listening(client.slot(claim));
        let place = if hot && claim.wait() != Wait::No {
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
        let asked: Vec<_> = claims.iter().map(|claim| client.acquire(claim)).collect();
        let answers = claims.iter().zip(asked).map(async |(claim, asked)| match asked.await? {
            (ClaimAnswer::Granted(tokens), call) => client.granted(claim, tokens, call).await,
            (ClaimAnswer::Busy(_), _) => Ok(None),
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
        let (freed, answer) = client.free(client.requests().downgrade(grant.claim(), "")).await?;
        if freed == 0 && !answer.in_doubt {
            return Err(Error::new(ErrorKind::Lost, "the lock was lost before the downgrade"));
        }
        client.confirm_once(&answer.wire, answer.generation, time_to_confirm(grant.claim())).await?;
        Ok(grant.downgraded())
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        self.client()?.release_claim(claim, claim.may_be_queued()).await
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        let client = self.client()?;
        let answer = client.calls.call(items::inspection(&self.common.keys, name)).await?;
        Ok(answers::lock_view(&answer.value)?.status(name))
    }

    async fn names(&self) -> Result<Vec<LockName>> {
        let client = self.client()?;
        let Settings { options, .. } = &self.common.settings;
        let mut names = Vec::new();
        for wire in client.calls.route().masters() {
            names.extend(examine::names(&wire, &self.common.keys, options.timeout).await?);
        }
        Ok(names)
    }

    async fn examine(&self) -> Result<Vec<Finding>> {
        let (client, settings) = (self.client()?, &self.common.settings);
        let masters = client.calls.route().masters();
        let mut found = Vec::new();
        for wire in &masters {
            found.push((wire, examine::examine(wire, settings.demands(), settings.options.timeout).await?));
        }
        Ok(examine::of_each(found))
    }

    async fn force_release(&self, name: &LockName) -> Result<usize> {
        let client = self.client()?;
        let found = client.calls.call(items::inspection(&self.common.keys, name)).await?;
        let holders: Vec<_> = answers::lock_view(&found.value)?.names().map(str::to_owned).collect();
        if holders.is_empty() {
            return Ok(0);
        }
        // The call names the holders, so that a repeated call does not free a successor.
        let (freed, answer) = client.free(client.requests().force(name, &holders)).await?;
        Ok(if answer.in_doubt { holders.len() } else { freed })
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
