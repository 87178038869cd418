//! Figures as the cells of a table.

use crate::stats::interval::Interval;
use crate::view::line::Line;
use crate::view::unit::Unit;
use crate::view::{Group, show};

/// The cells of a line: rank, who, figure, p99, to raw statements.
pub(crate) fn cells(group: &Group, line: &Line) -> [String; 5] {
    [
        line.rank.map_or_else(String::new, |rank| rank.to_string()),
        line.who.clone(),
        figure(group.unit, line.median, line.value),
        percentile(line.tail.p99),
        line.to_floor.map_or_else(|| "-".to_owned(), |ratio| ratio.to_string()),
    ]
}

/// Of what has latencies.
pub(crate) fn percentile(micros: f64) -> String {
    if micros > 0.0 { show::time(micros) } else { "-".to_owned() }
}

/// With its interval, or with the reason why there is none.
pub(crate) fn figure(unit: Unit, median: f64, value: Option<Interval>) -> String {
    match value {
        Some(value) => show::value(unit, value),
        None if median > 0.0 => "too few rounds".to_owned(),
        None => "-".to_owned(),
    }
}
