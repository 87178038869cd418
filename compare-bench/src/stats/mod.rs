//! Percentiles, medians, fairness.

pub(crate) mod interval;

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Latencies of one round or of many, and how long it took to collect them.
#[derive(Debug)]
pub(crate) struct Sample {
    nanos: Histogram<u64>,
    cycles: u64,
    elapsed: Duration,
}

impl Sample {
    pub(crate) fn new() -> Self {
        // Three digits, resized as needed: only a wrong number of digits can fail.
        let nanos = Histogram::new(3).expect("three digits are allowed");
        Self { nanos, cycles: 0, elapsed: Duration::ZERO }
    }

    /// Notes that `cycles` cycles took `span` together.
    pub(crate) fn note(&mut self, span: Duration, cycles: u32) {
        let each = span / cycles.max(1);
        let each = u64::try_from(each.as_nanos()).unwrap_or(u64::MAX).max(1);
        self.nanos.record_n(each, u64::from(cycles)).expect("the histogram grows as needed");
        self.cycles += u64::from(cycles);
    }

    /// Notes that the work went on from `began` to now.
    pub(crate) fn close(&mut self, began: Instant) {
        self.took(began.elapsed());
    }

    /// Notes that the work took this time.
    pub(crate) fn took(&mut self, span: Duration) {
        self.elapsed += span;
    }

    /// Adds what another sample counted. Its time is added only by [`close`](Self::close) of one of them.
    pub(crate) fn absorb(&mut self, other: &Self) {
        self.nanos.add(&other.nanos).expect("the histogram grows as needed");
        self.cycles += other.cycles;
    }

    /// Adds a round that came after this one.
    pub(crate) fn append(&mut self, other: &Self) {
        self.absorb(other);
        self.elapsed += other.elapsed;
    }

    pub(crate) fn median_us(&self) -> f64 {
        micros(self.nanos.value_at_quantile(0.5))
    }

    pub(crate) fn per_second(&self) -> f64 {
        rate(self.cycles, self.elapsed)
    }

    pub(crate) fn spread(&self) -> Spread {
        let at = |quantile| micros(self.nanos.value_at_quantile(quantile));
        Spread {
            samples: self.nanos.len(),
            mean: round3(self.nanos.mean() / 1000.0),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: micros(self.nanos.max()),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.nanos.is_empty()
    }
}

/// How latencies are spread, in microseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Spread {
    /// How many were measured.
    pub(crate) samples: u64,
    pub(crate) mean: f64,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
}

/// Of fewer latencies, ten or less are beyond their 99th percentile, and another run finds others.
const FEWEST_OF_P99: u64 = 1000;

impl Spread {
    /// What 99 of 100 took at most; `None` of too few.
    pub(crate) fn known_p99(&self) -> Option<f64> {
        (self.samples >= FEWEST_OF_P99).then_some(self.p99)
    }
}

pub(crate) fn micros(nanos: u64) -> f64 {
    round3(Duration::from_nanos(nanos).as_secs_f64() * 1e6)
}

/// Three digits after the point: more would be noise in the file.
pub(crate) fn round3(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

pub(crate) fn rate(count: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { round3(as_float(count) / time.as_secs_f64()) }
}

/// A count as a number to divide by. Counts here are far below 2^53.
#[expect(clippy::cast_precision_loss, reason = "counts of a run are far below 2^53")]
pub(crate) fn as_float(count: u64) -> f64 {
    count as f64
}

/// The middle value; the mean of the two middle ones of an even number; zero of none.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => values[half],
        _ => f64::midpoint(values[half - 1], values[half]),
    }
}

/// Jain's index of fairness: 1 if all got the same, 1/n if one of n got everything.
pub(crate) fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|share| as_float(*share)).sum();
    let squares: f64 = shares.iter().map(|share| as_float(*share).powi(2)).sum();
    let parties = as_float(u64::try_from(shares.len()).unwrap_or(u64::MAX));
    if squares == 0.0 { 1.0 } else { round3(sum * sum / (parties * squares)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close_to(left: f64, right: f64, slack: f64) -> bool {
        (left - right).abs() <= slack
    }

    #[test]
    fn percentiles_are_those_of_the_samples() {
        let mut sample = Sample::new();
        for micros in 1..=1000 {
            sample.note(Duration::from_micros(micros), 1);
        }
        let spread = sample.spread();
        assert_eq!(spread.samples, 1000);
        assert!(close_to(spread.p50, 500.0, 1.0), "{spread:?}");
        assert!(close_to(spread.p90, 900.0, 1.0), "{spread:?}");
        assert!(close_to(spread.p99, 990.0, 1.0), "{spread:?}");
        assert!(close_to(spread.max, 1000.0, 1.0), "{spread:?}");
        assert!(close_to(spread.mean, 500.5, 1.0), "{spread:?}");
    }

    #[test]
    fn of_few_latencies_no_rare_one_is_told() {
        let mut sample = Sample::new();
        sample.note(Duration::from_micros(999), 999);
        assert_eq!(sample.spread().known_p99(), None);
        sample.note(Duration::from_micros(1), 1);
        assert!(sample.spread().known_p99().is_some_and(|p99| close_to(p99, 1.0, 0.01)));
    }

    #[test]
    fn a_batch_counts_for_each_of_its_cycles() {
        let mut sample = Sample::new();
        sample.note(Duration::from_micros(100), 100);
        assert_eq!(sample.spread().samples, 100);
        assert!(close_to(sample.median_us(), 1.0, 0.01));
    }

    #[test]
    fn rounds_add_up_and_tasks_share_their_time() {
        let mut all = Sample::new();
        for _ in 0..2 {
            let mut round = Sample::new();
            let mut task = Sample::new();
            task.note(Duration::from_millis(1), 1);
            round.absorb(&task);
            round.absorb(&task);
            round.elapsed = Duration::from_secs(1);
            all.append(&round);
        }
        assert!(close_to(all.per_second(), 2.0, 1e-9));
    }

    #[test]
    fn medians() {
        assert!(close_to(median([3.0, 1.0, 2.0]), 2.0, 0.0));
        assert!(close_to(median([4.0, 1.0, 2.0, 3.0]), 2.5, 0.0));
        assert!(close_to(median([]), 0.0, 0.0));
    }

    #[test]
    fn fairness() {
        assert!(close_to(jain(&[5, 5, 5, 5]), 1.0, 0.0));
        assert!(close_to(jain(&[20, 0, 0, 0]), 0.25, 0.0));
        assert!(close_to(jain(&[0, 0]), 1.0, 0.0));
        assert!(close_to(jain(&[3, 1]), 0.8, 0.0));
    }
}
