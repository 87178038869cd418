//! The program that runs the suite.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use super::target::Target;
use super::times::{Timed, Times};
use crate::kit::connect::{Connect, Missing};
use crate::{Case, cases, hooks, lateness, runtime, serve_if_asked};
use lockwell_core::{Locks, Result};

/// Nearly all cases wait nearly all of the time, so more of them than there are processors run at the same
/// time.
const THREADS: usize = 6;

/// How long the remaining tasks of a case may take to end.
const AFTER: Duration = Duration::from_secs(5);

/// The `main` of a test program that runs the suite: `tests/conformance.rs` with `harness = false`.
///
/// `connect` makes a client from an address. [`Suite`] says what the program does.
pub fn main<F>(
    connect: impl Fn(String) -> F + Send + Sync + 'static,
    targets: impl IntoIterator<Item = Target>,
) -> ExitCode
where
    F: Future<Output = Result<Locks>> + Send + 'static,
{
    Suite::new(connect).targets(targets).run().exit_code()
}

/// A test program that runs the suite on some targets.
///
/// It takes the arguments of `cargo test` (a filter, `--list`, `--skip`, `--test-threads`); cases are called
/// `TARGET::CASE`. Many of them run at the same time. Cases that stop a server use a separate one. Cases
/// whose needs the target does not meet are left out. If a server is not installed, its cases are ignored, or
/// fail with `LOCKWELL_REQUIRE_SERVERS=1`. Some cases start this program again, as another process that holds
/// a lock.
pub struct Suite {
    connect: Connect,
    targets: Vec<Arc<Target>>,
    checks: Vec<(String, Check)>,
}

type Check = Box<dyn FnOnce() -> Result<(), String> + Send>;

impl Suite {
    /// `connect` makes a client from an address.
    ///
    /// Where this process was started by a case, it becomes the holder of a lock here, and this function does
    /// not return.
    pub fn new<F>(connect: impl Fn(String) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Locks>> + Send + 'static,
    {
        hooks::set();
        serve_if_asked(&connect);
        let connect: Connect = Arc::new(move |url| Box::pin(connect(url)));
        Self { connect, targets: Vec::new(), checks: Vec::new() }
    }

    /// Adds targets.
    #[must_use]
    pub fn targets(mut self, targets: impl IntoIterator<Item = Target>) -> Self {
        self.targets.extend(targets.into_iter().map(Arc::new));
        self
    }

    /// Adds a test of another kind, which runs along with the cases.
    #[must_use]
    pub fn check(
        mut self,
        name: impl Into<String>,
        check: impl FnOnce() -> Result<(), String> + Send + 'static,
    ) -> Self {
        self.checks.push((name.into(), Box::new(check)));
        self
    }

    /// Runs everything that the arguments of this process select. All servers have ended when it returns.
    pub fn run(self) -> Conclusion {
        let Self { connect, targets, checks } = self;
        lateness::watch();
        let times = Times::open();
        let mut args = Arguments::from_args();
        args.test_threads = args.test_threads.or(Some(THREADS));
        let records: Vec<_> =
            targets.iter().map(|target| Arc::new(Mutex::new(CaseRecord::new(target)))).collect();
        let mut trials: Vec<_> = checks
            .into_iter()
            .map(|(name, check)| {
                let timed = times.of(&name);
                Trial::test(name, move || {
                    let _timed = timed.begin();
                    Ok(check()?)
                })
            })
            .collect();
        for (case, at) in mixed(targets.len()) {
            let (target, record) = (&targets[at], &records[at]);
            if !target.runs(case) {
                continue;
            }
            let (target, record, connect) = (Arc::clone(target), Arc::clone(record), Arc::clone(&connect));
            let name = format!("{}::{}", target.name, case.name);
            let timed = times.of(&name);
            trials.push(Trial::ignorable_test(name, move || play(case, &target, &connect, &record, timed)));
        }
        // The servers end with the targets.
        drop(targets);
        let conclusion = libtest_mimic::run(&args, trials);
        let records = records.iter().map(|record| lock(record).clone()).collect();
        Conclusion { conclusion, records }
    }
}

impl fmt::Debug for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Suite").field("targets", &self.targets).finish_non_exhaustive()
    }
}

/// All cases for each target, so that all servers have something to do, and each of them something else:
/// cases that keep the processors busy do not meet.
fn mixed(targets: usize) -> impl Iterator<Item = (&'static Case, usize)> {
    let (cases, apart) = (cases(), cases().len() / targets.max(1));
    (0..cases.len())
        .flat_map(move |step| (0..targets).map(move |at| (&cases[(step + at * apart) % cases.len()], at)))
}

/// How a run of the suite went.
#[derive(Debug)]
pub struct Conclusion {
    conclusion: libtest_mimic::Conclusion,
    records: Vec<CaseRecord>,
}

impl Conclusion {
    /// What ran on each target.
    pub fn records(&self) -> &[CaseRecord] {
        &self.records
    }

    /// The exit code for the program: 101 if anything has failed.
    pub fn exit_code(&self) -> ExitCode {
        self.conclusion.exit_code()
    }
}

/// What ran on one target.
///
/// A record of values to read, so its fields are public; later versions may add some.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CaseRecord {
    /// The name of the target.
    pub target: String,
    /// How many cases there are for it.
    pub cases: usize,
    /// How many of them were begun.
    pub begun: usize,
    /// How many of them have passed.
    pub passed: usize,
    /// The times of its cases, added up.
    pub took: Duration,
    /// Why cases were ignored.
    pub missing: Option<String>,
}

impl CaseRecord {
    fn new(target: &Target) -> Self {
        let cases = cases().iter().filter(|case| target.runs(case)).count();
        Self { target: target.name.clone(), cases, begun: 0, passed: 0, took: Duration::ZERO, missing: None }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A case that has failed has panicked, maybe with this mutex locked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a case, or returns the reason why it cannot run.
fn play(
    case: &Case,
    target: &Target,
    connect: &Connect,
    record: &Mutex<CaseRecord>,
    timed: Timed,
) -> Result<Completion, Failed> {
    let harness = match target.harness(case, connect) {
        Ok(harness) => harness,
        Err(Missing::NotInstalled(reason)) if !(target.is_required && servers_required()) => {
            lock(record).missing = Some(reason.clone());
            return Ok(Completion::ignored_with(reason));
        }
        Err(Missing::NotInstalled(reason) | Missing::Broken(reason)) => return Err(reason.into()),
    };
    let disturbs = case.disturbs_the_server();
    let _turn = disturbs.then(|| lock(&target.turn));
    let runtime = runtime(&*harness, "case").map_err(|error| format!("a runtime: {error}"))?;
    lock(record).begun += 1;
    let began = Instant::now();
    let _timed = timed.begin();
    if let Some(server) = harness.server().filter(|_| disturbs) {
        // The case before may have failed while the server was stopped.
        runtime.block_on(server.resume());
    }
    let ended = catch_unwind(AssertUnwindSafe(|| runtime.block_on(case.run(harness))));
    // Also after a failure: a task that blocks its thread would keep a runtime that is dropped for ever.
    runtime.shutdown_timeout(AFTER);
    if let Err(panic) = ended {
        resume_unwind(panic);
    }
    let mut record = lock(record);
    record.passed += 1;
    record.took += began.elapsed();
    Ok(Completion::Completed)
}

fn servers_required() -> bool {
    std::env::var_os("LOCKWELL_REQUIRE_SERVERS").is_some_and(|value| value == "1")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_target_has_every_case_and_neighbours_have_different_ones() {
        let all: Vec<_> = mixed(12).map(|(case, at)| (case.name, at)).collect();
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), 12 * cases().len());
        for together in all.chunks(12) {
            assert_eq!(together.iter().map(|(name, _)| name).collect::<HashSet<_>>().len(), 12);
        }
        assert_eq!(mixed(1).count(), cases().len());
        assert_eq!(mixed(0).count(), 0);
    }
}
