//! Many tasks of one process on one name: what a crowd at one door gets through, and how long it waits.

use std::time::Duration;

use lockwell::{Locks, async_trait};

use super::contention::{FloorRound, Prize, among_tasks};
use super::{Bench, Workload, cycle, in_turns};
use crate::error::Result;
use crate::floor::Counter;
use crate::history::{History, summary};
use crate::peer::Rivals;
use crate::plan::Plan;
use crate::report::{Measurement, Quantity, Round, compare, requests, unsteady};
use crate::stats::Sample;

pub(crate) struct Crowd;

/// A client of ours with one more option in its address, which gets rows of its own.
#[derive(Debug)]
struct Variant {
    option: &'static str,
    value: &'static str,
    /// The backends that have it.
    schemes: &'static [&'static str],
}

/// Where each task of a hand-over has a token of its own, which the history is checked for.
const TOKEN_BLOCKS: &[&str] = &["memory", "sqlite", "postgres", "mysql", "redis"];

const VARIANTS: [Variant; 3] = [
    // One claim of the process at the server, and the lock passed on within.
    Variant { option: "coalesce", value: "true", schemes: TOKEN_BLOCKS },
    Variant { option: "hand_over", value: "1000/20ms", schemes: TOKEN_BLOCKS },
    // The naive lock, which wakes all who wait: the herd.
    Variant { option: "recipe", value: "simple", schemes: &["zk"] },
];

/// What is measured in one row.
struct Row {
    case: String,
    locks: Locks,
    name: String,
    rivals: Rivals,
}

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
            let (name, case) = (bench.lock_name(self.name(), *tasks), format!("{tasks} tasks, one name"));
            let usual = Row {
                case: case.clone(),
                locks: bench.locks.clone(),
                rivals: Rivals::start(bench, &name, 1, Quantity::PerSecond).await,
                name: name.clone(),
            };
            measurements.push(self.with(*tasks, usual, bench).await?);
            for Variant { option, value, schemes } in VARIANTS {
                let Some(url) = bench.target.url_with(option, value) else { continue };
                if schemes.contains(&bench.target.parsed.scheme()) {
                    let locks = lockwell::connect(url).await?;
                    let variant = Row {
                        case: format!("{case}, {option}={value}"),
                        locks: locks.clone(),
                        name: format!("{name}/{option}={value}"),
                        rivals: Rivals::default(),
                    };
                    measurements.push(self.with(*tasks, variant, bench).await?);
                    locks.close().await?;
                }
            }
        }
        Ok(measurements)
    }
}

impl Crowd {
    async fn with(&self, tasks: usize, row: Row, bench: &mut Bench) -> Result<Measurement> {
        let plan = bench.plan.crowd;
        let Row { case, locks, name, mut rivals } = row;
        cycle(&locks, &name).await?;
        bench.floor.warm_up(1).await?;
        let prize = Prize::Lock(locks, name);
        let counter = bench.floor.counter();
        let (mut waits, mut all_floor, mut rounds, mut histories, mut each) =
            (Sample::new(), Sample::new(), Vec::new(), Vec::new(), Vec::new());
        for number in 0..plan.count {
            let floor = FloorRound::take(bench, tasks, Duration::ZERO, plan.floor);
            let fight = among_tasks(&prize, tasks, Duration::ZERO, plan.ours);
            let ours = Counter::over(counter.as_ref(), fight);
            let theirs = rivals.fight(tasks, Duration::ZERO, plan.ours, History::waits, counter.as_ref());
            let (ours, floor, theirs) = in_turns(number, ours, floor, theirs).await;
            let ((history, requests), floor) = (ours?, floor?);
            let history = history?;
            each.extend(requests.map(|requests| history.each(requests)));
            let round = Round { ours: history.per_second(), floor: floor.per_second };
            rivals.note(theirs, round);
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
            case,
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
            requests_each: requests(each),
            trip_us: None,
            trips: None,
            peers: rivals.finish(),
        })
    }
}
