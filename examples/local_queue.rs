//! Many tasks of one process want one lock: they queue in memory, and pass the lock on among themselves.
//!
//! `cargo run --release --example local_queue`, or `--features redis -- redis://127.0.0.1` and any other
//! address

use std::time::{Duration, Instant};

use lockwell::{Locks, Result};

const TASKS: usize = 64;

/// How often the lock changes hands in a second, from task to task.
async fn hand_overs(locks: &Locks) -> Result<f64> {
    let (began, span) = (Instant::now(), Duration::from_secs(1));
    let mut tasks = Vec::new();
    for _ in 0..TASKS {
        let locks = locks.clone();
        tasks.push(tokio::spawn(async move {
            let mut turns = 0_u32;
            while began.elapsed() < span {
                let guard = locks.lock("counter").await?;
                turns += 1;
                guard.release().await?;
            }
            Ok::<_, lockwell::Error>(turns)
        }));
    }
    let mut turns = 0;
    for task in tasks {
        turns += task.await.expect("no task panics")?;
    }
    Ok(f64::from(turns) / began.elapsed().as_secs_f64())
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory://".to_owned());
    let locks: Locks = lockwell::connect(url).await?;

    // Each task has a place of its own in the queue of the server.
    let plain = hand_overs(&locks.clone().server_order()).await?;
    println!("each task for itself at the server:   {plain:>9.0} hand-overs per second");

    // One task has a place at the server, and the lock goes from task to task for 2 ms.
    let queued = hand_overs(&locks).await?;
    println!("a queue in the process:               {queued:>9.0}, {:.1} times as many", queued / plain);

    // Up to 1000 times, and for up to 20 ms. Other processes wait for that long.
    let passed = hand_overs(&locks.hand_off(1000, Duration::from_millis(20))).await?;
    println!("passed on for longer:                  {passed:>9.0}, {:.1} times as many", passed / plain);
    Ok(())
}
