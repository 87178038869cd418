//! Medians of ratios and of other figures, and how sure they are: none is shown without an interval.

use std::fmt;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::stats::median;

/// The fewest rounds that say anything about how far their ratios lie apart. Of so few, the interval is that
/// from the lowest to the highest, in which the truth lies less often than in 95 of 100 cases; the plans have
/// twice as many or more.
const FEWEST: usize = 3;

/// How often the rounds are drawn anew. More would change the third digit.
const RESAMPLES: usize = 4000;

/// Always the same, so that the same rounds give the same interval.
const SEED: u64 = 0x10c4_3e11;

/// Within so much of the median, on either side, an interval is narrow enough to stop measuring.
pub(crate) const PRECISE: f64 = 0.05;

/// The middle one of the rounds' figures, and its interval, nominally of 95 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Interval {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Interval {
    /// The percentile bootstrap over the rounds: as many are drawn with replacement as there are, again and
    /// again, and of the medians of all draws, 2.5 % are left out at either end. `None` of too few rounds.
    ///
    /// What is drawn are rounds and not single latencies: those of one round have the state of the machine in
    /// common, and would make the interval far too narrow.
    pub(crate) fn of(rounds: impl IntoIterator<Item = f64>) -> Option<Self> {
        let rounds: Vec<f64> = rounds.into_iter().collect();
        if rounds.len() < FEWEST {
            return None;
        }
        let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
        let mut draw = || median((0..rounds.len()).map(|_| rounds[random.random_range(0..rounds.len())]));
        let mut medians: Vec<f64> = (0..RESAMPLES).map(|_| draw()).collect();
        medians.sort_by(f64::total_cmp);
        let cut = RESAMPLES / 40;
        Some(Self {
            low: short(medians[cut]),
            high: short(medians[RESAMPLES - 1 - cut]),
            median: short(median(rounds)),
        })
    }
}

impl Interval {
    /// Whether it is so narrow that more rounds are not needed.
    pub(crate) fn is_precise(self) -> bool {
        let slack = PRECISE * self.median.abs();
        self.median - self.low <= slack && self.high - self.median <= slack
    }
}

/// Five digits, wherever the point is: a small ratio is shown the other way round, and needs them, too.
fn short(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap_or(value)
}

/// As many digits as people read: `1.09 [1.07 .. 1.12]`.
impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = match self.median {
            small if small < 0.1 => 3,
            usual if usual < 10.0 => 2,
            large if large < 100.0 => 1,
            _ => 0,
        };
        let Self { median, low, high } = self;
        write!(f, "{median:.digits$} [{low:.digits$} .. {high:.digits$}]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds with this median, and noise of about this size in both directions.
    fn noisy(count: usize, median: f64, noise: f64, seed: u64) -> Vec<f64> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        // A sum of twelve is as good as normal.
        let mut normal = || (0..12).map(|_| random.random_range(-0.5..0.5)).sum::<f64>();
        (0..count).map(|_| median * (noise * normal()).exp()).collect()
    }

    #[test]
    fn the_truth_lies_within_as_often_as_promised() {
        for (count, least) in [(6, 0.9), (10, 0.9), (20, 0.9)] {
            let runs = 100_u32;
            let within = |seed| {
                let ratio = Interval::of(noisy(count, 1.2, 0.1, seed)).unwrap();
                u32::from(ratio.low <= 1.2 && 1.2 <= ratio.high)
            };
            let hits: u32 = (0..runs).map(|seed| within(seed.into())).sum();
            let share = f64::from(hits) / f64::from(runs);
            assert!(share >= least, "{share} with {count} rounds");
        }
    }

    #[test]
    fn the_same_rounds_give_the_same_interval() {
        let rounds = noisy(12, 2.0, 0.3, 1);
        assert_eq!(Interval::of(rounds.clone()), Interval::of(rounds));
        // Known figures: neither another build nor another machine gives others.
        let ratio = Interval::of([1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6]).unwrap();
        assert_eq!(ratio, Interval { median: 1.3, low: 1.1, high: 1.5 });
    }

    #[test]
    fn few_rounds_give_none() {
        assert_eq!(Interval::of([]), None);
        assert_eq!(Interval::of([1.0, 1.0]), None);
        let ratio = Interval::of([1.0, 2.0, 3.0]).unwrap();
        assert_eq!(ratio, Interval { median: 2.0, low: 1.0, high: 3.0 });
    }

    #[test]
    fn it_is_shown_with_its_interval() {
        let shown = |median, low, high| Interval { median, low, high }.to_string();
        assert_eq!(shown(1.094, 1.068, 1.12), "1.09 [1.07 .. 1.12]");
        assert_eq!(shown(0.0123, 0.01, 0.02), "0.012 [0.010 .. 0.020]");
        assert_eq!(shown(17.34, 9.96, 20.0), "17.3 [10.0 .. 20.0]");
        assert_eq!(shown(340.2, 99.6, 512.0), "340 [100 .. 512]");
    }

    #[test]
    fn it_is_precise_within_five_percent_to_either_side() {
        let is_precise = |low, high| Interval { median: 2.0, low, high }.is_precise();
        assert!(is_precise(1.91, 2.09) && is_precise(2.0, 2.0));
        assert!(!is_precise(1.8, 2.0) && !is_precise(2.0, 2.2));
    }

    #[test]
    fn a_small_ratio_keeps_its_digits() {
        let ratio = Interval::of([1.0 / 1234.0, 1.0 / 1250.0, 1.0 / 1300.0]).unwrap();
        assert_eq!((ratio.low, ratio.median, ratio.high), (7.6923e-4, 8e-4, 8.1037e-4));
        assert_eq!(short(0.0).to_bits(), 0.0_f64.to_bits());
    }
}
