//! Many tasks of one process, each on a name of its own: how much a process gets through.

use std::time::Duration;

use lockwell::{Locks, async_trait};

use super::found::Found;
use super::{Bench, Workload, cycle, in_turns};
use crate::error::Result;
use crate::measure::cycles::{cycles, together};
use crate::measure::peer::Rivals;
use crate::measure::stats::Sample;
use crate::plan::Plan;
use crate::plan::work::Case;
use crate::record::{Measurement, Quantity, Round};
use crate::target::Choice;

pub(crate) struct Independent;

#[async_trait]
impl Workload for Independent {
    fn name(&self) -> &'static str {
        "independent"
    }

    fn about(&self) -> &'static str {
        "cycles per second of 1, 16 and 64 tasks on names of their own, against one raw connection"
    }

    fn cases(&self, plan: &Plan, _: &Choice) -> Vec<Case> {
        plan.tasks.iter().map(|tasks| Case::of_tasks(*tasks, plan.independent)).collect()
    }

    async fn measure(&self, case: &Case, bench: &mut Bench) -> Result<Measurement> {
        let (tasks, lengths) = (case.parties, case.rounds);
        let names: Vec<_> = (0..tasks).map(|number| bench.lock_name(self.name(), number)).collect();
        bench.warm_up(&names).await?;
        let mut rivals = Rivals::start(bench, &names[0], 1, Quantity::PerSecond).await;
        let mut found = Found::new(Quantity::PerSecond, "acquire and release");
        let mut repeat = bench.repeat(case);
        while let Some(number) = repeat.next(&found.rounds) {
            let ours = round(&bench.locks, &names, lengths.ours);
            let floor = bench.floor.round(lengths.floor, tasks);
            let theirs = rivals.cycles(tasks, lengths.ours);
            let (ours, floor, theirs) = in_turns(number, ours, floor, theirs).await;
            let (ours, floor) = (ours?, floor?);
            let round = Round { ours: ours.per_second(), floor: floor.per_second() };
            rivals.note(theirs, round);
            found.rounds.push(round);
            found.latency.append(&ours);
            found.floor_latency.append(&floor);
        }
        Ok(found.measurement(self.name(), case, bench, None, rivals.finish()))
    }
}

/// All tasks at once.
async fn round(locks: &Locks, names: &[String], length: Duration) -> Result<Sample> {
    together(names.len(), |number| {
        let (locks, name) = (locks.clone(), names[number].clone());
        async move { cycles(length, || cycle(&locks, &name)).await }
    })
    .await
}
