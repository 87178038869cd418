//! Several locks at once: all or none, and no deadlock whatever the order in which they are named.
//!
//! `cargo run --example many_locks`

use std::time::Duration;

use lockwell::{ErrorKind, Locks, Result};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let locks = Locks::in_memory();

    // Two who lock the same accounts in opposite orders: one lock at a time, they would wait for each other
    // for ever.
    let transfer = |from: &'static str, to: &'static str| {
        let locks = locks.clone();
        async move {
            for _ in 0..100 {
                let both = locks.lock_all([from, to]).await?;
                tokio::task::yield_now().await;
                both.release().await?;
            }
            Ok::<_, lockwell::Error>(())
        }
    };
    let (one, two) = tokio::join!(transfer("account/1", "account/2"), transfer("account/2", "account/1"));
    one.and(two)?;
    println!("two hundred transfers in opposite directions are done");

    // All or none: as long as one is held by another, the others stay free.
    let held = locks.lock("account/2").await?;
    match locks.lock_all(["account/1", "account/2", "account/3"]).wait(Duration::from_millis(100)).await {
        Err(error) if error.kind() == ErrorKind::TimedOut => println!("{error}"),
        other => println!("this should have timed out: {other:?}"),
    }
    println!("account/3 is free: {}", locks.lock("account/3").try_now().await?.is_some());
    held.release().await
}
