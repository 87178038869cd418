//! One test program: runs it, and tells how its tests ended.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use testbed::Release;

use super::events::{Ended, Events, Test};
use super::programs::{Program, command};
use crate::shell::{Result, root};

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
        let failed = self.failed().count();
        let problem = self.problem.as_ref().map_or_else(String::new, |problem| format!("; {problem}"));
        let title = &self.title;
        format!("{seconds:7.1} s  {title:26} {passed:5} passed, {failed} failed, {ignored} ignored{problem}")
    }
}

/// Runs a program with these arguments, on this release of the servers. `change` sets what else its
/// environment has, and `tell` hears of each test that ends.
pub(crate) fn run(
    program: &Program,
    release: Option<&'static Release>,
    args: &[String],
    change: impl FnOnce(&mut Command),
    mut tell: impl FnMut(&Test),
) -> Result<ProgramOutcome> {
    let title = match release {
        Some(release) => format!("{} on {}", program.title, release.title()),
        None => program.title.clone(),
    };
    let problem = |error: std::io::Error| format!("{title}: {error}");
    // A version has a dot.
    let name = title.replace(['/', ' ', '.'], "-");
    let log = root().join("target/xtask/logs").join(name).with_extension("log");
    std::fs::create_dir_all(log.parent().unwrap_or(root())).map_err(problem)?;
    let mut command = command(program);
    let times = log.with_extension("times");
    command.args(args).stdout(Stdio::piped()).stderr(File::create(&log).map_err(problem)?);
    command.env("LOCKWELL_TIMES", &times);
    if let Some(release) = release {
        command.env("LOCKWELL_RELEASES", release.name());
    }
    change(&mut command);
    let began = Instant::now();
    let mut child = command.spawn().map_err(problem)?;
    let output = child.stdout.take().expect("it is piped");
    let watched = Watched::new(child);
    let mut events = Events::default();
    for line in BufReader::new(output).split(b'\n') {
        let line = line.map_err(problem)?;
        let known = events.tests.len();
        events.read(&String::from_utf8_lossy(&line), Instant::now());
        for test in &events.tests[known..] {
            watched.note_progress();
            tell(test);
        }
    }
    let (status, timed_out) = watched.end().map_err(problem)?;
    // Programs that write their own times do not report when a test begins.
    events.time(&std::fs::read_to_string(times).unwrap_or_default());
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
        took: began.elapsed(),
        problem,
        log,
    })
}

/// A process that is killed when it makes no progress for too long.
struct Watched {
    child: Arc<Mutex<Child>>,
    progress: Sender<()>,
    watch: thread::JoinHandle<bool>,
}

impl Watched {
    fn new(child: Child) -> Self {
        let child = Arc::new(Mutex::new(child));
        let (progress, noted) = channel();
        let watch = thread::spawn({
            let child = Arc::clone(&child);
            move || {
                let end = loop {
                    if let Err(end) = noted.recv_timeout(LIMIT) {
                        break end;
                    }
                };
                let timed_out = end == RecvTimeoutError::Timeout;
                if timed_out {
                    // One that has ended meanwhile cannot be killed.
                    drop(child.lock().unwrap_or_else(PoisonError::into_inner).kill());
                }
                timed_out
            }
        });
        Self { child, progress, watch }
    }

    fn note_progress(&self) {
        // Nobody listens any more after it was killed.
        self.progress.send(()).unwrap_or_default();
    }

    /// Waits for its end. The flag: it was killed.
    fn end(self) -> std::io::Result<(std::process::ExitStatus, bool)> {
        let status = loop {
            // Not a wait that holds the mutex: a program that closes its output and then hangs is to be
            // killed, too.
            let ended = self.child.lock().unwrap_or_else(PoisonError::into_inner).try_wait()?;
            match ended {
                Some(status) => break status,
                None => thread::sleep(Duration::from_millis(10)),
            }
        };
        drop(self.progress);
        Ok((status, self.watch.join().unwrap_or(false)))
    }
}
