//! Many tasks of one process on one name: what a crowd at one door gets through, and how long it waits.

use std::time::Duration;

use lockwell::async_trait;

use super::contention::{FloorRound, Prize, among_tasks};
use super::{Bench, Workload};
use crate::error::Result;
use crate::history::summary;
use crate::plan::Plan;
use crate::report::{Measurement, Quantity, Round, compare, unsteady};
use crate::stats::Sample;

pub(crate) struct Crowd;

#[async_trait]
impl Workload for Crowd {
    fn name(&self) -> &'static str {
        "crowd"
    }

    fn about(&self) -> &'static str {
        "64 tasks of one process on one name: acquisitions per second, and how long each waits"
    }

    fn only_in_full(&self) -> bool {
        true
    }

    fn time(&self, plan: &Plan) -> Duration {
        plan.crowd.time()
    }

    async fn run(&self, bench: &mut Bench) -> Result<Vec<Measurement>> {
        let (plan, tasks) = (bench.plan.crowd, bench.plan.crowd_tasks);
        let name = bench.lock_name(self.name(), 0);
        bench.warm_up(std::slice::from_ref(&name)).await?;
        let prize = Prize::Lock(bench.locks.clone(), name);
        let (mut waits, mut all_floor, mut rounds, mut histories) =
            (Sample::new(), Sample::new(), Vec::new(), Vec::new());
        for _ in 0..plan.count {
            let floor = FloorRound::take(bench, tasks, Duration::ZERO, plan.floor).await?;
            let history = among_tasks(&prize, tasks, Duration::ZERO, plan.ours).await?;
            rounds.push(Round { ours: history.per_second(), floor: floor.per_second });
            waits.append(&history.waits());
            all_floor.append(&floor.sample);
            history.join(&mut histories)?;
            bench.progress.spent(plan.ours + plan.floor);
        }
        let (ours, floor, ratio) = compare(&rounds);
        Ok(vec![Measurement {
            backend: bench.target.name.clone(),
            workload: self.name(),
            case: format!("{tasks} tasks, one name"),
            parties: tasks,
            parties_are: "tasks",
            hold_us: 0,
            quantity: Quantity::PerSecond,
            ours,
            floor,
            ratio,
            unsteady: unsteady(&rounds),
            rounds,
            latency_us: waits.spread(),
            latency_of: "wait for the lock",
            floor_latency_us: all_floor.spread(),
            per_second: ours,
            floor_per_second: floor,
            handing: Some(summary(&histories)),
        }])
    }
}
