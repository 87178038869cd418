//! What the rounds of a case gave, made into what the file keeps.

use crate::measure::counter::Count;
use crate::measure::history::{History, summary};
use crate::measure::workload::bench::Bench;
use crate::plan::case::Case;
use crate::record::{Measurement, PeerResult, Quantity, Round, compare, requests, unsteady};
use crate::stats::interval::Interval;
use crate::stats::{Sample, median};

/// The rounds of a case.
pub(super) struct Found {
    pub(super) quantity: Quantity,
    pub(super) rounds: Vec<Round>,
    pub(super) latency: Sample,
    pub(super) latency_of: &'static str,
    pub(super) floor_latency: Sample,
    /// On one name.
    pub(super) histories: Vec<History>,
    /// The requests for each acquisition, in each round.
    pub(super) requests_each: Vec<f64>,
    pub(super) wakeups_each: Vec<f64>,
}

impl Found {
    pub(super) fn new(quantity: Quantity, latency_of: &'static str) -> Self {
        Self {
            quantity,
            rounds: Vec::new(),
            latency: Sample::new(),
            latency_of,
            floor_latency: Sample::new(),
            histories: Vec::new(),
            requests_each: Vec::new(),
            wakeups_each: Vec::new(),
        }
    }

    /// A round, with the latencies of ours and of the floor.
    pub(super) fn add(&mut self, round: Round, ours: &Sample, floor: &Sample) {
        self.rounds.push(round);
        self.latency.append(ours);
        self.floor_latency.append(floor);
    }

    /// Those of ours and of the floor, over all rounds.
    pub(super) fn medians(&self) -> (f64, f64) {
        let of = |which: fn(&Round) -> f64| median(self.rounds.iter().map(which));
        (of(|round| round.ours), of(|round| round.floor))
    }

    /// What the server counted while those turns were taken.
    pub(super) fn count(&mut self, history: &History, count: Option<Count>) {
        let Some(count) = count else { return };
        self.requests_each.push(history.each(count.requests));
        self.wakeups_each.extend(count.wakeups.map(|wakeups| history.each(wakeups)));
    }

    /// The rates are those of all rounds together, unless others are given.
    pub(super) fn measurement(
        self,
        workload: &str,
        case: &Case,
        bench: &Bench,
        rates: Option<(f64, f64)>,
        peers: Vec<PeerResult>,
    ) -> Measurement {
        let (ours, floor, ratio) = compare(&self.rounds);
        let (per_second, floor_per_second) =
            rates.unwrap_or_else(|| (self.latency.per_second(), self.floor_latency.per_second()));
        Measurement {
            backend: bench.target.name.clone(),
            workload: workload.to_owned(),
            case: case.name.clone(),
            parties: case.parties,
            parties_are: case.parties_are.to_owned(),
            rate: None,
            hold_us: u64::try_from(case.hold.as_micros()).unwrap_or(u64::MAX),
            option: case.option.map(|(name, value)| format!("{name}={value}")),
            quantity: self.quantity,
            ours,
            floor,
            ratio,
            noisy: !ratio.is_some_and(Interval::is_precise),
            unsteady: unsteady(&self.rounds),
            latency_us: self.latency.spread(),
            latency_of: self.latency_of.to_owned(),
            floor_latency_us: self.floor_latency.spread(),
            per_second,
            floor_per_second,
            handing: (!self.histories.is_empty()).then(|| summary(&self.histories)),
            requests_each: requests(&self.requests_each),
            requests_rounds: self.requests_each,
            wakeups_each: requests(&self.wakeups_each),
            holding: None,
            rounds: self.rounds,
            // The run knows them.
            load: 0.0,
            busy: 0.0,
            peers,
        }
    }
}
