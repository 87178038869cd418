//! One task, one name, nobody else: what a lock costs when it is free.

use lockwell::backend::async_trait;

use super::found::Found;
use super::measured::MeasuredPeers;
use crate::error::Result;
use crate::measure::cycles::cycles;
use crate::measure::workload::bench::{About, Bench, Workload, cycle, in_turns};
use crate::plan::Plan;
use crate::plan::case::Case;
use crate::record::{Measurement, Quantity, Round};
use crate::target::Choice;

pub(crate) struct Uncontended;

#[async_trait]
impl Workload for Uncontended {
    fn about(&self) -> About {
        About::always(
            "uncontended",
            "acquire + release latency of one task on one free name, against two raw statements",
        )
    }

    fn cases(&self, plan: &Plan, _: &Choice) -> Vec<Case> {
        vec![Case::of_tasks(1, plan.uncontended)]
    }

    async fn measure(&self, case: &Case, bench: &mut Bench) -> Result<Measurement> {
        let name = bench.lock_name(self.name(), 0);
        bench.warm_up(std::slice::from_ref(&name)).await?;
        let mut peers = MeasuredPeers::start(bench, case, &name, 1, Quantity::LatencyUs).await;
        let mut found = Found::new(Quantity::LatencyUs, "acquire and release");
        let mut repeat = bench.repeat(case);
        while let Some(number) = repeat.next(&found.rounds, peers.wasted()) {
            let ours = cycles(case.rounds.ours, || cycle(&bench.locks, &name));
            let floor = bench.floor.round(case.rounds.floor, 1);
            let theirs = peers.cycles(1, case.rounds.ours);
            let (ours, floor, theirs) = in_turns(number, ours, floor, theirs).await;
            let (ours, floor) = (ours?, floor?);
            let round = Round { ours: ours.median_us(), floor: floor.median_us() };
            peers.note(theirs, round);
            found.add(round, &ours, &floor);
        }
        Ok(found.measurement(self.name(), case, bench, None, peers.finish()))
    }
}
