//! `run`: work that is stopped when its lock is lost.
//!
//! `cargo run --example run_closure`

use std::time::Duration;

use lockwell::{ErrorKind, Locks};

#[tokio::main(flavor = "current_thread")]
async fn main() -> lockwell::Result<()> {
    let locks = Locks::in_memory();

    // The lock is held while the closure runs, and released at its end. The result comes through.
    let sum = locks.lock("report").run(|_held| async { 19 + 23 }).await?;
    println!("done under the lock: {sum}");

    // Work that can fail: one `?` for its error and for that of the lock.
    let pages = locks.lock("report").try_run(async |held| held.check().map(|()| 42)).await?;
    println!("{pages} pages");

    // An operator frees the lock by force, while work is going on.
    let operator = locks.clone();
    let operator = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        operator.force_release("report").await
    });

    // The holder learns of it at the next renewal, which comes after a third of the ttl. If the server could
    // not be reached, it would be at the end of the lease. The work is dropped at the await where it is.
    let long = locks.lock("report").ttl(Duration::from_millis(600)).run(|held| async move {
        for page in 1.. {
            println!("page {page} with token {}", held.token());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    match long.await {
        Err(error) if error.kind() == ErrorKind::Lost => println!("stopped: {error}"),
        other => println!("this should have been stopped: {other:?}"),
    }
    operator.await.expect("the operator's task does not panic")?;
    Ok(())
}
