//! A holder that is killed: how long it takes until a process that waits has its lock.

use std::time::Duration;

use faults::nanos;
use lockwell::backend::async_trait;

use super::found::Found;
use super::measured::MeasuredPeers;
use crate::error::{Error, Result};
use crate::measure::history::Turn;
use crate::measure::worker::Worker;
use crate::measure::workload::bench::{About, Bench, Workload, in_turns};
use crate::plan::Plan;
use crate::plan::case::Case;
use crate::record::{Measurement, Quantity, Round};
use crate::stats::Sample;
use crate::target::Choice;

/// How long it may take until a process has read its order. It asks once then: so long it asks again.
pub(super) const ORDER: Duration = Duration::from_millis(200);

pub(crate) struct Recovery;

#[async_trait]
impl Workload for Recovery {
    fn about(&self) -> About {
        About::full(
            "recovery",
            "a process that holds a lock is killed: the time until another one has it (leases of 4 s of ours)",
        )
    }

    fn cases(&self, plan: &Plan, choice: &Choice) -> Vec<Case> {
        let case = Case { name: "the holder is killed".to_owned(), ..Case::of_tasks(1, plan.recovery) };
        choice.is_shared().then_some(case).into_iter().collect()
    }

    async fn measure(&self, case: &Case, bench: &mut Bench) -> Result<Measurement> {
        let peers_name = bench.lock_name(self.name(), 0);
        let mut peers = MeasuredPeers::start(bench, case, &peers_name, 1, Quantity::LatencyUs).await;
        let mut found = Found::new(Quantity::LatencyUs, "from the death of the holder to the next grant");
        let mut repeat = bench.repeat(case);
        while let Some(number) = repeat.next(&found.rounds, peers.wasted()) {
            // A lease is renewed after a third of its time. The holder dies at all moments in between.
            let after = 2 * ORDER + bench.lease() / 3 * (number % case.rounds.most) / case.rounds.most;
            let name = bench.lock_name(self.name(), usize::try_from(number).unwrap_or_default() + 1);
            let ours = killed(&bench.target.url, &name, bench.lease(), after);
            let (ours, (), theirs) = in_turns(number, ours, async {}, peers.killed(after)).await;
            let ours = ours?;
            let round = Round { ours: ours.median_us(), floor: 0.0 };
            peers.note(theirs, round);
            found.add(round, &ours, &Sample::new());
        }
        let measurement = found.measurement(self.name(), case, bench, Some((0.0, 0.0)), peers.finish());
        Ok(Measurement { noisy: false, ..measurement })
    }
}

/// Ours. The holder is killed so long after another process began to wait.
async fn killed(url: &str, name: &str, lease: Duration, after: Duration) -> Result<Sample> {
    let mut holder = Worker::ready(url, name).await?;
    holder.hold(1, lease).await?;
    let mut waiter = Worker::ready(url, &format!("{name}/0")).await?;
    let kill = async {
        tokio::time::sleep(after).await;
        let at = nanos();
        holder.kill().await.map(|()| at)
    };
    let (turns, at) = tokio::join!(waiter.wait_once(ORDER), kill);
    let (turns, at) = (turns?, at?);
    waiter.finish().await?;
    since(&turns, at)?
        .ok_or_else(|| Error::Violation("a lock was granted before its holder was killed".into()))
}

/// The time from this moment to the first grant; `None` if that was before.
pub(super) fn since(turns: &[Turn], at: u64) -> Result<Option<Sample>> {
    let first = turns.first().ok_or_else(|| Error::failed("nobody waited for the lock"))?;
    Ok(first.acquired.checked_sub(at).map(|nanos| {
        let mut sample = Sample::new();
        sample.note(Duration::from_nanos(nanos), 1);
        sample
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_before_the_death_is_none_after_it() {
        let turn = Turn { party: 0, token: 1, asked: 10, acquired: 5_000_010, released: 5_000_020 };
        let found = since(&[turn], 10).unwrap().unwrap();
        assert!((found.median_us() / 5000.0 - 1.0).abs() < 0.01, "{}", found.median_us());
        assert!(since(&[turn], 5_000_011).unwrap().is_none() && since(&[], 7).is_err());
    }
}
