//! How a delay of the network changes a workload: one column for each run with a delay.

use super::runs::{Run, median, time};
use crate::figures::markdown::{row, rule};
use crate::shell::Result;

/// The medians of a workload, and how many round trips it takes: the slope between the shortest and the
/// longest delay.
pub(super) fn delays(workload: &str, runs: &[Run]) -> Result<String> {
    let runs: Vec<&Run> = runs.iter().filter(|run| run.delay_us() > 0).collect();
    let [first, .., last] = runs[..] else {
        return Err("there are not two runs with a delay".to_owned());
    };
    let mut head = vec![String::new()];
    head.extend(runs.iter().map(|run| format!("{} each way", time(f64::from(run.delay_us())))));
    head.push("round trips".to_owned());
    let mut table = row(&head) + &rule(head.len());
    for backend in last.backends() {
        let of = |run: &Run| run.last(backend, workload, 0).and_then(median);
        let (Some(short), Some(long)) = (of(first), of(last)) else { continue };
        let trips = (long - short) / (2.0 * f64::from(last.delay_us() - first.delay_us()));
        let mut cells = vec![backend.to_owned()];
        cells.extend(runs.iter().map(|run| of(run).map(time).unwrap_or_default()));
        cells.push(format!("{trips:.1}"));
        table += &row(&cells);
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::runs::tests::run;

    #[test]
    fn the_slope_is_the_number_of_round_trips() {
        let runs = [run("disk"), run("delay-1"), run("delay-5"), run("delay-50")];
        let table = delays("uncontended", &runs).unwrap();
        assert!(
            table.contains("| 1.00 ms each way | 5.00 ms each way | 50.0 ms each way | round trips |"),
            "{table}"
        );
        assert!(table.contains("| redis | 2.04 ms | 10.0 ms | 100 ms | 1.0 |"), "{table}");
        assert!(delays("uncontended", &runs[..2]).is_err());
    }
}
