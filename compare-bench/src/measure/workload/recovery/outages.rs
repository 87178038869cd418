//! Servers that stop or die, while clients take locks and give them back all the time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use faults::nanos;
use lockwell::Locks;
use tokio::task::JoinHandle;

use crate::error::{Error, Result};
use crate::measure::workload::bench::{Bench, TIMEOUT};
use crate::measure::workload::recovery::outcome::FaultOutcome;
use crate::plan::Plan;
use crate::target::broken::{Bound, Victim};
use crate::target::kind::Kind;
use crate::target::{Choice, connect};

/// Locks that are taken: in a cluster they belong to several masters, of which one dies.
const LOCKS: usize = 16;

/// How long all is well before a fault, and how long all has to be well after it.
const CALM: Duration = Duration::from_millis(300);

/// After a request that failed.
const PAUSE: Duration = Duration::from_millis(1);

/// The longest that is waited for a grant.
const LONGEST: Duration = Duration::from_mins(1);

/// How often a server with grace periods is killed at most: each time takes half a minute, nearly all of it
/// by the settings.
const OUTAGES_WITH_GRACE: u32 = 4;

/// How often a server is killed.
pub(super) fn how_often(plan: &Plan, kind: Option<Kind>) -> u32 {
    let has_grace = kind.is_some_and(|kind| !Victim::grace(kind).is_zero());
    if has_grace { plan.faults.outages.min(OUTAGES_WITH_GRACE) } else { plan.faults.outages }
}

/// A server is stopped, and goes on a little later.
pub(super) async fn frozen(bench: &Bench) -> Result<FaultOutcome> {
    let (faults, running) = (bench.plan.faults, &bench.target.running);
    let mut times = Vec::new();
    let mut role = "";
    let probe = Probe::start(bench, &bench.locks, "frozen");
    probe.calm().await?;
    for _ in 0..faults.outages {
        let victim = running.victim().await?;
        role = victim.role;
        let server = victim.server.clone();
        let fault = nanos();
        server.pause().map_err(|error| Error::failed(error.to_string()))?;
        tokio::time::sleep(faults.freeze).await;
        server.resume().map_err(|error| Error::failed(error.to_string()))?;
        times.push(probe.longest_gap(fault).await?);
        running.restore(&victim).await?;
    }
    probe.finish().await?;
    let fault = format!("{role} was stopped for {} and went on", humantime::format_duration(faults.freeze));
    Ok(FaultOutcome {
        fault,
        role: role.to_owned(),
        bound: Some(Bound::of_freeze(faults.freeze)),
        times,
        known_lost: Vec::new(),
    })
}

/// A server is killed. One that is alone is started again at once; of a group, the others go on or another
/// takes its place.
///
/// With servers of its own: what they have gone through is no concern of other figures.
pub(super) async fn killed(bench: &Bench) -> Result<FaultOutcome> {
    let kind = bench.choice.near().ok_or_else(|| Error::failed("these servers are not ours"))?;
    let target = bench.choice.start_to_be_broken().await?;
    let first = target.running.victim().await?;
    let bound = match (first.is_alone, kind) {
        (false, _) => Victim::bound(kind),
        (true, Kind::Postgres) => {
            Some(Victim::bound_of_lost_release(first.time_to_start().await?, bench.lease()))
        }
        (true, Kind::PostgresGrace) => Some(Victim::bound_of_grace(first.time_to_start().await?)),
        (true, _) => Some(Victim::bound_of_restart(first.time_to_start().await?)),
    };
    let locks = connect(&target.url).await?;
    let probe = Probe::start(bench, &locks, "dead");
    let mut times = Vec::new();
    for _ in 0..how_often(&bench.plan, Some(kind)) {
        let victim = target.running.victim().await?;
        // A restart changes more than a freeze: clients reconnect, replicas follow.
        let fault = probe.calm().await?;
        victim.kill().await?;
        times.push(probe.longest_gap(fault).await?);
        target.running.restore(&victim).await?;
    }
    probe.finish().await?;
    locks.close().await?;
    let then = if first.is_alone { "it was started again at once" } else { after(kind) };
    let role = format!("{}; {then}", first.role);
    Ok(FaultOutcome {
        fault: format!("a server was killed: {role}"),
        role,
        bound,
        times,
        known_lost: Vec::new(),
    })
}

fn after(kind: Kind) -> &'static str {
    match kind {
        Kind::Sentinel | Kind::Cluster => "its replica took its place",
        Kind::ZooKeeper3 | Kind::ZooKeeper3Leader | Kind::Etcd3 => "the others elected another",
        _ => "the others went on",
    }
}

/// Tasks that take a lock each and give it back, all the time.
struct Probe {
    grants: Vec<Arc<Mutex<Vec<u64>>>>,
    tasks: Vec<JoinHandle<()>>,
    ends: Arc<AtomicBool>,
}

impl Probe {
    fn start(bench: &Bench, locks: &Locks, what: &str) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let count = if is_cluster(&bench.choice) { LOCKS } else { 1 };
        let (mut grants, mut tasks) = (Vec::new(), Vec::new());
        for number in 0..count {
            let log = Arc::new(Mutex::new(Vec::new()));
            grants.push(Arc::clone(&log));
            let name = bench.lock_name(&format!("recovery/{what}"), number);
            let (locks, ends, lease) = (locks.clone(), Arc::clone(&ends), bench.lease());
            tasks.push(tokio::spawn(async move {
                while !ends.load(Ordering::Relaxed) {
                    // Failures are what this is about: the next grant counts.
                    let Ok(guard) = locks.lock(name.as_str()).ttl(lease).wait(TIMEOUT).await else {
                        tokio::time::sleep(PAUSE).await;
                        continue;
                    };
                    log.lock().unwrap_or_else(PoisonError::into_inner).push(nanos());
                    if guard.release().await.is_err() {
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }));
        }
        Self { grants, tasks, ends }
    }

    fn grants(&self) -> Vec<Vec<u64>> {
        let of = |log: &Arc<Mutex<Vec<u64>>>| log.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.grants.iter().map(of).collect()
    }

    /// Waits until each task has had its lock again and again for a while, as it has after `longest_gap`.
    /// Returns the time.
    async fn calm(&self) -> Result<u64> {
        self.well_after(nanos()).await?;
        Ok(nanos())
    }

    /// The longest time without a grant since then, of the task for which it was the longest. What was
    /// granted until this is called does not show that all is well again.
    async fn longest_gap(&self, fault: u64) -> Result<u64> {
        self.well_after(nanos()).await?;
        Ok(self.grants().iter().map(|grants| gap(grants, fault)).max().unwrap_or(0))
    }

    /// Waits until each task has a grant after that time, and goes on for a while after it.
    async fn well_after(&self, time: u64) -> Result<()> {
        let began = Instant::now();
        let calm = u64::try_from(CALM.as_nanos()).unwrap_or(u64::MAX);
        loop {
            tokio::time::sleep(CALM / 10).await;
            let now = nanos();
            let is_well = |grants: &Vec<u64>| {
                let after = grants.iter().filter(|grant| **grant > time).collect::<Vec<_>>();
                // Long since the first, and not long since the last.
                // A grant may have come since the clock was read.
                let age = |grant: &&u64| now.saturating_sub(**grant);
                after.first().is_some_and(|first| age(first) >= calm)
                    && after.last().is_some_and(|last| age(last) <= calm / 2)
            };
            if self.grants().iter().all(is_well) {
                return Ok(());
            }
            if began.elapsed() > LONGEST {
                return Err(Error::failed(format!("nobody had a lock again for {LONGEST:?}")));
            }
        }
    }

    async fn finish(mut self) -> Result<()> {
        self.ends.store(true, Ordering::Relaxed);
        for task in std::mem::take(&mut self.tasks) {
            task.await?;
        }
        Ok(())
    }
}

/// The tasks of a probe that has failed take no locks beside what is measured next.
impl Drop for Probe {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

fn is_cluster(choice: &Choice) -> bool {
    choice.scheme() == "redis+cluster"
}

/// The longest time without a grant after the fault, which itself begins one.
fn gap(grants: &[u64], fault: u64) -> u64 {
    let mut last = fault;
    let mut longest = 0;
    for grant in grants.iter().filter(|grant| **grant > fault) {
        longest = longest.max(grant - last);
        last = *grant;
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_gap_begins_with_the_fault_or_later() {
        assert_eq!(gap(&[1, 2, 50, 51, 52], 10), 40);
        // What was under way at the fault came back just after it.
        assert_eq!(gap(&[1, 11, 60, 61], 10), 49);
        assert_eq!(gap(&[1, 2], 10), 0);
    }
}
