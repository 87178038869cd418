//! Several processes on one name: how a lock goes from one to the next, how fairly, and that only one has it.

use std::time::Duration;

use lockwell::backend::async_trait;

use super::contention::FloorRound;
use super::found::Found;
use super::measured::MeasuredPeers;
use crate::error::{Error, Result};
use crate::measure::contend::{ContendedLock, among_tasks};
use crate::measure::history::{History, summary};
use crate::measure::worker::Workers;
use crate::measure::workload::bench::{About, Bench, Workload, in_turns};
use crate::plan::case::{Case, Others, counted};
use crate::plan::{Plan, Rounds};
use crate::record::{Measurement, Quantity, Round};
use crate::stats::median;
use crate::target::Choice;

pub(crate) struct Handoff;

/// With more processes, only light libraries are measured: a program of Java or Python for each of sixteen
/// processes keeps the machine busy by starting.
const MOST_OF_ALL: usize = 8;

/// With longer holds the library matters little.
const LONGEST_OF_OTHERS_MS: u64 = 1;

/// A hand-over of a slow lock, some times: in a shorter round not every process would have several turns, and
/// no lock would look fair.
const TURNS: Duration = Duration::from_millis(15);

#[async_trait]
impl Workload for Handoff {
    fn about(&self) -> About {
        About::always(
            "handoff",
            "several processes take turns on one name: release to next acquire, fairness, overlap check",
        )
    }

    fn cases(&self, plan: &Plan, choice: &Choice) -> Vec<Case> {
        let parties_are = if choice.is_shared() { "processes" } else { "tasks" };
        let case = |(parties, hold_ms): (usize, u64)| {
            let (hold, turns) = (Duration::from_millis(hold_ms), u32::try_from(parties).unwrap_or(u32::MAX));
            let rounds = Rounds { ours: plan.handoff.ours.max((TURNS + hold) * turns), ..plan.handoff };
            Case {
                name: format!("{}, hold {hold_ms} ms", counted(parties, parties_are)),
                parties_are,
                hold,
                others: if hold_ms > LONGEST_OF_OTHERS_MS { Others::None } else { others(parties) },
                ..Case::of_tasks(parties, rounds)
            }
        };
        let pairs =
            plan.handoffs.iter().flat_map(|(parties, holds)| holds.iter().map(|hold| (*parties, *hold)));
        pairs.map(case).collect()
    }

    async fn measure(&self, case: &Case, bench: &mut Bench) -> Result<Measurement> {
        let (parties, hold, lengths) = (case.parties, case.hold, case.rounds);
        let name = bench.lock_name(self.name(), parties);
        bench.warm_up(std::slice::from_ref(&name)).await?;
        let mut contenders = Contenders::new(bench, &name, parties).await?;
        let mut peers = MeasuredPeers::start(bench, case, &name, parties, Quantity::LatencyUs).await;
        let mut found = Found::new(Quantity::LatencyUs, "release called to next acquire returned");
        let mut floor_rates = Vec::new();
        let mut repeat = bench.repeat(case);
        while let Some(number) = repeat.next(&found.rounds, peers.wasted()) {
            let floor = FloorRound::take(bench, parties, hold, lengths.floor);
            let ours = contenders.round(hold, lengths.ours);
            let theirs = peers.contend(1, hold, lengths.ours, History::to_the_first, None);
            let (history, floor, theirs) = in_turns(number, ours, floor, theirs).await;
            let (history, floor) = (history?, floor?);
            let ours = history.to_the_next();
            if ours.spread().samples > 0 {
                let round = Round { ours: ours.median_us(), floor: floor.sample.median_us() };
                found.trips.extend(floor.trip_us.map(|trip| Round { ours: round.ours, floor: trip }));
                // A lock that lets others barge in is not measured by those who had the luck.
                peers.note(theirs, Round { ours: history.to_the_first().median_us(), ..round });
                found.rounds.push(round);
            }
            found.latency.append(&ours);
            found.floor_latency.append(&floor.sample);
            floor_rates.push(floor.per_second);
            history.join(&mut found.histories)?;
        }
        contenders.finish().await?;
        if found.rounds.is_empty() {
            let time = lengths.ours * u32::try_from(found.histories.len()).unwrap_or(u32::MAX);
            return Err(Error::failed(format!("the lock did not change hands once in {time:?}")));
        }
        let rates = (summary(&found.histories).acquisitions_per_second, median(floor_rates));
        Ok(found.measurement(self.name(), case, bench, Some(rates), peers.finish()))
    }
}

/// Which other libraries are measured with so many processes.
pub(super) fn others(processes: usize) -> Others {
    if processes <= MOST_OF_ALL { Others::All } else { Others::Light }
}

/// Processes, or tasks where the backend cannot reach beyond its process.
pub(super) enum Contenders {
    Processes(Workers),
    Tasks(ContendedLock, usize),
}

impl Contenders {
    pub(super) async fn new(bench: &Bench, name: &str, parties: usize) -> Result<Self> {
        if bench.target.is_shared() {
            Ok(Self::Processes(Workers::start(&bench.target.url, name, parties).await?))
        } else {
            Ok(Self::Tasks(ContendedLock::Lock(bench.locks.clone(), name.to_owned()), parties))
        }
    }

    pub(super) async fn round(&mut self, hold: Duration, length: Duration) -> Result<History> {
        match self {
            Self::Processes(workers) => workers.round(hold, length).await,
            Self::Tasks(lock, parties) => among_tasks(lock, *parties, hold, length).await,
        }
    }

    /// Lets each process ask the server something that changes nothing.
    pub(super) async fn ask_server(&mut self) -> Result<()> {
        match self {
            Self::Processes(workers) => workers.ask_server().await,
            Self::Tasks(..) => Ok(()),
        }
    }

    pub(super) async fn finish(self) -> Result<()> {
        match self {
            Self::Processes(workers) => workers.finish().await,
            Self::Tasks(..) => Ok(()),
        }
    }
}
