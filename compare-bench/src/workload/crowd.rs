//! Many tasks of one process on one name: what a crowd at one door gets through, and how long it waits.

use std::time::Duration;

use lockwell::async_trait;

use super::contention::{FloorRound, Prize, among_tasks};
use super::{Bench, Workload, in_turns};
use crate::error::Result;
use crate::history::{History, summary};
use crate::peer::Rival;
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
        "64 and 500 tasks of one process on one name: acquisitions per second, and how long each waits"
    }

    fn only_in_full(&self) -> bool {
        true
    }

    fn time(&self, plan: &Plan) -> Duration {
        plan.crowds.iter().map(|_| plan.crowd.time()).sum()
    }

    async fn run(&self, bench: &mut Bench) -> Result<Vec<Measurement>> {
        let mut measurements = Vec::new();
        for tasks in bench.plan.crowds {
            measurements.push(self.with(*tasks, bench).await?);
        }
        Ok(measurements)
    }
}

impl Crowd {
    async fn with(&self, tasks: usize, bench: &mut Bench) -> Result<Measurement> {
        let plan = bench.plan.crowd;
        let name = bench.lock_name(self.name(), tasks);
        bench.warm_up(std::slice::from_ref(&name)).await?;
        let mut rival = Rival::start(bench, &name, 1, Quantity::PerSecond).await;
        let prize = Prize::Lock(bench.locks.clone(), name);
        let (mut waits, mut all_floor, mut rounds, mut histories) =
            (Sample::new(), Sample::new(), Vec::new(), Vec::new());
        for number in 0..plan.count {
            let floor = FloorRound::take(bench, tasks, Duration::ZERO, plan.floor);
            let ours = among_tasks(&prize, tasks, Duration::ZERO, plan.ours);
            let theirs = rival.fight(tasks, Duration::ZERO, plan.ours, History::waits);
            let (history, floor, theirs) = in_turns(number, ours, floor, theirs).await;
            let (history, floor) = (history?, floor?);
            let round = Round { ours: history.per_second(), floor: floor.per_second };
            rival.note(theirs, round);
            rounds.push(round);
            waits.append(&history.waits());
            all_floor.append(&floor.sample);
            history.join(&mut histories)?;
            bench.progress.spent(plan.ours + plan.floor);
        }
        let (ours, floor, ratio) = compare(&rounds);
        Ok(Measurement {
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
            trip_us: None,
            trips: None,
            peers: rival.finish(),
        })
    }
}
