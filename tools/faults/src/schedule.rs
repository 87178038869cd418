//! Which faults happen when. A schedule is drawn from a seed: the same seed draws the same one.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use super::kind::Kind;

/// Which way bytes are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    ToServer,
    ToClient,
    Both,
}

/// One fault. Times are milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "fault")]
pub enum Fault {
    /// SIGKILL.
    KillWorker { worker: u32 },
    /// SIGKILL, and another starts in its place after that time.
    CrashWorker { worker: u32, millis: u64 },
    /// SIGSTOP, and SIGCONT after that time.
    StopWorker { worker: u32, millis: u64 },
    /// All that goes this way between a worker and all servers is lost.
    Blackhole { worker: u32, way: Way, millis: u64 },
    /// The same between all workers and one server.
    LoseNode { node: u32, millis: u64 },
    /// Connections of a worker are reset, new ones too.
    Cut { worker: u32, millis: u64 },
    /// Connections of a worker are reset once.
    Reset { worker: u32 },
    /// All bytes of a worker take so long, each way.
    Delay { worker: u32, each_way: u64, millis: u64 },
    /// All that goes this way between a worker and all servers is kept for so long, and arrives then.
    Hold { worker: u32, way: Way, millis: u64 },
    /// The reply to the k-th request of a worker is lost, and its connection reset.
    DropReply { worker: u32, request: u64, millis: u64 },
    /// What a worker has sent arrives much later, on a connection that it has given up.
    HoldBack { worker: u32, millis: u64 },
    /// A server is stopped by SIGSTOP: it is silent.
    PauseServer { node: u32, millis: u64 },
    /// A server is ended in good order and started again.
    RestartServer { node: u32, millis: u64 },
    /// A server is killed and started again.
    KillServer { node: u32, millis: u64 },
    /// All servers are killed at once and started again.
    KillAll { millis: u64 },
    /// The server that leads is killed and started again. Redis Cluster: a master.
    KillLeader { millis: u64 },
    /// Sentinel, Redis Cluster: the master sends its replica nothing for `ahead`. Then the replica takes
    /// over, and the old master is killed and started again.
    KillAhead { ahead: u64, millis: u64 },
    /// etcd: the disk of the server that leads hangs.
    HangLeader { millis: u64 },
    /// The other servers cannot reach one of them: the one that leads, or one that does not. Clients can.
    Island { of_leader: bool, millis: u64 },
    /// A replica takes over: after the server has ended in good order, or was killed.
    Promote { planned: bool },
    /// Redis: a node is killed and starts again without the last bytes of its append-only file.
    TruncateLog { node: u32, bytes: u64 },
    /// `ZooKeeper` and etcd: a server is killed and starts again without its data.
    LoseData { node: u32 },
    /// An operator frees a lock, whoever holds it.
    ForceRelease { lock: u32 },
    /// Redis: all keys of a node are deleted.
    FlushAll { node: u32 },
    /// Redis: the node forgets all scripts.
    FlushScripts { node: u32 },
    /// Redis: the certificate of the node has expired, and all connections have ended.
    ExpireCertificate { node: u32, millis: u64 },
    /// A server is set back to what it had so long ago.
    Restore { node: u32, millis: u64 },
    /// The server ends all connections of clients.
    KillSessions { node: u32 },
    /// The server ends the connections on which clients are told of releases.
    KillListeners { node: u32 },
    /// SQL: somebody has the rows of all locks locked in a transaction.
    Rogue { millis: u64 },
    /// SQL: transactions of somebody else lock rows of locks, in any order.
    Deadlocks { millis: u64 },
    /// The wall clock of a server is so far ahead or behind; for good if no time is given.
    StepServerClock { node: u32, by: i64, millis: u64 },
    /// The same of a worker.
    StepWorkerClock { worker: u32, by: i64, millis: u64 },
    /// `SQLite`: somebody reads the file in one long transaction.
    LongReader { millis: u64 },
    /// `SQLite`: nothing more can be written to the disk.
    FillDisk { millis: u64 },
    /// `ZooKeeper` and etcd: all that is stored of locks is deleted.
    RemoveFolder,
}

/// What a fault happens to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultTarget {
    /// The worker of this number.
    Worker(u32),
    /// The server of this number.
    Server(u32),
    /// All servers, or one that is known only when it happens.
    Servers,
    /// What the servers keep.
    Data,
}

impl Fault {
    /// A number of the fault, as the file has it.
    fn number(self, field: &str) -> Option<u64> {
        serde_json::to_value(self).ok()?.get(field)?.as_u64()
    }

    /// What it happens to.
    pub fn target(self) -> FaultTarget {
        let number = |field| self.number(field).and_then(|number| u32::try_from(number).ok());
        match self {
            Self::ForceRelease { .. }
            | Self::FlushAll { .. }
            | Self::FlushScripts { .. }
            | Self::Rogue { .. }
            | Self::Deadlocks { .. }
            | Self::LongReader { .. }
            | Self::FillDisk { .. }
            | Self::RemoveFolder => FaultTarget::Data,
            _ => match (number("worker"), number("node")) {
                (Some(worker), _) => FaultTarget::Worker(worker),
                (None, Some(node)) => FaultTarget::Server(node),
                (None, None) => FaultTarget::Servers,
            },
        }
    }

    /// How long it lasts.
    pub fn length(self) -> Duration {
        Duration::from_millis(self.number("millis").unwrap_or(0))
    }

    /// Whether whoever begins it waits until it is over, as for a transaction that sleeps.
    pub fn lasts_by_itself(self) -> bool {
        matches!(
            self,
            Self::Rogue { .. } | Self::Deadlocks { .. } | Self::LongReader { .. } | Self::FillDisk { .. }
        )
    }

    /// In words, as the file has it.
    pub fn words(self) -> String {
        let json = serde_json::to_value(self).unwrap_or_default();
        json["fault"].as_str().unwrap_or_default().replace('_', " ")
    }
}

/// A fault and when it begins, in milliseconds after the workers have begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedFault {
    pub at: u64,
    #[serde(flatten)]
    pub fault: Fault,
}

/// Draws a schedule.
#[derive(Debug)]
pub(crate) struct Draw {
    random: StdRng,
    /// The length of the leases, in milliseconds.
    pub(crate) ttl: u64,
    pub(crate) kind: Kind,
    pub(crate) workers: u32,
    pub(crate) locks: u32,
    faults: Vec<PlannedFault>,
}

impl Draw {
    pub(crate) fn new(seed: u64, scenario: &str, kind: Kind, ttl: u64, workers: u32, locks: u32) -> Self {
        // Scenarios of one run differ from each other. FNV-1a, which stays what it is.
        let words = scenario.bytes().chain(kind.name().bytes());
        let hash = words.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        let random = StdRng::seed_from_u64(seed ^ hash);
        Self { random, ttl, kind, workers, locks, faults: Vec::new() }
    }

    /// A number from `from` up to but without `to`.
    pub(crate) fn between(&mut self, from: u64, to: u64) -> u64 {
        self.random.random_range(from..to)
    }

    /// So many hundredths of a lease, give or take a quarter of that, in milliseconds.
    pub(crate) fn leases(&mut self, hundredths: u64) -> u64 {
        let about = self.ttl * hundredths / 100;
        self.between(about * 3 / 4, about * 5 / 4 + 1)
    }

    pub(crate) fn worker(&mut self) -> u32 {
        self.random.random_range(0..self.workers)
    }

    pub(crate) fn node(&mut self) -> u32 {
        self.random.random_range(0..self.kind.nodes().max(1))
    }

    pub(crate) fn lock(&mut self) -> u32 {
        self.random.random_range(0..self.locks)
    }

    /// When the first fault begins: the workers are in full swing by then.
    pub(crate) fn first(&mut self) -> u64 {
        self.between(700, 1200)
    }

    pub(crate) fn fault(&mut self, at: u64, fault: Fault) {
        self.faults.push(PlannedFault { at, fault });
    }

    /// This fault, once.
    pub(crate) fn once(&mut self, fault: Fault) {
        let at = self.first();
        self.fault(at, fault);
    }

    /// A fault, once, at any node.
    pub(crate) fn once_at_node(&mut self, fault: impl Fn(u32) -> Fault) {
        let (at, node) = (self.first(), self.node());
        self.fault(at, fault(node));
    }

    /// A fault that lasts for about so many hundredths of a lease.
    pub(crate) fn lasting(&mut self, hundredths: u64, fault: impl Fn(u64) -> Fault) {
        let (at, millis) = (self.first(), self.leases(hundredths));
        self.fault(at, fault(millis));
    }

    /// The same, at any node.
    pub(crate) fn at_node(&mut self, hundredths: u64, fault: impl Fn(u32, u64) -> Fault) {
        let (at, node, millis) = (self.first(), self.node(), self.leases(hundredths));
        self.fault(at, fault(node, millis));
    }

    /// The same, of any worker.
    pub(crate) fn at_worker(&mut self, hundredths: u64, fault: impl Fn(u32, u64) -> Fault) {
        let (at, worker, millis) = (self.first(), self.worker(), self.leases(hundredths));
        self.fault(at, fault(worker, millis));
    }

    /// So many faults, each at any node, about so many milliseconds after the one before.
    pub(crate) fn in_turns(&mut self, many: u64, apart: u64, fault: impl Fn(u32) -> Fault) {
        let at = self.first();
        for turn in 0..many {
            let (node, late) = (self.node(), self.between(0, 100));
            self.fault(at + turn * apart + late, fault(node));
        }
    }

    /// The schedule, in order.
    pub(crate) fn finish(mut self) -> Vec<PlannedFault> {
        self.faults.sort_by_key(|planned| planned.at);
        self.faults
    }
}
