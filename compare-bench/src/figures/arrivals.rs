//! The open loop: requests that arrive whether or not earlier ones have their answers.

use super::runs::Run;
use super::tables::table;
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

/// As `310 us; p99 566 us, 3.4 x`. The median has its interval where it is noisy.
fn cell(result: &Measurement, free: f64) -> String {
    let p99 = result.latency_us.p99;
    format!("{}; p99 {}, {:.1} x", super::cell::ours(result), show::time(p99), p99 / free)
}
