//! A program that is not asynchronous, and blocks for longer than its lease lasts.
//!
//! Leases are renewed by a thread of the library, so nothing has to run in between.
//!
//! `cargo run --example blocking_program`, or `--features redis -- redis://127.0.0.1` and any other address

use std::thread;
use std::time::Duration;

use lockwell::blocking::{self, block_on};

fn main() -> lockwell::Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory://".to_owned());
    let locks = block_on(lockwell::connect(url))?;
    let ttl = locks.capabilities().min_ttl().max(Duration::from_secs(2));

    let guard = block_on(locks.lock("backup").ttl(ttl).wait(Duration::from_secs(5)))?;
    // The work takes three leases, and does not know of them.
    for step in 1..=3 {
        thread::sleep(ttl);
        // A look at the clock, no request: the way to ask from work that cannot be interrupted.
        guard.check()?;
        println!("after {step} leases still held: {}", guard.is_held());
    }
    block_on(guard.release())?;

    // The lock is held while the closure runs, also if it panics.
    let sum = blocking::run(locks.lock("report"), |held| {
        println!("the report has token {}", held.token());
        19 + 23
    })?;
    println!("done under the lock: {sum}");

    // Waits for the releases of guards that were dropped.
    block_on(locks.close())
}
