//! One test program: runs it, and tells how its tests ended.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use testbed::Release;

use super::events::{Ended, Events, Test};
use super::programs::{Program, command};
use super::watched::{Ends, Watched};
use crate::not_run::{self, NotRun};
use crate::shell::Result;

/// A program of which no test has ended for this time hangs, and is ended.
const LIMIT: Duration = Duration::from_mins(20);

/// The exit code of a program whose tests have failed. Any other one has another reason.
const FAILED: i32 = 101;

/// How a program went.
#[derive(Debug)]
pub(crate) struct ProgramOutcome {
    pub(crate) program: Program,
    /// The release of the servers, if it was another than the usual one.
    pub(crate) release: Option<&'static Release>,
    pub(crate) title: String,
    pub(crate) tests: Vec<Test>,
    /// What its tests say that they did not run.
    pub(crate) not_run: Vec<NotRun>,
    pub(crate) took: Duration,
    /// Why the program as a whole has failed, apart from its tests.
    pub(crate) problem: Option<String>,
    /// What it wrote besides.
    pub(crate) log: PathBuf,
}

impl ProgramOutcome {
    pub(crate) fn failed(&self) -> impl Iterator<Item = (&Test, &str)> {
        self.tests.iter().filter_map(|test| match &test.ended {
            Ended::Failed(text) => Some((test, text.as_str())),
            _ => None,
        })
    }

    pub(crate) fn count(&self, is: impl Fn(&Ended) -> bool) -> usize {
        self.tests.iter().filter(|test| is(&test.ended)).count()
    }

    /// One line about it.
    pub(crate) fn line(&self) -> String {
        let seconds = self.took.as_secs_f64();
        let passed = self.count(|ended| *ended == Ended::Passed);
        let ignored = self.count(|ended| *ended == Ended::Ignored);
        let not_run = self.count(|ended| *ended == Ended::NotRun);
        let not_run = if not_run == 0 { String::new() } else { format!(", {not_run} not run") };
        let failed = self.failed().count();
        let problem = self.problem.as_ref().map_or_else(String::new, |problem| format!("; {problem}"));
        let title = &self.title;
        format!(
            "{seconds:7.1} s  {title:26} {passed:5} passed, {failed} failed, {ignored} ignored{not_run}{problem}"
        )
    }
}

fn title(program: &Program, release: Option<&Release>) -> String {
    match release {
        Some(release) => format!("{} on {}", program.title, release.title()),
        None => program.title.clone(),
    }
}

/// The file in this folder for what a program writes besides. `which` tells its runs apart: a repetition must
/// not take away what the failure has left.
pub(crate) fn log(folder: &Path, program: &Program, release: Option<&Release>, which: &str) -> PathBuf {
    // A version has a dot.
    let name = (title(program, release) + which).replace(['/', ' ', '.', ':'], "-");
    folder.join("logs").join(name).with_extension("log")
}

/// Runs a program with these arguments, on this release of the servers. `change` sets what else its
/// environment has, and `tell` hears of each test that ends.
pub(crate) fn run(
    program: &Program,
    release: Option<&'static Release>,
    args: &[String],
    log: &Path,
    change: impl FnOnce(&mut Command),
    mut tell: impl FnMut(&Test),
) -> Result<ProgramOutcome> {
    let title = title(program, release);
    let problem = |error: std::io::Error| format!("{title}: {error}");
    std::fs::create_dir_all(log.parent().unwrap_or(log)).map_err(problem)?;
    let mut command = command(program);
    let (times, missed) = (log.with_extension("times"), log.with_extension("not-run"));
    not_run::clear(&missed)?;
    command.args(args).stderr(File::create(log).map_err(problem)?);
    command.env("LOCKWELL_TIMES", &times).env("LOCKWELL_NOT_RUN", &missed);
    if let Some(release) = release {
        command.env("LOCKWELL_RELEASES", release.name());
    }
    change(&mut command);
    let began = Instant::now();
    let mut watched = Watched::start(&mut command, LIMIT, Ends::Alone).map_err(problem)?;
    let mut events = Events::default();
    while let Some(line) = watched.line().map_err(problem)? {
        let known = events.tests.len();
        events.read(&line, Instant::now());
        for test in &events.tests[known..] {
            watched.note_progress();
            tell(test);
        }
    }
    let (status, timed_out) = watched.end().map_err(problem)?;
    // Programs that write their own times do not report when a test begins.
    events.time(&std::fs::read_to_string(times).unwrap_or_default());
    let mut not_run = not_run::read(&missed, &title)?;
    for it in &mut not_run {
        // The thread of something else.
        if !events.note_not_run(&it.test) {
            it.test.clear();
        }
    }
    let has_failed = events.count(|ended| matches!(ended, Ended::Failed(_))) > 0;
    // A test may have ended the program, or have written into the line that tells how another one ended.
    let all_told = events.complete && events.running().is_empty();
    let problem = if timed_out {
        Some(format!("no test has ended for {LIMIT:?}, while these ran: {}", events.running().join(", ")))
    } else if all_told && (status.success() || (has_failed && status.code() == Some(FAILED))) {
        None
    } else {
        let running = events.running().into_iter().map(|name| format!("{name} ran"));
        Some(
            [status.to_string()]
                .into_iter()
                .chain(running)
                .chain(events.other)
                .collect::<Vec<_>>()
                .join("\n    "),
        )
    };
    Ok(ProgramOutcome {
        program: program.clone(),
        release,
        title,
        tests: events.tests,
        not_run,
        took: began.elapsed(),
        problem,
        log: log.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repetition_has_a_log_of_its_own() {
        let program =
            Program { title: "backend-zk/zk".to_owned(), file: PathBuf::new(), folder: PathBuf::new() };
        let log = |release: Option<&Release>, which: &str| log(Path::new("/notes"), &program, release, which);
        assert_eq!(log(None, ""), Path::new("/notes/logs/backend-zk-zk.log"));
        let newer = Some(Release::named("zookeeper3.9"));
        let repeated = "/notes/logs/backend-zk-zk-on-ZooKeeper-3-9-alone-1-a--b.log";
        assert_eq!(log(newer, " alone 1 a::b"), Path::new(repeated));
    }
}
