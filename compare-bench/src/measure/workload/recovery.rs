//! A holder that is killed: how long it takes until a process that waits has its lock.

use std::time::Duration;

use faults::nanos;
use lockwell::backend::async_trait;

use super::found::Found;
use super::kill::{ORDER, granted_before, since};
use super::measured::MeasuredPeers;
use crate::error::{Error, Result};
use crate::measure::worker::Worker;
use crate::measure::workload::bench::{About, Bench, Workload, in_turns};
use crate::plan::Plan;
use crate::plan::case::Case;
use crate::record::{Measurement, Quantity, Round};
use crate::stats::Sample;
use crate::target::Choice;

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
            let Some(ours) = ours? else { continue };
            let round = Round { ours: ours.median_us(), floor: 0.0 };
            peers.note(theirs, round);
            found.add(round, &ours, &Sample::new());
        }
        if found.rounds.is_empty() {
            return Err(Error::failed(
                "no holder had the lock until it was killed: this machine is too busy",
            ));
        }
        let measurement = found.measurement(self.name(), case, bench, Some((0.0, 0.0)), peers.finish());
        Ok(Measurement { noisy: false, ..measurement })
    }
}

/// Ours. The holder is killed so long after another process began to wait. `None` of a round that says nothing.
async fn killed(url: &str, name: &str, lease: Duration, after: Duration) -> Result<Option<Sample>> {
    let mut holder = Worker::ready(url, name).await?;
    holder.hold(1, lease).await?;
    let mut waiter = Worker::ready(url, &format!("{name}/0")).await?;
    let kill = async {
        tokio::time::sleep(after).await;
        let asked = nanos();
        let held = holder.still_held().await?.then_some(asked);
        let at = nanos();
        holder.kill().await.map(|()| (held, at))
    };
    let (turns, killed) = tokio::join!(waiter.wait_once(ORDER), kill);
    let (turns, (held, at)) = (turns?, killed?);
    waiter.finish().await?;
    if granted_before(&turns, held) {
        return Err(Error::Violation("a lock was granted while its holder had it".into()));
    }
    Ok(since(&turns, at))
}
