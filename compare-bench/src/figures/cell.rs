//! One figure in a table. A noisy one has a mark, and its interval.

use crate::record::{Measurement, PeerResult, Quantity};
use crate::stats::interval::Interval;
use crate::view::show::{self, Unit};

/// Stands before a figure that is noisy.
const MARK: &str = "~";

/// What the case measures, of ours.
pub(super) fn ours(result: &Measurement) -> String {
    let interval = Interval::of(result.rounds.iter().map(|round| round.ours));
    shown(result.quantity.into(), result.ours, interval, result.noisy)
}

/// The ratio to the raw statements, which always has its interval.
pub(super) fn ratio(result: &Measurement) -> String {
    let mark = if result.noisy { format!("{MARK} ") } else { String::new() };
    result.ratio.map_or_else(String::new, |ratio| format!("{mark}{ratio}"))
}

/// What the case measures, of another library.
pub(super) fn theirs(peer: &PeerResult, quantity: Quantity) -> String {
    of_rounds(quantity.into(), peer.theirs, peer.rounds.iter().map(|round| round.theirs))
}

/// A median of rounds, which is noisy if its own interval is wide.
pub(super) fn of_rounds(unit: Unit, median: f64, rounds: impl Iterator<Item = f64>) -> String {
    let interval = Interval::of(rounds);
    shown(unit, median, interval, !interval.is_some_and(Interval::is_precise))
}

/// A median with the shortest and the longest time, of what lies between two bounds by its nature.
pub(super) fn range(result: &Measurement) -> String {
    let times = || result.rounds.iter().map(|round| round.ours);
    let all = times().reduce(f64::min).zip(times().reduce(f64::max));
    all.map_or_else(String::new, |(low, high)| {
        show::value(Unit::Time, Interval { median: result.ours, low, high })
    })
}

fn shown(unit: Unit, median: f64, interval: Option<Interval>, noisy: bool) -> String {
    let figure = match interval {
        Some(interval) if noisy => format!("{MARK} {}", show::value(unit, Interval { median, ..interval })),
        None if noisy => format!("{MARK} {}", show::plain(unit, median)),
        _ => show::plain(unit, median),
    };
    figure.replace(" /s", "/s")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::measured;

    #[test]
    fn a_noisy_figure_has_a_mark_and_its_interval() {
        let mut result = measured("redis", 4);
        assert_eq!(ours(&result), "3.00 us");
        (result.noisy, result.rounds[0].ours, result.rounds[1].ours) = (true, 1.0, 2.0);
        assert_eq!(ours(&result), "~ 3.00 us [1.00 .. 3.00]");
        assert_eq!(ratio(&result), "~ 1.50 [1.50 .. 1.50]");
        assert_eq!(theirs(&result.peers[0], Quantity::LatencyUs), "2.50 us");
        let rates = [9000.0, 9745.0, 9900.0, 2000.0].into_iter();
        assert_eq!(of_rounds(Unit::Rate, 9745.0, rates), "~ 9745/s [2000 .. 9900]");
    }
}
