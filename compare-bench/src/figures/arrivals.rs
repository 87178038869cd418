//! The open loop: requests that arrive whether or not earlier ones have their answers.

use super::markdown::table;
use super::runs::Run;
use crate::measure::workload::arrivals::A_SECOND;
use crate::record::Measurement;
use crate::view::family::ONE_PROCESS;
use crate::view::{distinct, show};

/// For each backend the cases, each with the median, and with p99 in medians of a free lock.
pub(super) fn arrivals(run: &Run) -> String {
    let cases = distinct(run.results("arrivals").map(|result| &*result.case));
    let head: Vec<String> = [""].iter().chain(&cases).map(|it| (*it).to_owned()).collect();
    let row = |backend: &str| {
        let free = run.last(backend, "uncontended")?.ours;
        let of = |case: &&str| {
            let mut results = run.results("arrivals").filter(|it| it.backend == backend);
            results.find(|it| it.case == **case).map_or_else(String::new, |result| cell(result, free))
        };
        Some(std::iter::once(backend.to_owned()).chain(cases.iter().map(of)).collect())
    };
    // Within one process, nearly all of it is what it costs to start a request.
    let backends = run.backends().into_iter().filter(|backend| *backend != ONE_PROCESS);
    table(&head, backends.filter_map(row))
}

/// As `310 us; p99 566 us, 3.4 x`. The median has its interval where it is noisy, and the rate stands before it
/// where it was found.
fn cell(result: &Measurement, free: f64) -> String {
    let rate = result.rate.filter(|_| result.parties_are != A_SECOND);
    let rate = rate.map_or_else(String::new, |rate| format!("{} a second: ", show::number(rate)));
    let p99 = result.latency_us.known_p99();
    let p99 = p99.map_or_else(String::new, |p99| format!("; p99 {}, {:.1} x", show::time(p99), p99 / free));
    format!("{rate}{}{p99}", super::cell::ours(result))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::measured;

    #[test]
    fn a_case_has_its_rate_and_p99_where_they_are_known() {
        let mut result = measured("redis", 4);
        (result.latency_us.samples, result.latency_us.p99) = (999, 6.0);
        assert_eq!(cell(&result, 2.0), "3.00 us");
        (result.latency_us.samples, result.rate) = (1000, Some(812.0));
        assert_eq!(cell(&result, 2.0), "812 a second: 3.00 us; p99 6.00 us, 3.0 x");
        result.parties_are = A_SECOND.to_owned();
        assert_eq!(cell(&result, 2.0), "3.00 us; p99 6.00 us, 3.0 x");
    }
}
