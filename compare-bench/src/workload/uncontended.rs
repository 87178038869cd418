//! One task, one name, nobody else: what a lock costs when it is free.

use std::time::Duration;

use lockwell::async_trait;

use super::{Bench, Workload, cycle, in_turns};
use crate::cycles::cycles;
use crate::error::Result;
use crate::peer::Rivals;
use crate::plan::Plan;
use crate::report::{Measurement, Quantity, Round, compare, unsteady};
use crate::stats::Sample;

pub(crate) struct Uncontended;

#[async_trait]
impl Workload for Uncontended {
    fn name(&self) -> &'static str {
        "uncontended"
    }

    fn about(&self) -> &'static str {
        "acquire + release latency of one task on one free name, against two raw statements"
    }

    fn time(&self, plan: &Plan) -> Duration {
        plan.uncontended.time()
    }

    async fn run(&self, bench: &mut Bench) -> Result<Vec<Measurement>> {
        let plan = bench.plan.uncontended;
        let name = bench.lock_name(self.name(), 0);
        bench.warm_up(std::slice::from_ref(&name)).await?;
        let mut rivals = Rivals::start(bench, &name, 1, Quantity::LatencyUs).await;
        let (mut all_ours, mut all_floor, mut rounds) = (Sample::new(), Sample::new(), Vec::new());
        for number in 0..plan.count {
            let ours = cycles(plan.ours, || cycle(&bench.locks, &name));
            let floor = bench.floor.round(plan.floor, 1);
            let (ours, floor, theirs) = in_turns(number, ours, floor, rivals.cycles(1, plan.ours)).await;
            let (ours, floor) = (ours?, floor?);
            let round = Round { ours: ours.median_us(), floor: floor.median_us() };
            rivals.note(theirs, round);
            rounds.push(round);
            all_ours.append(&ours);
            all_floor.append(&floor);
            bench.progress.spent(plan.ours + plan.floor);
        }
        let (ours, floor, ratio) = compare(&rounds);
        Ok(vec![Measurement {
            backend: bench.target.name.clone(),
            workload: self.name(),
            case: "1 task".to_owned(),
            parties: 1,
            parties_are: "tasks",
            hold_us: 0,
            quantity: Quantity::LatencyUs,
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
        }])
    }
}
