//! Ranks: the best backend, and those that cannot be distinguished from it.

use crate::stats::interval::Interval;
use crate::view::line::Line;
use crate::view::show::Unit;

/// Whether the two have a value in common: then it is unknown which is larger.
pub(crate) fn overlap(one: Interval, other: Interval) -> bool {
    one.low <= other.high && other.low <= one.high
}

/// Sorts them, and says who shares a rank. Whoever overlaps the best of a rank has that rank: a chain of
/// neighbours that overlap does not make its ends equal.
pub(crate) fn rank(lines: &mut [Line], unit: Unit) {
    lines.sort_by(|one, other| {
        let best = match unit {
            Unit::Time | Unit::Count => one.median.total_cmp(&other.median),
            Unit::Rate => other.median.total_cmp(&one.median),
        };
        is_out(one).cmp(&is_out(other)).then(best)
    });
    let mut leader: Option<(usize, Interval)> = None;
    for (place, line) in lines.iter_mut().enumerate() {
        let Some(value) = line.value.filter(|_| !is_out(line)) else { continue };
        let rank = match leader {
            Some((rank, of)) if overlap(of, value) => rank,
            _ => {
                leader = Some((place + 1, value));
                place + 1
            }
        };
        line.rank = Some(rank);
    }
}

/// Without an interval, nobody is ranked; nor is a lock within one process among those between processes, nor
/// one that does not exclude.
fn is_out(line: &Line) -> bool {
    line.is_local || line.is_unfit || line.value.is_none() || line.median <= 0.0
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn line(who: &str, median: f64, slack: f64) -> Line {
        Line {
            rank: None,
            who: who.to_owned(),
            is_peer: false,
            is_local: who == "memory",
            is_unfit: who == "unsafe",
            median,
            value: (slack >= 0.0).then_some(Interval { median, low: median - slack, high: median + slack }),
            p99: 2.0 * median,
            to_floor: None,
            remarks: Vec::new(),
        }
    }

    fn ranks(unit: Unit) -> Vec<(String, Option<usize>)> {
        let mut lines = vec![
            line("d", 60.0, 1.0),
            line("memory", 0.1, 0.0),
            line("unsafe", 0.2, 0.0),
            line("b", 44.0, 3.0),
            line("a", 42.0, 1.0),
            line("e", 10.0, -1.0),
            line("c", 47.0, 3.0),
        ];
        rank(&mut lines, unit);
        lines.into_iter().map(|line| (line.who, line.rank)).collect()
    }

    #[test]
    fn those_who_overlap_the_best_share_its_rank() {
        let expected = [
            ("a", Some(1)),
            ("b", Some(1)),
            ("c", Some(3)),
            ("d", Some(4)),
            ("memory", None),
            ("unsafe", None),
            ("e", None),
        ];
        assert_eq!(ranks(Unit::Time), expected.map(|(who, rank)| (who.to_owned(), rank)));
        let expected = [
            ("d", Some(1)),
            ("c", Some(2)),
            ("b", Some(2)),
            ("a", Some(4)),
            ("e", None),
            ("unsafe", None),
            ("memory", None),
        ];
        assert_eq!(ranks(Unit::Rate), expected.map(|(who, rank)| (who.to_owned(), rank)));
    }
}
