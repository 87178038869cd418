//! Redlock: a majority of independent nodes.
//!
//! Source: the "Distributed Locks with Redis" page of the Redis documentation, with what its critics asked
//! for: a fencing token (see [`tally`]), and a validity that is counted from before the first request.

mod context;
mod items;
mod node;
mod note;
mod quorum;
mod reinstate;
mod release;
mod renewal;
mod repair;
mod round;
mod settings;
mod tally;
mod waiting;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use lockwell_core::backend::PerRuntime;
use lockwell_core::{
    Capabilities, Claim, DistributedLock, Error, ErrorKind, Finding, Grant, LockName, LockStatus, Mode,
    Moment, Operation, Released, Renewal, Requirement, Result, ServerUrl, Wait, async_trait,
};

use self::context::Common;
use self::quorum::{Quorum, SLOW_NODES};
use self::settings::Settings;
use crate::checks::examine;
use crate::gather::gather;
use crate::wire::doubts::Demands;
use crate::words::keys::Keys;

const NO_PERMITS: &str = "Redlock has no semaphores, since no majority can count: with two permits at each of the nodes \
                          A, B and C, one holder can have A and B, a second B and C, a third A and C";

/// Locks held at a majority of independent Redis nodes.
///
/// Exclusive locks, and those of readers and writers: a writer needs a majority of nodes without a holder, a
/// reader one without a writer, and two majorities share a node. A semaphore does not work like this: with
/// two permits at each of the nodes A, B and C, one holder can have A and B, a second B and C, a third A and
/// C.
///
/// Each runtime that uses it has one connection to each node; the keeper thread is one of them. Made by
/// [`connect`](Self::connect).
pub struct Redlock {
    common: Arc<Common>,
    quorums: PerRuntime<Quorum>,
    servers: String,
}

impl Redlock {
    /// Connects to the nodes at this address, and checks them. A majority must answer.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is locked.
    pub async fn connect(url: &ServerUrl) -> Result<Self> {
        let context = |error: Error| error.during(Operation::Connect).on_backend("redlock");
        let settings = Settings::read(url).map_err(context)?;
        let keys = Keys::new(&settings.options.namespace, false);
        let common = Common { settings, keys, highest: AtomicU64::new(0) };
        let servers: Vec<_> = common.settings.nodes.iter().map(|node| node.topology.to_string()).collect();
        let servers = servers.join(",");
        let redlock = Self { common: Arc::new(common), quorums: PerRuntime::new(), servers };
        let checked = redlock.quorum()?.check().await;
        checked.map_err(|error| context(error.at(redlock.servers.as_str())))?;
        Ok(redlock)
    }

    fn quorum(&self) -> Result<Arc<Quorum>> {
        self.quorums.get(|| Quorum::new(&self.common))
    }
}

#[async_trait]
impl DistributedLock for Redlock {
    fn capabilities(&self) -> Capabilities {
        // No permits: see the documentation of the type.
        Capabilities::minimal("redlock")
            .promising([
                Requirement::Shared,
                Requirement::Downgrade,
                Requirement::TokenBlocks,
                Requirement::Fencing,
                Requirement::Push,
                Requirement::HerdFree,
                Requirement::AcrossHosts,
                Requirement::Durable,
                Requirement::FailoverSafe,
            ])
            .with_ttl(Duration::from_millis(200), self.common.settings.longest_ttl)
    }

    fn servers(&self) -> Option<&str> {
        Some(&self.servers)
    }

    async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        if let Mode::Permit { .. } = claim.mode() {
            return Err(Error::new(ErrorKind::Unsupported, NO_PERMITS));
        }
        let quorum = self.quorum()?;
        if claim.wait() == Wait::No { quorum.try_now(claim).await } else { quorum.wait_for_turn(claim).await }
    }

    async fn renew(&self, grants: &[Grant], until: Moment) -> Vec<Renewal> {
        match self.quorum() {
            Ok(quorum) => renewal::renew(&quorum.shared, &quorum.nodes, grants, until).await,
            Err(error) => Renewal::all_unknown(grants, &error),
        }
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        self.quorum()?.release_claim(claim).await
    }

    async fn downgrade(&self, grant: &Grant) -> Result<Grant> {
        self.quorum()?.downgrade(grant).await
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        self.quorum()?.inspect(name).await
    }

    async fn force_release(&self, name: &LockName) -> Result<usize> {
        self.quorum()?.force_release(name).await
    }

    /// A held lock is set at a majority of the nodes, so asking a majority of the nodes is enough; nodes that
    /// cannot be reached are left out.
    async fn names(&self) -> Result<Vec<LockName>> {
        let (quorum, limit) = (self.quorum()?, self.common.settings.options.timeout);
        let asked =
            quorum.nodes.iter().map(|node| examine::names(node.calls.wire(), &self.common.keys, limit, None));
        let answers = gather(asked, quorum.majority(), SLOW_NODES).await;
        let (mut names, mut listed, mut last_error) = (Vec::new(), 0, None);
        for answer in answers.into_iter().flatten() {
            match answer {
                Ok(found) => {
                    listed += 1;
                    names.extend(found);
                }
                Err(error) => last_error = Some(error),
            }
        }
        match last_error {
            Some(error) if listed < quorum.majority() => Err(error),
            _ => Ok(names),
        }
    }

    async fn examine(&self) -> Result<Vec<Finding>> {
        let (quorum, limit) = (self.quorum()?, self.common.settings.options.timeout);
        // Nodes of Redlock have no replicas that count.
        let demands = Demands { wait_replicas: 0, by_sentinels: false, grace: false };
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        for node in &quorum.nodes {
            let wire = node.calls.wire();
            match examine::examine(wire, demands, limit).await {
                Ok(findings) => found.push((wire, examine::of_node(findings))),
                Err(error) => missing.push(format!("{}: {error:#}", wire.address.topology)),
            }
        }
        let mut findings = examine::of_each(found);
        findings.extend(missing.into_iter().map(|text| {
            Finding::doubtful("node", text, "bring it back: without a majority nobody gets a lock")
        }));
        Ok(findings)
    }

    async fn close(&self) {
        for quorum in self.quorums.take_all() {
            quorum.nodes.iter().for_each(|node| node.calls.wire().close());
        }
    }
}

impl fmt::Debug for Redlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redlock").field("nodes", &self.common.settings.nodes).finish_non_exhaustive()
    }
}
