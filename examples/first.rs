//! The first program of the README, as it is written there, on SQLite.

use std::time::Duration;

#[tokio::main]
async fn main() -> lockwell::Result<()> {
    let locks = lockwell::connect("sqlite://locks.db").await?;
    let guard = locks.lock("tickets").wait(Duration::from_secs(5)).await?; // `TimedOut` after 5 seconds
    println!("fencing token {}", guard.token());
    guard.release().await?; // or drop it, which releases in the background
    locks.close().await // waits for such releases
}
