//! Take a lock, try to take it, wait for it with a limit.
//!
//! `cargo run --example basic`, or `cargo run --example basic --features sqlite -- sqlite://locks.db`

use std::time::Duration;

use lockwell::ErrorKind;

#[tokio::main(flavor = "current_thread")]
async fn main() -> lockwell::Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory://".to_owned());
    let locks = lockwell::connect(url).await?;

    // Waits for its turn, for as long as it takes. Nobody else holds the lock until the guard is dropped or
    // released.
    let guard = locks.lock("orders/42").await?;
    println!("held, with token {}", guard.token());

    // Somebody else wants it, but not badly: `None` is no error.
    let second = locks.lock("orders/42").try_now().await?;
    println!("a second try gets it: {}", second.is_some());

    // Somebody else is ready to wait, but not for ever. The kind of the error tells what to do about it.
    match locks.lock("orders/42").wait(Duration::from_millis(100)).await {
        Ok(guard) => println!("the waiter got it with token {}", guard.token()),
        Err(error) if error.kind() == ErrorKind::TimedOut => println!("the wait ended: {error}"),
        Err(error) => return Err(error),
    }

    guard.release().await?;

    // Free again. The token is higher than all before: a resource that remembers it can refuse a late writer.
    let guard = locks.lock("orders/42").try_now().await?;
    println!("after the release: {:?}", guard.as_ref().map(|guard| guard.token().get()));
    Ok(())
}
