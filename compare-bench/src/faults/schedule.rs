//! Which faults happen when. A schedule is drawn from a seed: the same seed draws the same one.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ground::Kind;

/// Which way bytes are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Way {
    ToServer,
    ToClient,
    Both,
}

/// One fault. Times are milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "fault")]
pub(crate) enum Fault {
    /// SIGKILL.
    KillWorker { worker: u32 },
    /// SIGSTOP, and SIGCONT after that time.
    StopWorker { worker: u32, millis: u64 },
    /// All that goes this way between a worker and all servers is lost.
    Blackhole { worker: u32, way: Way, millis: u64 },
    /// Connections of a worker are reset, new ones too.
    Cut { worker: u32, millis: u64 },
    /// All bytes of a worker take so long, each way.
    Delay { worker: u32, each_way: u64, millis: u64 },
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
    /// An operator frees a lock, whoever holds it.
    ForceRelease { lock: u32 },
    /// Redis: all keys of a node are deleted.
    FlushAll { node: u32 },
    /// Redis: the node forgets all scripts.
    FlushScripts { node: u32 },
    /// The server ends all connections of clients.
    KillSessions { node: u32 },
    /// SQL: somebody has the rows of all locks locked in a transaction.
    Rogue { millis: u64 },
}

impl Fault {
    /// How long it lasts.
    pub(crate) fn length(self) -> Duration {
        match self {
            Self::StopWorker { millis, .. }
            | Self::Blackhole { millis, .. }
            | Self::Cut { millis, .. }
            | Self::Delay { millis, .. }
            | Self::DropReply { millis, .. }
            | Self::HoldBack { millis, .. }
            | Self::PauseServer { millis, .. }
            | Self::RestartServer { millis, .. }
            | Self::KillServer { millis, .. }
            | Self::KillAll { millis }
            | Self::Rogue { millis } => Duration::from_millis(millis),
            Self::KillWorker { .. }
            | Self::ForceRelease { .. }
            | Self::FlushAll { .. }
            | Self::FlushScripts { .. }
            | Self::KillSessions { .. } => Duration::ZERO,
        }
    }
}

/// A fault and when it begins, in milliseconds after the workers have begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Strike {
    pub(crate) at: u64,
    #[serde(flatten)]
    pub(crate) fault: Fault,
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
    strikes: Vec<Strike>,
}

impl Draw {
    pub(crate) fn new(seed: u64, scenario: &str, kind: Kind, ttl: u64, workers: u32, locks: u32) -> Self {
        // Scenarios of one run differ from each other. FNV-1a, which stays what it is.
        let words = scenario.bytes().chain(kind.name().bytes());
        let hash = words.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        let random = StdRng::seed_from_u64(seed ^ hash);
        Self { random, ttl, kind, workers, locks, strikes: Vec::new() }
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

    pub(crate) fn strike(&mut self, at: u64, fault: Fault) {
        self.strikes.push(Strike { at, fault });
    }

    /// The schedule, in order.
    pub(crate) fn finish(mut self) -> Vec<Strike> {
        self.strikes.sort_by_key(|strike| strike.at);
        self.strikes
    }
}
