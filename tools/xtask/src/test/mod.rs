//! `cargo xtask test`: all tests.
//!
//! Not nextest: it runs each test in a process of its own, and many of these tests share the servers of their
//! program, as the conformance suite does. So the test programs run as they are, side by side.

mod args;
mod closing;
mod deep;
mod documentation;
mod events;
mod flakes;
pub(crate) mod flaky;
mod programs;
mod repeat;
mod running;
mod schedule;
mod series;
mod turn;
mod watched;

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::time::Instant;

use testbed::{Family, Release};

use self::args::{Selection, Servers};
use self::documentation::Documentation;
use self::events::Ended;
use self::flakes::Flake;
use self::programs::{Class, Program};
use self::running::ProgramOutcome;
use self::series::Series;
use crate::busy::Busy;
use crate::handed_on::HandedOn;
use crate::install::{is_told, provide};
use crate::not_run::{self, NotRun};
use crate::packages::{SERVERS, TOOLS};
use crate::ran;
use crate::shell::Result;

/// How often a test that failed is repeated, alone.
const AGAIN: usize = 2;
/// With more failed tests than this none is repeated: it is no flake.
const MOST_AGAIN: usize = 10;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Keep this number of processors busy while the tests run.
    #[arg(long, value_name = "N", default_value_t = 0)]
    busy: usize,
    /// Run the tests this many times, and count the failures. If a call is stopped, the next call at the same
    /// commit with the same arguments continues it.
    #[arg(long, value_name = "TIMES")]
    repeat: Option<usize>,
    /// With `--repeat`: start the count again.
    #[arg(long, requires = "repeat")]
    restart: bool,
    /// Which servers to test with. `usual`: those that are installed, and MySQL. `fetched`: only
    /// releases that are downloaded, in all setups. `all`: both, in all setups.
    #[arg(long, value_enum, default_value_t = Servers::Usual)]
    servers: Servers,
    /// Run what is too long for every run: all servers in all setups, the models with optimisation, and all
    /// tests twice beside busy loops. A call goes on where the last one was stopped.
    #[arg(long, conflicts_with_all = ["busy", "repeat", "servers"])]
    deep: bool,
    /// Install and download what is missing, without asking.
    #[arg(long)]
    install: bool,
    /// The folder for logs and notes, instead of `target/xtask`. Two runs at a time need two of them.
    #[arg(long, value_name = "FOLDER")]
    notes: Option<PathBuf>,
    /// A stage of `--deep`, which has the turn; and the file for what is not run.
    #[arg(long, value_name = "FILE", hide = true)]
    stage: Option<PathBuf>,
    #[command(flatten)]
    rest: HandedOn,
}

/// What a run is to do.
struct Job {
    /// The folder for logs and notes.
    notes: PathBuf,
    programs: Vec<Program>,
    /// The arguments of cargo for the tests of the documentation, if these are to run.
    documentation: Option<Vec<String>>,
    /// The arguments for each program.
    filters: Vec<String>,
    servers: Servers,
    /// The backends' own tests, on fetched releases.
    releases: Vec<(Program, &'static Release)>,
}

/// How a run went.
#[derive(Debug, Default)]
struct Whole {
    outcomes: Vec<ProgramOutcome>,
    documentation: Documentation,
    /// What was missing: servers of the suite, and what other tests need.
    not_run: Vec<NotRun>,
    /// Other remarks for the end.
    surprises: Vec<String>,
}

impl Whole {
    /// Nothing was run, not even a test that was ignored. What failed as a whole is told by itself.
    fn is_empty(&self) -> bool {
        let Documentation { passed, ignored, failed, problem, .. } = &self.documentation;
        self.outcomes.iter().all(|outcome| outcome.tests.is_empty() && outcome.problem.is_none())
            && *passed + *ignored + failed.len() == 0
            && problem.is_none()
    }

    /// The names of the tests that failed, and of programs that failed as a whole.
    fn failures(&self) -> Vec<String> {
        let of_programs = self.outcomes.iter().flat_map(|outcome| {
            let tests = outcome.failed().map(|(test, _)| format!("{} {}", outcome.title, test.name));
            tests.chain(outcome.problem.as_ref().map(|_| outcome.title.clone()))
        });
        let documentation = self.documentation.failed.iter().map(|name| format!("documentation {name}"));
        let other = self.documentation.failed.is_empty() && self.documentation.problem.is_some();
        of_programs.chain(documentation).chain(other.then(|| "documentation".to_owned())).collect()
    }
}

pub(crate) fn run(options: Options) -> Result<ExitCode> {
    let Options { busy, repeat, restart, servers, deep, install, notes, stage, rest: HandedOn { mut args } } =
        options;
    // The tests run in other folders.
    let notes = std::path::absolute(notes.unwrap_or_else(ran::folder));
    let notes = notes.map_err(|error| format!("the folder for notes: {error}"))?;
    let _turn = stage.is_none().then(|| turn::take(&notes, "turn")).transpose()?;
    // A stage goes on though the call of `--deep` that has begun it was killed.
    let _tests = (!deep).then(|| turn::take(&notes, "tests")).transpose()?;
    let told = is_told(&mut args) || install;
    // What a stage fetches would make another state of those before it.
    let needed = if deep { Servers::All } else { servers };
    // A stage does not ask again what the call of `--deep` has asked.
    let asks = stage.is_none() || told;
    let mut remarks =
        if asks { provide(SERVERS.iter().chain(&TOOLS), needed.needed(), told) } else { Vec::new() };
    if deep {
        return deep::run(&notes, told);
    }
    let selection = Selection::new(&args, servers);
    let job = job(selection, servers, notes)?;
    let _loops = Busy::start(busy)?;
    let once = || -> Result<Whole> {
        let whole = once(&job)?;
        if let Some(file) = &stage {
            not_run::write(file, &whole.not_run)?;
        }
        Ok(whole)
    };
    if let Some(times) = repeat {
        let once = || -> Result<Vec<String>> {
            let whole = once()?;
            for remark in not_run::remarks(&whole.not_run) {
                println!("{remark}");
            }
            Ok(whole.failures())
        };
        let restarts = |last: &Series| restart || (stage.is_some() && last.is_over(times));
        // Runs on other servers are another series.
        args.extend([format!("--servers={}", servers.name()), repeat::servers()]);
        return repeat::run(&job.notes, times, restarts, busy, &args, once);
    }
    let whole = once()?;
    remarks.extend(not_run::remarks(&whole.not_run));
    finish(&job, &whole, remarks)
}

/// Builds what the run needs.
fn job(selection: Selection, servers: Servers, notes: PathBuf) -> Result<Job> {
    let Selection { cargo, filters, names_targets, documentation_only } = selection;
    let mut programs = if documentation_only { Vec::new() } else { programs::build(&cargo)? };
    let mut releases = Vec::new();
    if servers != Servers::Usual && filters.is_empty() && !names_targets {
        for release in servers.needed().filter(|release| release.version().is_ok()) {
            let title = match release.family() {
                Family::Redis => "backend-redis/redis",
                Family::ZooKeeper => "backend-zk/zk",
                Family::Etcd => "backend-etcd/etcd",
                _ => continue,
            };
            releases.extend(
                programs.iter().find(|program| program.title == title).map(|it| (it.clone(), release)),
            );
        }
    }
    if servers == Servers::Fetched && !names_targets {
        programs.retain(|program| program.title == "lockwell/conformance");
    }
    if !names_targets {
        programs.retain(|program| program.plan().class != Class::Deep || servers == Servers::All);
    }
    let with_documentation = documentation_only || (!names_targets && servers != Servers::Fetched);
    let documentation = with_documentation.then_some(cargo);
    Ok(Job { notes, programs, documentation, filters, servers, releases })
}

/// Runs everything once.
fn once(job: &Job) -> Result<Whole> {
    enum Part<'a> {
        Documentation(&'a [String]),
        Program(&'a Program, Option<&'static Release>),
    }
    let began = Instant::now();
    let ran = ran::fresh(&job.notes)?;
    let whole = Mutex::new(Whole::default());
    // Cargo itself runs while the others have only begun to start their servers.
    let documentation = job.documentation.iter().map(|cargo| (Class::Computing, Part::Documentation(cargo)));
    let programs = job.programs.iter().map(|it| (it.plan().class, Part::Program(it, None)));
    let releases =
        job.releases.iter().map(|(it, release)| (Class::Waiting, Part::Program(it, Some(*release))));
    let done = schedule::side_by_side(documentation.chain(programs).chain(releases), |part| -> Result<()> {
        let note = |outcome: Result<ProgramOutcome>| {
            let outcome = outcome?;
            println!("{:6.0} s: {}", began.elapsed().as_secs_f64(), outcome.line());
            whole.lock().map_err(|_| "a panic".to_owned())?.outcomes.push(outcome);
            Ok(())
        };
        match part {
            Part::Documentation(cargo) => {
                let documentation = documentation::run(cargo, &job.filters)?;
                println!("{:6.0} s: {}", began.elapsed().as_secs_f64(), documentation.line());
                whole.lock().map_err(|_| "a panic".to_owned())?.documentation = documentation;
                Ok(())
            }
            Part::Program(program, release) => {
                let threads = program
                    .threads(job.servers)
                    .filter(|_| !job.filters.iter().any(|it| it.starts_with("--test-threads")));
                let threads = threads.map(|threads| format!("--test-threads={threads}"));
                let args: Vec<_> = threads.into_iter().chain(job.filters.iter().cloned()).collect();
                let change = |command: &mut Command| {
                    command.env("LOCKWELL_SERVERS", job.servers.name()).env("LOCKWELL_REPORT", &ran);
                };
                let log = running::log(&job.notes, program, release, "");
                note(running::run(program, release, &args, &log, change, |test| {
                    if let Ended::Failed(text) = &test.ended {
                        println!("{} {}: {}", program.title, test.name, closing::failed("now", text));
                    }
                }))
            }
        }
    });
    done.into_iter().collect::<Result<Vec<()>>>()?;
    let mut whole = whole.into_inner().map_err(|_| "a panic".to_owned())?;
    if whole.is_empty() {
        return Err("no test was run: is there one of this name?".to_owned());
    }
    (whole.not_run, whole.surprises) = ran::take(&job.notes, &ran)?;
    whole.not_run.extend(whole.outcomes.iter().flat_map(|outcome| outcome.not_run.iter().cloned()));
    Ok(whole)
}

/// Repeats what has failed, and prints the closing lines.
fn finish(job: &Job, whole: &Whole, mut remarks: Vec<String>) -> Result<ExitCode> {
    let mut failed: Vec<String> = Vec::new();
    let mut flakes = Vec::new();
    let tests: Vec<_> = whole
        .outcomes
        .iter()
        .flat_map(|outcome| outcome.failed().map(move |(test, text)| (outcome, test, text)))
        .collect();
    let may_repeat = tests.len() <= MOST_AGAIN;
    for (outcome, test, text) in tests {
        let name = format!("{} {}", outcome.title, test.name);
        if may_repeat && passes_alone(outcome, &test.name, job)? {
            flakes.push(Flake::found(name, text, Some(outcome.log.clone()))?);
        } else {
            failed.push(closing::failed(&name, text));
        }
    }
    for outcome in &whole.outcomes {
        failed.extend(outcome.problem.as_ref().map(|problem| {
            let log = std::fs::read_to_string(&outcome.log).unwrap_or_default();
            closing::failed(&outcome.title, &format!("{log}\n{problem}"))
        }));
    }
    let Documentation { passed, ignored, problem, failed: untrue, .. } = &whole.documentation;
    failed.extend(problem.as_ref().map(|problem| closing::failed("documentation", problem)));
    let (flaky, verdict) = flakes::note(&flakes::path(), &flakes)?;
    failed.extend(verdict.err().map(|why| format!("failed: {why}")));
    remarks.extend(whole.surprises.iter().cloned().chain(flaky));
    let failures = failed.len();
    let mut lines = vec![String::new(), "the slowest tests:".to_owned()];
    lines.extend(closing::slowest(&whole.outcomes));
    lines.push(String::new());
    lines.extend(remarks.into_iter().chain(failed));
    let count =
        |is: &dyn Fn(&Ended) -> bool| whole.outcomes.iter().map(|outcome| outcome.count(is)).sum::<usize>();
    let passed = passed + flakes.len() + count(&|ended| *ended == Ended::Passed);
    let failed = count(&|ended| matches!(ended, Ended::Failed(_))) - flakes.len() + untrue.len();
    let skipped = ignored + count(&|ended| matches!(ended, Ended::Ignored | Ended::NotRun));
    closing::tell(&job.notes, &lines)?;
    println!("{}", closing::counts(passed, failed, skipped));
    Ok(if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether a test that has failed passes each time, alone, on the same servers.
fn passes_alone(outcome: &ProgramOutcome, test: &str, job: &Job) -> Result<bool> {
    // It may be one that is ignored unless it is asked for.
    let args = ["--exact", test, "--include-ignored", "--test-threads=1"].map(str::to_owned);
    let ProgramOutcome { program, release, title, .. } = outcome;
    for time in 1..=AGAIN {
        println!("alone, {time} of {AGAIN}: {title} {test}");
        let change = |command: &mut Command| {
            command.env("LOCKWELL_SERVERS", job.servers.name());
        };
        let log = running::log(&job.notes, program, *release, &format!(" alone {time} {test}"));
        let again = running::run(program, *release, &args, &log, change, |_| ())?;
        // A part of it that cannot be run here could not be run the first time either.
        let has_run = again.not_run.iter().all(|it| !it.part.is_empty());
        let passed = again.count(|ended| matches!(ended, Ended::Passed | Ended::NotRun)) == 1;
        if !(has_run && passed) || again.problem.is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn what_every_run_needs_is_fetched() {
        let needed = |servers: Servers| servers.needed().map(Release::name).collect::<Vec<_>>();
        assert_eq!(needed(Servers::Usual), ["mysql9"]);
        assert!(needed(Servers::All).contains(&"mariadb11"));
    }

    #[test]
    fn what_is_not_ours_is_handed_on() {
        #[derive(Debug, Parser)]
        struct Program {
            #[command(flatten)]
            options: Options,
        }
        let parsed = |line: &str| Program::try_parse_from(words(line)).map(|program| program.options);
        let options =
            parsed("test --install --busy 4 --repeat=10 --restart --test x -- --busy redis::").unwrap();
        assert_eq!((options.busy, options.repeat, options.restart), (4, Some(10), true));
        assert!(options.install);
        assert_eq!(options.rest.args, words("--test x -- --busy redis::"));
        let options = parsed("test -p lockwell-core --install").unwrap();
        assert_eq!((options.busy, options.repeat, options.restart), (0, None, false));
        assert_eq!(options.rest.args, words("-p lockwell-core --install"));
        let options = parsed("test --notes a --stage b -p x -- --exact y").unwrap();
        assert_eq!((options.notes, options.stage), (Some("a".into()), Some("b".into())));
        assert_eq!(options.rest.args, words("-p x -- --exact y"));
        assert!(parsed("test --restart").is_err());
        assert!(parsed("test --busy x").is_err());
    }
}
