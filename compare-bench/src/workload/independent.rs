//! Many tasks of one process, each on a name of its own: how much a process gets through.

use std::time::Duration;

use lockwell::{Locks, async_trait};

use super::{Bench, Workload, cycle, in_turns};
use crate::cycles::{cycles, together};
use crate::error::Result;
use crate::peer::Rivals;
use crate::plan::Plan;
use crate::report::{Measurement, Quantity, Round, compare, unsteady};
use crate::stats::Sample;

pub(crate) struct Independent;

#[async_trait]
impl Workload for Independent {
    fn name(&self) -> &'static str {
        "independent"
    }

    fn about(&self) -> &'static str {
        "cycles per second of 1, 16 and 64 tasks on names of their own, against one raw connection"
    }

    fn time(&self, plan: &Plan) -> Duration {
        plan.tasks.iter().map(|_| plan.independent.time()).sum()
    }

    async fn run(&self, bench: &mut Bench) -> Result<Vec<Measurement>> {
        let mut measurements = Vec::new();
        for tasks in bench.plan.tasks {
            measurements.push(self.with(*tasks, bench).await?);
        }
        Ok(measurements)
    }
}

impl Independent {
    async fn with(&self, tasks: usize, bench: &mut Bench) -> Result<Measurement> {
        let plan = bench.plan.independent;
        let names: Vec<_> = (0..tasks).map(|number| bench.lock_name(self.name(), number)).collect();
        bench.warm_up(&names).await?;
        let mut rivals = Rivals::start(bench, &names[0], 1, Quantity::PerSecond).await;
        let (mut all_ours, mut all_floor, mut rounds) = (Sample::new(), Sample::new(), Vec::new());
        for number in 0..plan.count {
            let ours = round(&bench.locks, &names, plan.ours);
            let floor = bench.floor.round(plan.floor, tasks);
            let (ours, floor, theirs) = in_turns(number, ours, floor, rivals.cycles(tasks, plan.ours)).await;
            let (ours, floor) = (ours?, floor?);
            let round = Round { ours: ours.per_second(), floor: floor.per_second() };
            rivals.note(theirs, round);
            rounds.push(round);
            all_ours.append(&ours);
            all_floor.append(&floor);
            bench.progress.spent(plan.ours + plan.floor);
        }
        let (ours, floor, ratio) = compare(&rounds);
        Ok(Measurement {
            backend: bench.target.name.clone(),
            workload: self.name(),
            case: if tasks == 1 { "1 task".to_owned() } else { format!("{tasks} tasks") },
            parties: tasks,
            parties_are: "tasks",
            hold_us: 0,
            quantity: Quantity::PerSecond,
            ours,
            floor,
            ratio,
            unsteady: unsteady(&rounds),
            rounds,
            latency_us: all_ours.spread(),
            latency_of: "acquire and release",
            floor_latency_us: all_floor.spread(),
            per_second: all_ours.per_second(),
            floor_per_second: all_floor.per_second(),
            handing: None,
            requests_each: None,
            trip_us: None,
            trips: None,
            peers: rivals.finish(),
        })
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
