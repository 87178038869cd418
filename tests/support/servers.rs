//! What the harnesses of servers have in common.

use testbed::{Durability, Options};

use super::targets::quick_folder;

/// Servers that are killed must keep what they have acknowledged; power cuts are not part of the suite.
pub(crate) fn options() -> Options {
    Options::new().durability(Durability::OsCache).parent(quick_folder())
}

/// What a server offers that has all kinds of locks.
pub(crate) fn offers() -> Vec<lockwell::conformance::Need> {
    use lockwell::conformance::Need::{
        Counted, Downgrade, Durable, Fencing, Fifo, Link, LongestWait, NamedWaiters, Permits, Process,
        Records, Server, Shared, TokenBlocks,
    };
    vec![
        Shared,
        Permits,
        Downgrade,
        TokenBlocks,
        Fencing,
        Fifo,
        Counted,
        LongestWait,
        NamedWaiters,
        Durable,
        Process,
        Server,
        Link,
        Records,
    ]
}

/// What one server offers that could be one of a majority.
#[cfg(any(feature = "zk", feature = "etcd"))]
pub(crate) fn offers_of_majority() -> Vec<lockwell::conformance::Need> {
    offers().into_iter().filter(|need| *need != lockwell::conformance::Need::TokenBlocks).collect()
}

/// The leader of several can be killed.
#[cfg(any(feature = "zk", feature = "etcd"))]
pub(crate) fn offers_of_three() -> Vec<lockwell::conformance::Need> {
    [&offers_of_majority()[..], &[lockwell::conformance::Need::Failover]].concat()
}

/// What a client says in its address to trust servers with these certificates and to be trusted.
#[cfg(all(feature = "redis", feature = "tls"))]
pub(crate) fn credentials(files: &testbed::Certificates) -> String {
    format!("?ca={}&cert={}&key={}", files.path("ca.pem"), files.path("ours.pem"), files.path("ours.key"))
}

/// The option of a group of Redis servers that are trusted to keep each grant: new ones would grant nothing
/// for half a minute, and restarted ones as well.
#[cfg(all(feature = "redis", feature = "tls"))]
pub(crate) const KEEPS: &str = "durability=server";
