//! When figures are not to be used.

use crate::record::machine::too_busy;
use crate::record::{Measurement, Report};
use crate::stats::as_float;

/// The share of the processors' time that others may use while a case does nothing but hold some locks. In the
/// runs of the repository everything together used 0.23 at most.
const BUSY_AT_REST: f64 = 0.5;

/// The share of cases whose raw statements may change by half or more between the rounds. In the runs of the
/// repository it is 0.18 at most.
const UNSTEADY: f64 = 0.5;

/// Why the figures of a run are not to be used, if they are not.
pub(crate) fn doubt(run: &Report) -> Option<String> {
    let cores = run.machine.cores;
    let at_rest = run.results.iter().filter(|result| is_at_rest(result)).map(|result| result.busy);
    let busy = at_rest.fold(0.0, f64::max);
    // Without raw statements, there is nothing that could be unsteady.
    let compared = run.results.iter().filter(|result| result.floor > 0.0);
    let (compared, unsteady) = (compared.clone().count(), compared.filter(|result| result.unsteady).count());
    let of = |count: usize| as_float(u64::try_from(count).unwrap_or(u64::MAX));
    if run.violation.is_some() {
        Some("two held one lock at once, or a token did not rise".to_owned())
    } else if run.mode == "smoke" {
        Some("the run was made for a test".to_owned())
    } else if run.build.profile == "debug" {
        Some("they are of a debug build".to_owned())
    } else if run.load_before >= too_busy(cores) {
        Some(format!(
            "the load of the machine was {:.2} on {cores} cores before the run began",
            run.load_before
        ))
    } else if busy > BUSY_AT_REST {
        Some(format!(
            "others used {:.0} % of the processors while the run only held some locks",
            100.0 * busy
        ))
    } else if unsteady > 0 && of(unsteady) >= UNSTEADY * of(compared) {
        Some(format!(
            "the plain statements that are measured beside the locks changed by half or more between the rounds in {unsteady} of \
             {compared} cases"
        ))
    } else {
        None
    }
}

/// A process that holds no more locks than this is nearly always asleep, and so is its server.
const FEW_LOCKS: usize = 1000;

fn is_at_rest(result: &Measurement) -> bool {
    result.workload == "holding" && result.parties <= FEW_LOCKS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Failure;
    use crate::record::tests::{measured, report};

    /// A run whose figures can be used.
    fn run() -> Report {
        let mut run = report();
        run.mode = "usual".to_owned();
        run.build.profile = "release".to_owned();
        run.machine.cores = 2;
        run.load_before = 0.4;
        run.results = vec![measured("redis", 6), measured("postgres", 6), measured("sqlite", 6)];
        run
    }

    #[test]
    fn a_load_makes_figures_useless() {
        assert_eq!(doubt(&run()), None);
        let loaded = |load_before| doubt(&Report { load_before, ..run() });
        assert_eq!(loaded(2.9), None);
        assert!(loaded(3.0).is_some());
        assert_eq!(
            loaded(8.0).as_deref(),
            Some("the load of the machine was 8.00 on 2 cores before the run began")
        );
    }

    #[test]
    fn swinging_raw_statements_make_figures_useless() {
        let mut run = run();
        run.results[0].unsteady = true;
        assert_eq!(doubt(&run), None);
        run.results[1].unsteady = true;
        assert!(doubt(&run).is_some_and(|reason| reason.ends_with("in 2 of 3 cases")));
    }

    #[test]
    fn others_are_seen_while_the_run_waits() {
        let mut run = run();
        run.results[0].busy = 0.9;
        assert_eq!(doubt(&run), None, "the work of the run itself");
        (run.results[0].workload, run.results[0].parties) = ("holding".to_owned(), 1000);
        assert!(doubt(&run).is_some_and(|reason| reason.contains("90 % of the processors")));
        run.results[0].parties = 10_000;
        assert_eq!(doubt(&run), None, "many locks are work");
    }

    #[test]
    fn tests_debug_builds_and_broken_locks_say_nothing() {
        let reason = |change: fn(&mut Report)| {
            let mut run = run();
            change(&mut run);
            doubt(&run).unwrap_or_default()
        };
        assert!(reason(|run| run.mode = "smoke".to_owned()).contains("for a test"));
        assert!(reason(|run| run.build.profile = "debug".to_owned()).contains("debug build"));
        let violation = Failure {
            backend: String::new(),
            workload: String::new(),
            case: String::new(),
            reason: String::new(),
        };
        let mut run = run();
        run.violation = Some(violation);
        assert!(doubt(&run).is_some_and(|reason| reason.contains("at once")));
    }
}
