//! Holders that die or are cut off, each a process of its own, and a waiter behind each of them.

use std::time::Duration;

use faults::nanos;
use lockwell::LockGuard;
use tokio::task::JoinHandle;

use super::Bench;
use crate::error::{Error, Result};
use crate::measure::worker::Worker;
use crate::measure::workload::bench::TIMEOUT;
use crate::measure::workload::recovery::outcome::FaultOutcome;
use crate::target::broken::{Bound, Lines};

/// A holder, and who waits for its lock.
struct Pair {
    holder: Worker,
    /// The token of the holder.
    token: u64,
    waiter: Waiter,
}

/// Its guard, and when it was granted.
type Waiter = JoinHandle<Result<(LockGuard, u64)>>;

/// Some servers end leases by a tick of their own, of this length at most.
const TICK: Duration = Duration::from_secs(2);

/// The holders are killed one after the other, at all moments of a server's tick. Their leases began at all
/// moments between two renewals.
pub(super) async fn killed(count: usize, bench: &Bench) -> Result<FaultOutcome> {
    let url = bench.target.url.clone();
    let mut pairs = pairs("killed", &url, count, bench).await?;
    let apart = TICK / u32::try_from(pairs.len().max(1)).unwrap_or(u32::MAX);
    let mut faults = Vec::new();
    // The last one first: in the order of their leases, both would come at the same pace.
    pairs.reverse();
    for pair in &mut pairs {
        faults.push(nanos());
        pair.holder.kill()?;
        tokio::time::sleep(apart).await;
    }
    let times = next_grants(pairs.into_iter().map(|pair| (pair.token, pair.waiter)), &faults).await?;
    let fault = "the process of the holder was killed while another process waited".to_owned();
    Ok(FaultOutcome {
        fault,
        role: String::new(),
        bound: Some(Bound::of_holder(bench.choice.near(), bench.lease())),
        times,
        known_lost: Vec::new(),
    })
}

/// The lines of all holders are cut at once. Their leases, too, began at all moments between two renewals.
pub(super) async fn cut_off(count: usize, bench: &Bench) -> Result<FaultOutcome> {
    let lines = Lines::before(&bench.target).await?;
    let pairs = pairs("cut", &lines.url, count, bench).await?;
    let faults = vec![nanos(); pairs.len()];
    lines.cut();
    let (mut waiters, mut holders) = (Vec::new(), Vec::new());
    for Pair { mut holder, token, waiter } in pairs {
        waiters.push((token, waiter));
        holders.push(tokio::spawn(async move {
            let lost = holder.order("wait_lost").await?;
            // It would wait for answers to its releases.
            holder.kill()?;
            Ok::<_, Error>(lost)
        }));
    }
    let times = next_grants(waiters.into_iter(), &faults).await?;
    let mut known_lost = Vec::new();
    for (holder, fault) in holders.into_iter().zip(faults) {
        known_lost.extend(holder.await??.iter().map(|turn| turn.released.saturating_sub(fault)));
    }
    let fault =
        "the network swallowed all that went to and from the holder while another process waited".to_owned();
    let bound = Some(Bound::of_holder(bench.choice.near(), bench.lease()));
    Ok(FaultOutcome { fault, role: String::new(), bound, times, known_lost })
}

/// Holders and waiters. The holders took their locks one after the other, within a third of their lease.
async fn pairs(what: &str, url: &str, count: usize, bench: &Bench) -> Result<Vec<Pair>> {
    let lease = bench.lease();
    let apart = lease / 3 / u32::try_from(count.max(1)).unwrap_or(u32::MAX);
    let mut workers = Vec::new();
    for number in 0..count {
        let name = bench.lock_name(&format!("recovery/{what}"), number);
        workers.push((Worker::ready(url, &name).await?, format!("{name}/0")));
    }
    let mut pairs = Vec::new();
    for (mut holder, name) in workers {
        let turns = holder.hold(1, lease).await?;
        let token = turns.first().map(|turn| turn.token).ok_or_else(|| Error::failed("it holds nothing"))?;
        let locks = bench.locks.clone();
        let waiter = tokio::spawn(async move {
            let guard = locks.lock(name).ttl(lease).wait(TIMEOUT).await?;
            Ok((guard, nanos()))
        });
        pairs.push(Pair { holder, token, waiter });
        tokio::time::sleep(apart).await;
    }
    // All of them wait, and renewals have been made.
    tokio::time::sleep((lease / 3).max(Duration::from_millis(500))).await;
    if pairs.iter().any(|pair| pair.waiter.is_finished()) {
        return Err(Error::failed("a lock was granted or refused before anything was broken"));
    }
    Ok(pairs)
}

/// The time from each fault to the next grant.
async fn next_grants(waiters: impl Iterator<Item = (u64, Waiter)>, faults: &[u64]) -> Result<Vec<u64>> {
    let mut times = Vec::new();
    for ((token, waiter), fault) in waiters.zip(faults) {
        let (guard, acquired) = waiter.await??;
        if guard.token().get() <= token {
            let text = format!("the token did not rise: {} after {token}", guard.token());
            return Err(Error::Violation(text));
        }
        guard.release().await?;
        let Some(time) = acquired.checked_sub(*fault) else {
            return Err(Error::failed("a lock was granted to another before its holder was broken"));
        };
        times.push(time);
    }
    Ok(times)
}
