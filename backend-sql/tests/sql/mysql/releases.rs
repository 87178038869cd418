//! What a release says is so, also among many releases in one message, and while others take what was
//! released.

use std::time::{Duration, Instant};

use lockwell_core::{ErrorKind, LockGuard, Locks, Result};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{connect, servers};

const CLIENTS: u64 = 3;
const TASKS: u64 = 20;
const NAMES: usize = 24;
const SPAN: Duration = Duration::from_secs(4);

/// Takes locks at random, keeps them for a moment, and releases them. Returns how many.
async fn busy(locks: Locks, seed: u64) -> Result<usize> {
    let (mut random, mut count) = (StdRng::seed_from_u64(seed), 0);
    let end = Instant::now() + SPAN;
    while Instant::now() < end {
        let request = locks.lock(format!("name {}", random.random_range(0..NAMES)));
        let waits = Duration::from_millis(random.random_range(1..150));
        let answer: Result<Option<LockGuard>> = match random.random_range(0..3) {
            0 => request.try_now().await,
            1 => request.wait(waits).await.map(Some),
            _ => tokio::time::timeout(waits, request.into_future()).await.map_or(Ok(None), |it| it.map(Some)),
        };
        let guard = match answer {
            Ok(Some(guard)) => guard,
            Ok(None) => continue,
            Err(error) if error.kind() == ErrorKind::TimedOut => continue,
            Err(error) => return Err(error),
        };
        if random.random_bool(0.5) {
            tokio::time::sleep(Duration::from_micros(random.random_range(0..1500))).await;
        }
        guard.release().await?;
        count += 1;
    }
    Ok(count)
}

/// No lease ends here, so no lock is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_released_is_not_called_lost() {
    for server in servers().await {
        let seed: u64 = rand::random();
        let mut tasks = Vec::new();
        for n in 0..CLIENTS {
            let locks = connect(server, "releases").await;
            tasks.extend((0..TASKS).map(|m| tokio::spawn(busy(locks.clone(), seed ^ (n * TASKS + m)))));
        }
        let mut count = 0;
        for task in tasks {
            count +=
                task.await.expect("no panic").unwrap_or_else(|error| panic!("seed {seed:#x}: {error:#}"));
        }
        println!("{server:?}: {count} releases");
        assert!(count > 100, "{count} releases");
    }
}
