//! Every kind of server through its whole life.

mod databases;
mod life;
mod small;

/// True if a test has to be skipped, and says why. Fails instead where servers are required.
fn skip(installed: Result<(), testbed::Error>) -> bool {
    let Err(reason) = installed else { return false };
    assert!(!testbed::servers_required(), "{reason}");
    println!("ignored: {reason}");
    true
}
