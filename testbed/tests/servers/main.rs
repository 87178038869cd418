//! Every kind of server through its whole life.

mod cluster;
mod databases;
mod ensemble;
mod life;
mod redis;
mod releases;
mod sentinel;
mod small;
mod tls;

/// True if a test has to be skipped, and says why. Fails instead where servers are required.
fn skip(installed: Result<(), testbed::Error>) -> bool {
    let Err(reason) = installed else { return false };
    assert!(!testbed::servers_required(), "{reason}");
    println!("ignored: {reason}");
    true
}
