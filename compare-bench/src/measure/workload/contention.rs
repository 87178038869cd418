//! Several parties that contend for one name or for several: what their workloads have in common.

use std::sync::Arc;
use std::time::Duration;

use super::found::Found;
use super::measured::MeasuredPeers;
use crate::error::{Error, Result};
use crate::measure::contend::{ContendedLock, among_tasks};
use crate::measure::counter::Counter;
use crate::measure::history::{History, summary};
use crate::measure::worker::Workers;
use crate::measure::workload::bench::{Bench, in_turns};
use crate::plan::case::Case;
use crate::record::{Measurement, Quantity, Round};
use crate::stats::{Sample, median};

/// After this time, a server that counts late includes all earlier requests when the next one comes.
const LATE: Duration = Duration::from_millis(1100);

/// What is measured of parties that contend. Where it is a time, it is that of the spans.
pub(super) struct Contention {
    pub(super) workload: &'static str,
    pub(super) quantity: Quantity,
    pub(super) latency_of: &'static str,
    /// The spans of ours.
    pub(super) ours: fn(&History) -> Sample,
    /// The spans of other libraries, and of ours beside them.
    pub(super) theirs: fn(&History) -> Sample,
    /// How many each process of another library has.
    pub(super) tasks: usize,
    /// Whether the server counts its requests.
    pub(super) counts: bool,
}

/// Processes, or tasks of this one.
pub(super) enum Contenders {
    Processes(Workers),
    Tasks(ContendedLock, usize),
}

impl Contention {
    /// Measures the rounds of this case. Everything is warm.
    pub(super) async fn measure(
        &self,
        case: &Case,
        bench: &mut Bench,
        name: &str,
        mut contenders: Contenders,
    ) -> Result<Measurement> {
        let (parties, hold, lengths) = (case.parties, case.hold, case.rounds);
        let mut peers = MeasuredPeers::start(bench, case, name, parties / self.tasks, self.quantity).await;
        let counter = if self.counts { bench.counter().await? } else { None };
        // Only processes can ask a server that counts late.
        let counter = counter.filter(|it| it.is_prompt() || matches!(contenders, Contenders::Processes(_)));
        let is_late = counter.as_ref().is_some_and(|counter| !counter.is_prompt());
        let questions = if is_late { u64::try_from(parties).unwrap_or(0) } else { 0 };
        let is_time = self.quantity == Quantity::LatencyUs;
        let (mut found, mut floor_rates) = (Found::new(self.quantity, self.latency_of), Vec::new());
        let mut repeat = bench.repeat(case);
        while let Some(number) = repeat.next(&found.rounds, peers.wasted()) {
            let floor = raw(bench, parties, hold, lengths.floor);
            let work = async {
                let history = contenders.round(hold, lengths.ours).await?;
                if is_late {
                    tokio::time::sleep(LATE).await;
                    contenders.ask_server().await?;
                }
                Ok::<History, Error>(history)
            };
            let ours = Counter::over(counter.as_ref(), work);
            let prompt = counter.as_ref().filter(|counter| counter.is_prompt());
            let theirs = peers.contend(self.tasks, hold, lengths.ours, self.theirs, prompt);
            let (ours, floor, theirs) = in_turns(number, ours, floor, theirs).await;
            let ((history, count), (floor, floor_rate)) = (ours?, floor?);
            let history = history?;
            found.count(&history, count.map(|count| count.without(questions)));
            let sample = (self.ours)(&history);
            if !is_time {
                let round = Round { ours: history.per_second(), floor: floor_rate };
                peers.note(theirs, round);
                found.rounds.push(round);
            } else if !sample.is_empty() {
                let round = Round { ours: sample.median_us(), floor: floor.median_us() };
                // A lock that lets others barge in is not measured by those who had the luck.
                peers.note(theirs, Round { ours: (self.theirs)(&history).median_us(), ..round });
                found.rounds.push(round);
            }
            found.latency.append(&sample);
            found.floor_latency.append(&floor);
            floor_rates.push(floor_rate);
            history.join(&mut found.histories)?;
        }
        if let Contenders::Processes(workers) = contenders {
            workers.finish().await?;
        }
        if found.rounds.is_empty() {
            let time = lengths.ours * u32::try_from(found.histories.len()).unwrap_or(u32::MAX);
            return Err(Error::failed(format!("the lock did not change hands once in {time:?}")));
        }
        let rates = if is_time {
            (summary(&found.histories).acquisitions_per_second, median(floor_rates))
        } else {
            found.medians()
        };
        Ok(found.measurement(self.workload, case, bench, Some(rates), peers.finish()))
    }
}

/// Latencies and rate of raw cycles, one after the other on one connection, since a hand-over takes a
/// statement that clears and one that takes. In this process those of a mutex and as many tasks.
pub(super) async fn raw(
    bench: &mut Bench,
    tasks: usize,
    hold: Duration,
    length: Duration,
) -> Result<(Sample, f64)> {
    if bench.target.is_shared() {
        let sample = bench.floor.round(length, 1).await?;
        let per_second = sample.per_second();
        return Ok((sample, per_second));
    }
    let history = among_tasks(&ContendedLock::Mutex(Arc::default()), tasks, hold, length).await?;
    Ok((history.handovers(), history.per_second()))
}

impl Contenders {
    /// Processes, or tasks where the backend cannot reach beyond its process.
    pub(super) async fn new(bench: &Bench, name: &str, parties: usize) -> Result<Self> {
        if bench.target.is_shared() {
            Ok(Self::Processes(Workers::start(&bench.target.url, name, parties).await?))
        } else {
            Ok(Self::Tasks(ContendedLock::Lock(bench.locks.clone(), name.to_owned()), parties))
        }
    }

    async fn round(&mut self, hold: Duration, length: Duration) -> Result<History> {
        match self {
            Self::Processes(workers) => workers.round(hold, length).await,
            Self::Tasks(lock, parties) => among_tasks(lock, *parties, hold, length).await,
        }
    }

    /// Lets each process ask the server something that changes nothing.
    async fn ask_server(&mut self) -> Result<()> {
        match self {
            Self::Processes(workers) => workers.ask_server().await,
            Self::Tasks(..) => Ok(()),
        }
    }
}
