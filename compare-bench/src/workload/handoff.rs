//! Several processes on one name: how a lock goes from one to the next, how fairly, and that only one has it.

use std::time::Duration;

use lockwell::async_trait;

use super::contention::{FloorRound, Prize, among_tasks};
use super::{Bench, Workload, in_turns};
use crate::error::{Error, Result};
use crate::history::{History, summary};
use crate::peer::Rivals;
use crate::plan::Plan;
use crate::report::{Measurement, Quantity, Round, compare, unsteady};
use crate::stats::Sample;
use crate::worker::Workers;

pub(crate) struct Handoff;

#[async_trait]
impl Workload for Handoff {
    fn name(&self) -> &'static str {
        "handoff"
    }

    fn about(&self) -> &'static str {
        "2 and 4 processes take turns on one name: release to next acquire, fairness, overlap check"
    }

    fn time(&self, plan: &Plan) -> Duration {
        let cases = plan.processes.iter().flat_map(|_| plan.holds);
        cases.map(|_| plan.handoff.time()).sum()
    }

    async fn run(&self, bench: &mut Bench) -> Result<Vec<Measurement>> {
        let mut measurements = Vec::new();
        for parties in bench.plan.processes {
            for hold in bench.plan.holds {
                measurements.push(self.with(*parties, *hold, bench).await?);
            }
        }
        Ok(measurements)
    }
}

impl Handoff {
    async fn with(&self, parties: usize, hold: Duration, bench: &mut Bench) -> Result<Measurement> {
        let plan = bench.plan.handoff;
        let name = bench.lock_name(self.name(), parties);
        bench.warm_up(std::slice::from_ref(&name)).await?;
        let mut fighters = Fighters::new(bench, &name, parties).await?;
        let (mut all_ours, mut all_floor, mut rounds, mut histories) =
            (Sample::new(), Sample::new(), Vec::new(), Vec::new());
        let mut rivals = Rivals::start(bench, &name, parties, Quantity::LatencyUs).await;
        let (mut floor_rates, mut trips) = (Vec::new(), Vec::new());
        for number in 0..plan.count {
            let floor = FloorRound::take(bench, parties, hold, plan.floor);
            let ours = fighters.round(hold, plan.ours);
            let theirs = rivals.fight(1, hold, plan.ours, History::to_the_first, None);
            let (history, floor, theirs) = in_turns(number, ours, floor, theirs).await;
            let (history, floor) = (history?, floor?);
            let ours = history.handovers();
            if ours.spread().samples > 0 {
                let round = Round { ours: ours.median_us(), floor: floor.sample.median_us() };
                trips.extend(floor.trip_us.map(|trip| Round { ours: round.ours, floor: trip }));
                // A lock that lets others barge in is not measured by those who had the luck.
                rivals.note(theirs, Round { ours: history.to_the_first().median_us(), ..round });
                rounds.push(round);
            }
            all_ours.append(&ours);
            all_floor.append(&floor.sample);
            floor_rates.push(floor.per_second);
            history.join(&mut histories)?;
            bench.progress.spent(plan.ours + plan.floor);
        }
        fighters.finish().await?;
        if rounds.is_empty() {
            let time = plan.ours * plan.count;
            return Err(Error::failed(format!("the lock did not change hands once in {time:?}")));
        }
        let handing = summary(&histories);
        let (ours, floor, ratio) = compare(&rounds);
        let (_, trip_us, in_trips) = compare(&trips);
        let parties_are = if bench.target.is_shared() { "processes" } else { "tasks" };
        Ok(Measurement {
            backend: bench.target.name.clone(),
            workload: self.name(),
            case: format!("{parties} {parties_are}, hold {} ms", hold.as_millis()),
            parties,
            parties_are,
            hold_us: u64::try_from(hold.as_micros()).unwrap_or(u64::MAX),
            quantity: Quantity::LatencyUs,
            ours,
            floor,
            ratio,
            unsteady: unsteady(&rounds),
            rounds,
            latency_us: all_ours.spread(),
            latency_of: "release called to next acquire returned",
            floor_latency_us: all_floor.spread(),
            per_second: handing.acquisitions_per_second,
            floor_per_second: crate::stats::median(floor_rates),
            handing: Some(handing),
            requests_each: None,
            trip_us: (!trips.is_empty()).then_some(trip_us),
            trips: in_trips,
            peers: rivals.finish(),
        })
    }
}

/// Processes, or tasks where the backend cannot reach beyond its process.
enum Fighters {
    Processes(Workers),
    Tasks(Prize, usize),
}

impl Fighters {
    async fn new(bench: &Bench, name: &str, parties: usize) -> Result<Self> {
        if bench.target.is_shared() {
            Ok(Self::Processes(Workers::start(&bench.target.url, name, parties).await?))
        } else {
            Ok(Self::Tasks(Prize::Lock(bench.locks.clone(), name.to_owned()), parties))
        }
    }

    async fn round(&mut self, hold: Duration, length: Duration) -> Result<History> {
        match self {
            Self::Processes(workers) => workers.round(hold, length).await,
            Self::Tasks(prize, parties) => among_tasks(prize, *parties, hold, length).await,
        }
    }

    async fn finish(self) -> Result<()> {
        match self {
            Self::Processes(workers) => workers.finish().await,
            Self::Tasks(..) => Ok(()),
        }
    }
}
