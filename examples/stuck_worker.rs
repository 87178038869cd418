//! Workers that live but do not get on: a longest hold, reports of progress, and a rest for the lock after a
//! crash.
//!
//! A lease guards against holders that die. A holder that hangs is renewed for as long as its process lives,
//! unless it is told when to stop.
//!
//! `cargo run --example stuck_worker`

use std::time::{Duration, Instant};

use lockwell::{Locks, Result};

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let locks = Locks::in_memory();

    // However well it goes, the lock ends after this time.
    let guard = locks.lock("report").max_hold(millis(200)).await?;
    println!("held too long: {:?}", guard.lost().await);

    // The lock is kept while the work goes on, and only then.
    let guard = locks.lock("import").progress_within(millis(150)).await?;
    for chunk in 1..=4 {
        tokio::time::sleep(millis(100)).await;
        guard.progress();
        println!("chunk {chunk} done, still held: {}", guard.is_held());
    }
    println!("and now the worker hangs: {:?}", guard.lost().await);
    let next = locks.lock("import").wait(millis(1000)).await?;
    println!("the next worker has the lock, with token {} after {}", next.token(), guard.token());

    // After a crash the lock rests, so that requests of the dead that are still under way arrive before its
    // heir's.
    let crashed = locks.lock("disk").ttl(millis(100)).max_hold(millis(50)).lock_delay(millis(300)).await?;
    crashed.lost().await;
    let began = Instant::now();
    let heir = locks.lock("disk").await?;
    println!("the heir had to wait for {:?}", began.elapsed());
    heir.release().await
}
