//! A lock server as the suite uses it: its clients, its network, its switches.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;

use crate::{Capabilities, Locks, Requirement, Result};

/// Something that a case needs and that not every harness has.
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
    /// [`Locks::inspect`] counts those who wait.
    Counted,
    /// [`LockStatus::longest_wait`](crate::LockStatus::longest_wait) is known.
    LongestWait,
    /// Locks survive a clean restart of the server.
    Durable,
    /// [`Harness::address`]: other processes can use the server. Their `main` must call
    /// [`serve_if_asked`](super::serve_if_asked).
    Process,
    /// [`Harness::server`]: the server can be paused and restarted.
    Server,
    /// [`Server::fail_over`]: another server can take the place of one that dies. Without it, a promise of
    /// [`failover_safe`](Capabilities::failover_safe) is not checked.
    Failover,
    /// [`Harness::link`]: a client can be put behind a network that fails.
    Link,
    /// [`Harness::purge`]: the backend deletes what idle locks leave behind.
    Purge,
}

impl Need {
    /// The needs that a backend itself meets or does not.
    pub const OF_BACKENDS: [(Self, Requirement); 7] = [
        (Self::Shared, Requirement::Shared),
        (Self::Permits, Requirement::Permits),
        (Self::Downgrade, Requirement::Downgrade),
        (Self::Fencing, Requirement::Fencing),
        (Self::TokenBlocks, Requirement::TokenBlocks),
        (Self::Fifo, Requirement::Fifo),
        (Self::Durable, Requirement::Durable),
    ];

    /// The needs that these capabilities meet.
    pub fn met_by(capabilities: &Capabilities) -> Vec<Self> {
        let met = Self::OF_BACKENDS.iter().filter(|(_, requirement)| capabilities.promises(*requirement));
        met.map(|(need, _)| *need).collect()
    }
}

/// One lock server, as the suite uses it.
///
/// Only [`client`](Self::client) is required. The other methods are called only if [`offers`](Self::offers) names the
/// need that they meet; a method that fails panics, which fails the case.
#[async_trait]
pub trait Harness: Debug + Send + Sync + 'static {
    /// The needs that this harness meets. It is called before any server runs, so it lists what the backend is known to promise;
    /// a case checks that the backend promises exactly that.
    fn offers(&self) -> Vec<Need>;

    /// `async fn client(&self) -> Result<Locks>`
    ///
    /// A new client that shares nothing with the others but the server, as another process would have. It may be
    /// asked for on any runtime, and must work there.
    async fn client(&self) -> Result<Locks>;

    /// The address at which another process finds the server ([`Need::Process`]).
    fn address(&self) -> Option<String> {
        None
    }

    /// The server's switches ([`Need::Server`]).
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
    /// Deletes the records of idle locks now, which the backend otherwise does at some later time
    /// ([`Need::Purge`]).
    async fn purge(&self) {}
}

/// The switches of a server.
#[async_trait]
pub trait Server: Send + Sync {
    /// `async fn pause(&self)`
    ///
    /// Stops its processes, as SIGSTOP does. Connections stay open and are silent.
    async fn pause(&self);

    /// `async fn resume(&self)`
    ///
    /// Continues stopped processes, and starts a server again that was killed.
    async fn resume(&self);

    /// `async fn restart(&self)`
    ///
    /// Ends the server in good order and starts it again with the same data at the same address.
    async fn restart(&self);

    /// `async fn fail_over(&self)`
    ///
    /// Kills the server that serves the clients, without any notice, where another one takes its place
    /// ([`Need::Failover`]). [`resume`](Self::resume) starts it again.
    async fn fail_over(&self) {
        panic!("no other server can take the place of this one");
    }
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

    /// From now on all bytes that go this way are lost. Connections stay open, and new ones hang.
    fn blackhole(&self, way: Way);

    /// Resets all connections, and all new ones, until [`heal`](Self::heal).
    fn cut(&self);

    /// From now on bytes take this long, each way.
    fn delay(&self, each_way: Duration);

    /// Swallows the reply to the `k`-th request from now on, counted over all connections, and resets that
    /// connection.
    fn drop_reply(&self, k: u64);

    /// How many requests have been sent so far over all connections, as [`drop_reply`](Self::drop_reply) counts them.
    fn requests(&self) -> u64;

    /// How many replies [`drop_reply`](Self::drop_reply) has swallowed.
    fn dropped_replies(&self) -> u64;

    /// Keeps from now on what comes on the connections that are open now, both ways. New connections work as usual.
    fn hold_back(&self);

    /// `async fn deliver(&self) -> u64`
    ///
    /// Delivers to the server what [`hold_back`](Self::hold_back) has kept, even of clients that have closed their
    /// side meanwhile, and ends holding back. Returns how many bytes the server has got by that.
    async fn deliver(&self) -> u64;

    /// Back to normal. Connections that have lost something are reset, and what was held back is delivered.
    fn heal(&self);
}
