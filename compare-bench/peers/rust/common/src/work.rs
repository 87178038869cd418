//! The work: what the tasks do.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use tokio::sync::Barrier;
use tokio::task::{JoinSet, spawn_blocking};

use crate::{Library, Result};

/// Each task on a name of its own, again and again.
pub(crate) async fn cycles<L: Library>(library: &L, name: &str, tasks: usize, length: u64) -> Result<Value> {
    let length = Duration::from_nanos(length);
    let start = Arc::new(Barrier::new(tasks + 1));
    let mut set: JoinSet<Result<_>> = JoinSet::new();
    for number in 0..tasks {
        let (library, name, start) = (library.clone(), format!("{name}/{number}"), Arc::clone(&start));
        set.spawn(async move {
            start.wait().await;
            let mut latencies = Vec::new();
            let began = Instant::now();
            loop {
                let asked = Instant::now();
                if asked >= began + length {
                    return Ok((began, latencies));
                }
                let lock = library.acquire(&name).await?;
                library.release(lock).await?;
                latencies.push(u64::try_from(asked.elapsed().as_nanos())?);
            }
        });
    }
    start.wait().await;
    // This task may run later than those that it started.
    let (mut first, mut latencies) = (Instant::now(), Vec::new());
    while let Some(done) = set.join_next().await {
        let (began, of_task) = done??;
        first = first.min(began);
        latencies.extend(of_task);
    }
    Ok(json!({ "latencies_ns": latencies, "elapsed_ns": u64::try_from(first.elapsed().as_nanos())? }))
}

/// All tasks on one name. A turn is `[task, asked, acquired, released]`.
pub(crate) async fn contend<L: Library>(
    library: &L,
    name: &str,
    tasks: usize,
    hold: u64,
    until: u64,
) -> Result<Value> {
    let mut set: JoinSet<Result<_>> = JoinSet::new();
    for task in 0..tasks {
        let (library, name) = (library.clone(), name.to_owned());
        set.spawn(async move {
            let mut turns = Vec::new();
            loop {
                let asked = nanos();
                if asked >= until {
                    return Ok(turns);
                }
                let lock = library.acquire(&name).await?;
                let acquired = nanos();
                if hold > 0 {
                    // A timer of the runtime counts in milliseconds: 1 ms would be 2 ms.
                    spawn_blocking(move || thread::sleep(Duration::from_nanos(hold))).await?;
                }
                let released = nanos();
                library.release(lock).await?;
                turns.push(json!([task, asked, acquired, released]));
            }
        });
    }
    let mut turns = Vec::new();
    while let Some(done) = set.join_next().await {
        turns.extend(done??);
    }
    Ok(json!({ "turns": turns }))
}

/// The boot clock, which all processes of a host share.
pub(crate) fn nanos() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}
