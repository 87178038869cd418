//! Where the conformance suite gets to know what no interface of this crate tells, and tests say what names mean.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::OnceLock;

use tokio::runtime::Builder;

/// Functions of the suite that this crate calls. An application sets none.
#[derive(Debug)]
pub struct Hooks {
    /// Gets the bits of each new owner id: the suite searches logs for them.
    pub new_owner: fn(u128),
    /// Gets each runtime that this crate builds: the suite notes when its thread has no work.
    pub new_runtime: fn(&mut Builder),
}

static HOOKS: OnceLock<Hooks> = OnceLock::new();

/// Sets the hooks of this process. The first call counts. Threads that run already have none.
pub fn set_hooks(hooks: Hooks) {
    HOOKS.get_or_init(|| hooks);
}

pub(crate) fn hooks() -> Option<&'static Hooks> {
    HOOKS.get()
}

/// Where a test says that a host and a port are; `None`: it does not say.
type Lookup = fn(&str, u16) -> Option<Vec<SocketAddr>>;

static LOOKUP: OnceLock<Lookup> = OnceLock::new();

/// Sets the names of this process that a test makes up. The first call counts.
pub fn set_lookup(lookup: Lookup) {
    LOOKUP.get_or_init(|| lookup);
}

/// The addresses of a host. Blocks.
pub(crate) fn looked_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    match LOOKUP.get().and_then(|lookup| lookup(host, port)) {
        Some(found) => Ok(found),
        None => (host, port).to_socket_addrs().map(Iterator::collect),
    }
}

/// The threads of a clock that goes on by itself, and skips the time in which all of them rest.
pub trait ClockThreads: Send + Sync {
    /// The calling thread is one of them from now on.
    fn join(&self);

    /// The calling thread has begun a sleep by the clock.
    fn note_sleeper(&self);

    /// No time is skipped as long as the sum of all calls is not zero.
    fn hold(&self, more: isize);
}
