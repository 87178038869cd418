//! An owner takes a lock again that it holds already: functions that lock may call each other.
//!
//! `cargo run --example reentrant`

use lockwell::request::Owner;
use lockwell::{Locks, Result};

/// Locks by itself, since it may be called by itself.
async fn add(owner: &Owner, account: &str, amount: i64) -> Result<()> {
    let guard = owner.lock(account).await?;
    println!("  {account}: {amount:+} under token {}, taken {} times", guard.token(), guard.depth());
    Ok(())
}

/// Locks both, in the order of their names, or two opposite transfers would wait for each other. Calls a
/// function that locks them again.
async fn transfer(owner: &Owner, from: &str, to: &str, amount: i64) -> Result<()> {
    let _first = owner.lock(from.min(to)).await?;
    let _second = owner.lock(from.max(to)).await?;
    add(owner, from, -amount).await?;
    add(owner, to, amount).await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let locks = Locks::in_memory();

    let owner = locks.owner();
    println!("a transfer:");
    transfer(&owner, "account/1", "account/2", 50).await?;

    // Re-entry is for one owner. Another one waits like anybody else, even in the same process.
    let held = owner.lock("account/1").await?;
    let other = locks.owner().lock("account/1").try_now().await?;
    println!("another owner gets it: {}", other.is_some());
    held.release().await?;

    // Where the owner cannot be handed down as an argument, a scope carries it.
    let deep = async {
        let owner = Owner::current().expect("inside of a scope");
        add(&owner, "account/3", 1).await
    };
    println!("in a scope:");
    let guard = owner.lock("account/3").await?;
    owner.scope(deep).await?;
    guard.release().await
}
