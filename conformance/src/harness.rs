//! A lock server for the suite: its clients, its network, and its faults.

use std::fmt::Debug;
use std::time::Duration;

use lockwell_core::async_trait;

use lockwell_core::{Capabilities, Clock, Locks, Requirement, Result};

/// A feature that a case needs and that not every harness has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Need {
    /// Reader locks.
    Shared,
    /// Semaphores.
    Permits,
    /// Writers become readers without a gap.
    Downgrade,
    /// Rising tokens.
    Fencing,
    /// Several tokens for one claim.
    TokenBlocks,
    /// Waiters are served in order.
    Fifo,
    /// [`Locks::inspect`] counts the waiters.
    Counted,
    /// [`LockStatus::longest_wait`](lockwell_core::LockStatus::longest_wait) is known.
    LongestWait,
    /// [`LockStatus::waiting`](lockwell_core::LockStatus::waiting) names the first waiters.
    NamedWaiters,
    /// Locks survive a clean restart of the server.
    Durable,
    /// Each lock can have records.
    Records,
    /// [`Harness::address`]: other processes can use the server. Their `main` must call
    /// [`serve_if_asked`](super::serve_if_asked).
    Process,
    /// [`Harness::server`]: the server can be paused and restarted.
    Server,
    /// [`Server::fail_over`]: another server can take the place of one that dies. Without it, a promise of
    /// [`failover_safe`](Requirement::FailoverSafe) is not checked.
    Failover,
    /// The server has grace periods of ten seconds or more ([`Locks::begin_grace`]).
    Grace,
    /// [`Harness::link`]: a client can be put behind a network that fails.
    Link,
    /// [`Harness::purge`]: the backend deletes what idle locks leave behind.
    Purge,
}

impl Need {
    /// The needs that depend on the backend alone.
    pub const OF_BACKENDS: [(Self, Requirement); 8] = [
        (Self::Shared, Requirement::Shared),
        (Self::Permits, Requirement::Permits),
        (Self::Downgrade, Requirement::Downgrade),
        (Self::Fencing, Requirement::Fencing),
        (Self::TokenBlocks, Requirement::TokenBlocks),
        (Self::Fifo, Requirement::Fifo),
        (Self::Durable, Requirement::Durable),
        (Self::Records, Requirement::Records),
    ];

    /// The needs that these capabilities meet.
    pub fn met_by(capabilities: &Capabilities) -> Vec<Self> {
        let met = Self::OF_BACKENDS.iter().filter(|(_, requirement)| capabilities.promises(*requirement));
        met.map(|(need, _)| *need).collect()
    }
}

/// One lock server for the suite.
///
/// Only [`client`](Self::client) is required. The suite calls another method only if [`offers`](Self::offers)
/// lists its need. If a method fails, it should panic; the case then fails.
#[async_trait]
pub trait Harness: Debug + Send + Sync + 'static {
    /// The needs that this harness meets. This is called before any server runs, so the list is fixed. A case
    /// checks that it agrees with the promises of the backend.
    fn offers(&self) -> Vec<Need>;

    /// `async fn client(&self) -> Result<Locks>`
    ///
    /// A new client that shares only the server with other clients, like a client in another process. The
    /// suite calls this on any runtime, and the client must work there.
    async fn client(&self) -> Result<Locks>;

    /// The clock of the cases: the one that the backend [has](lockwell_core::DistributedLock::clock). A server that
    /// needs neither a network nor another process can have one of [`skipping_clock`](super::skipping_clock).
    fn clock(&self) -> Clock {
        Clock::system()
    }

    /// The address at which another process finds the server ([`Need::Process`]).
    fn address(&self) -> Option<String> {
        None
    }

    /// The control of the server ([`Need::Server`]).
    fn server(&self) -> Option<&dyn Server> {
        None
    }

    /// `async fn link(&self) -> Option<Box<dyn Link>>`
    ///
    /// A new network between new clients and the server ([`Need::Link`]).
    async fn link(&self) -> Option<Box<dyn Link>> {
        None
    }

    /// `async fn purge(&self)`
    ///
    /// Deletes the records of idle locks now. Without this call the backend does so at some later time
    /// ([`Need::Purge`]).
    async fn purge(&self) {}
}

/// Controls a server.
#[async_trait]
pub trait Server: Send + Sync {
    /// `async fn pause(&self)`
    ///
    /// Stops its processes, as SIGSTOP does. Connections stay open and are silent.
    async fn pause(&self);

    /// `async fn resume(&self)`
    ///
    /// Continues paused processes, and starts a killed server again.
    async fn resume(&self);

    /// `async fn restart(&self)`
    ///
    /// Ends the server in good order and starts it again with the same data at the same address.
    async fn restart(&self);

    /// `async fn fail_over(&self)`
    ///
    /// Kills the server that serves the clients, without a shutdown, so that another one takes its place
    /// ([`Need::Failover`]). [`resume`](Self::resume) starts it again.
    async fn fail_over(&self) {
        panic!("no other server can take the place of this one");
    }
}

/// The direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Way {
    /// Requests.
    ToServer,
    /// Replies.
    ToClient,
    /// Both ways.
    Both,
}

/// A network that fails on demand.
#[async_trait]
pub trait Link: Send + Sync {
    /// `async fn client(&self) -> Result<Locks>`
    ///
    /// A new client all of whose connections go through this network.
    async fn client(&self) -> Result<Locks>;

    /// From now on all bytes in this direction are lost. Connections stay open, and new ones hang.
    fn blackhole(&self, way: Way);

    /// Resets all connections, and all new ones, until [`heal`](Self::heal).
    fn cut(&self);

    /// From now on bytes take this long, each way.
    fn delay(&self, each_way: Duration);

    /// Drops the reply to the `k`-th request from now on, counted over all connections, and resets the
    /// connection of that request.
    fn drop_reply(&self, k: u64);

    /// How many requests have been sent so far over all connections, as [`drop_reply`](Self::drop_reply)
    /// counts them.
    fn requests(&self) -> u64;

    /// How many replies [`drop_reply`](Self::drop_reply) has dropped.
    fn dropped_replies(&self) -> u64;

    /// From now on holds back all bytes on the connections that are open now, in both directions. New
    /// connections work as usual.
    fn hold_back(&self);

    /// `async fn deliver(&self) -> u64`
    ///
    /// Delivers to the server the bytes that [`hold_back`](Self::hold_back) has held back, even those of
    /// clients that have closed their connection meanwhile, and stops holding back. Returns the number of
    /// bytes that the server has received by that.
    async fn deliver(&self) -> u64;

    /// Ends all faults. Resets connections that have lost bytes, and delivers bytes that were held back.
    fn heal(&self);
}
