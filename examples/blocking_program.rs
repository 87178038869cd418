//! A program that is not asynchronous, and blocks for longer than its lease lasts.
//!
//! Leases are renewed by a thread of the library. So the runtime is needed to take and to give up a lock, and not in
//! between.
//!
//! `cargo run --example blocking_program`

use std::thread;
use std::time::Duration;

use lockwell::Locks;

fn main() -> lockwell::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("the system gives a timer and a poll handle");
    let locks = Locks::in_memory();

    let guard = runtime.block_on(locks.lock("backup").ttl(Duration::from_millis(300)).into_future())?;

    // No runtime turns here, and the work takes three leases.
    thread::sleep(Duration::from_millis(900));

    // A look at the clock, no request: the way to ask from work that cannot be interrupted.
    println!("after three leases still held: {}", guard.is_held());
    assert!(guard.is_held());

    runtime.block_on(guard.release())
}
