//! One figure in a table. One whose own interval is wide is noisy: it has a mark, and its interval.

use crate::record::{Measurement, PeerResult, Quantity};
use crate::stats::interval::Interval;
use crate::view::show::{self, Unit};

/// Stands before a figure that is noisy.
const MARK: &str = "~";

/// What the case measures, of ours.
pub(super) fn ours(result: &Measurement) -> String {
    of_rounds(result.quantity.into(), result.ours, times(result))
}

/// Whether what the case measures of ours is noisy.
pub(super) fn is_noisy(result: &Measurement) -> bool {
    !Interval::of(times(result)).is_some_and(Interval::is_precise)
}

fn times(result: &Measurement) -> impl Iterator<Item = f64> + Clone {
    result.rounds.iter().map(|round| round.ours)
}

/// The ratio to the raw statements, which always has its interval.
pub(super) fn ratio(result: &Measurement) -> String {
    let mark = |ratio: Interval| if ratio.is_precise() { String::new() } else { format!("{MARK} ") };
    result.ratio.map_or_else(String::new, |ratio| format!("{}{ratio}", mark(ratio)))
}

/// What the case measures, of another library.
pub(super) fn theirs(peer: &PeerResult, quantity: Quantity) -> String {
    of_rounds(quantity.into(), peer.theirs, peer.rounds.iter().map(|round| round.theirs))
}

/// A median of rounds, which is noisy if its own interval is wide.
pub(super) fn of_rounds(unit: Unit, median: f64, rounds: impl Iterator<Item = f64>) -> String {
    let figure = match Interval::of(rounds) {
        Some(interval) if interval.is_precise() => show::plain(unit, median),
        Some(interval) => format!("{MARK} {}", show::value(unit, Interval { median, ..interval })),
        None => format!("{MARK} {}", show::plain(unit, median)),
    };
    figure.replace(" /s", "/s")
}

/// A time of ours that lies between two bounds by its nature: with the shortest and the longest.
pub(super) fn our_range(result: &Measurement) -> String {
    range(result.ours, times(result))
}

/// The same of another library.
pub(super) fn their_range(peer: &PeerResult) -> String {
    range(peer.theirs, peer.rounds.iter().map(|round| round.theirs))
}

fn range(median: f64, times: impl Iterator<Item = f64> + Clone) -> String {
    let Some((low, high)) = times.clone().reduce(f64::min).zip(times.reduce(f64::max)) else {
        return String::new();
    };
    // As they are shown.
    if show::time(low) == show::time(high) {
        show::time(median)
    } else {
        show::value(Unit::Time, Interval { median, low, high })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::measured;

    #[test]
    fn a_noisy_figure_has_a_mark_and_its_interval() {
        let mut result = measured("redis", 4);
        result.noisy = true;
        assert_eq!((ours(&result), is_noisy(&result)), ("3.00 us".to_owned(), false), "its ratio is noisy");
        assert_eq!(ratio(&result), "1.50 [1.50 .. 1.50]");
        (result.noisy, result.rounds[0].ours, result.rounds[1].ours) = (false, 1.0, 2.0);
        assert_eq!((ours(&result), is_noisy(&result)), ("~ 3.00 us [1.00 .. 3.00]".to_owned(), true));
        result.ratio = result.ratio.map(|ratio| Interval { low: 1.0, ..ratio });
        assert_eq!(ratio(&result), "~ 1.50 [1.00 .. 1.50]");
        assert_eq!(theirs(&result.peers[0], Quantity::LatencyUs), "2.50 us");
        let rates = [9000.0, 9745.0, 9900.0, 2000.0].into_iter();
        assert_eq!(of_rounds(Unit::Rate, 9745.0, rates), "~ 9745/s [2000 .. 9900]");
    }

    #[test]
    fn a_range_has_its_bounds_where_they_differ() {
        let mut result = measured("redis", 2);
        result.rounds[0].ours = 2.999;
        assert_eq!(our_range(&result), "3.00 us");
        result.rounds[0].ours = 2.0;
        assert_eq!(our_range(&result), "3.00 us [2.00 .. 3.00]");
        result.peers[0].rounds[1].theirs = 4.0;
        assert_eq!(their_range(&result.peers[0]), "2.50 us [2.50 .. 4.00]");
        result.peers[0].rounds.clear();
        assert_eq!(their_range(&result.peers[0]), "");
    }
}
