//! The run: one backend after the other, so that none pays for another's server.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use lockwell::{Capabilities, Requirement};

use crate::args::RunArgs;
use crate::error::{Error, Result};
use crate::measure::floor::Floor;
use crate::measure::floor::raw::Server;
use crate::measure::peer::{self, GivenProgram, Peer};
use crate::measure::progress::Progress;
use crate::measure::workload::bench::{Bench, Workload};
use crate::plan::case::Case;
use crate::record::disk::Disk;
use crate::record::file::{FOLDER, ResultFile, read, unfinished};
use crate::record::machine::{Ticks, load};
use crate::record::{Backend, Conditions, Failure, Missing, Report, now};
use crate::target::server::Site;
use crate::target::{Choice, Target, connect, data_folder, given};

/// What is done to servers of others.
const WRITES: &str = "\
These servers get, for the raw statements, a table or node lockwell_compare_floor, or keys compare/floor/...,
and with --contrast a table or node lockwell_compare_contrast, or keys compare_contrast/... With --peers
a folder FILE.flock is made beside a file of SQLite. All that is removed at the end.
Locks have names that begin with compare/, those of other libraries with compare_peers/. lockwell keeps for
them what it keeps for any lock, for example a row in SQL for a day.";

/// How long an interrupted run may take to end, and to remove what it has made.
pub(crate) const TIDY: Duration = Duration::from_secs(5);

/// How often a run that finds the machine busy looks again, every [`LOOK`]: for five minutes. Its own build raises
/// the load.
const LOOKS: u32 = 30;
const LOOK: Duration = Duration::from_secs(10);

/// A run, and the file that it goes into.
struct Run {
    report: Report,
    file: ResultFile,
    progress: Progress,
    began: Instant,
}

/// What is done on one backend.
struct Job {
    choice: Choice,
    peers: Vec<Peer>,
    cases: Vec<(&'static dyn Workload, Case)>,
}

/// Measures everything that was asked for, and writes it down case by case. Ends early if a lock does not
/// exclude.
pub(crate) async fn run(args: &RunArgs) -> Result<(Report, ResultFile)> {
    let site = site(args)?;
    let plan = args.plan();
    let load_before = quiet(load, |load| args.refuses(load), LOOK).await.map_err(Error::failed)?;
    let mut report = Report { load_before, ..Report::new(plan.mode, conditions(args, site.as_ref())) };
    // Before anything is measured: what cannot be kept need not be.
    let (file, began) = (open(args, &mut report)?, Instant::now());
    println!("results: {}", file.path().display());
    if site.is_none() {
        println!("{WRITES}");
    }
    let choices = choices(args, site.as_ref(), &mut report)?;
    if let Some(Site { folder, .. }) = site.clone() {
        let looked = tokio::task::spawn_blocking(move || Disk::look(&folder, plan.syncs)).await?;
        report.disk = Some(looked?);
    }
    let mut run = Run { report, file, progress: Progress::hidden(), began };
    let peers = run.build(&choices, args).await;
    let mut jobs = jobs(choices, &peers, &args.workloads(), args);
    for job in &mut jobs {
        let name = job.choice.name();
        job.cases.retain(|(workload, case)| !run.report.has(name, workload.name(), &case.name));
    }
    run.progress = Progress::new(jobs.iter().map(|job| job.cases.len()).sum());
    for missing in &run.report.missing {
        run.progress.say(&format!("not measured: {}: {}", missing.backend, missing.reason));
    }
    run.save()?;
    for job in jobs.iter().filter(|job| !job.cases.is_empty()) {
        match run.job(job).await {
            Ok(()) => {}
            Err(Error::Violation(_)) => break,
            Err(Error::File(error)) => return Err(Error::File(error)),
            Err(error) => run.leave_out(job.choice.name(), &error.to_string()),
        }
    }
    run.progress.finish();
    run.report.finished = run.report.violation.is_none();
    run.save()?;
    Ok((run.report, run.file))
}

/// The load when it is low enough, which may take [`LOOKS`] times this pause; why it is refused, if it stays too
/// high.
async fn quiet(
    load: impl Fn() -> f64,
    refuses: impl Fn(f64) -> Option<String>,
    pause: Duration,
) -> Result<f64, String> {
    for number in 0..LOOKS {
        let now = load();
        let Some(reason) = refuses(now) else { return Ok(now) };
        if number == 0 {
            eprintln!("compare-bench: {reason}; waiting for up to {:.0?}", pause * LOOKS);
        }
        tokio::time::sleep(pause).await;
    }
    let now = load();
    refuses(now).map_or(Ok(now), Err)
}

/// Removes what an interrupted run has made for the raw statements on servers of others.
pub(crate) async fn tidy(urls: &[String]) {
    let remove = async {
        for choice in given(urls).unwrap_or_default() {
            let Ok(target) = choice.start().await else { continue };
            let Ok(floor) = Floor::connect(&target.floor).await else { continue };
            floor.finish().await.unwrap_or_default();
        }
    };
    if tokio::time::timeout(TIDY, remove).await.is_err() {
        eprintln!("compare-bench: a server does not answer, and may still have what the raw statements used");
    }
}

/// How our own servers are run; `None` if those of others are measured.
fn site(args: &RunArgs) -> Result<Option<Site>> {
    if !args.url.is_empty() {
        return Ok(None);
    }
    let (folder, delay) = (data_folder(args.tmpfs)?, args.delay.into());
    let sync_delay = args.sync_delay.into();
    Ok(Some(Site { folder, durability: args.durability, delay, sync_delay }))
}

fn conditions(args: &RunArgs, site: Option<&Site>) -> Conditions {
    let unknown = || "unknown".to_owned();
    Conditions {
        durability: site.map_or_else(unknown, |site| site.durability.name().to_owned()),
        storage: site.map_or_else(unknown, Site::file_system),
        delay_us: u64::try_from(args.delay.as_micros()).unwrap_or(u64::MAX),
    }
}

/// The file of the run: a new one, or that of a run that did not come to its end, with what is in it.
fn open(args: &RunArgs, report: &mut Report) -> Result<ResultFile> {
    let Some(resumed) = &args.resume else {
        return match &args.json {
            Some(path) => ResultFile::create(path, report),
            None => ResultFile::create_in(Path::new(FOLDER), report),
        };
    };
    let (file, mut before) = ResultFile::resume(&wanted(resumed.as_deref())?)?;
    if let Some(reason) = before.differs(report) {
        return Err(Error::failed(format!("{} cannot be gone on with: {reason}", file.path().display())));
    }
    before.resumed.push(now());
    before.finished = false;
    // What failed or was not there is tried again.
    before.failures.clear();
    before.missing.clear();
    before.load_before = before.load_before.max(report.load_before);
    *report = before;
    Ok(file)
}

/// The file that a run is to go on with.
fn wanted(file: Option<&Path>) -> Result<std::path::PathBuf> {
    file.map_or_else(|| unfinished(Path::new(FOLDER)), |file| Ok(file.to_owned()))
}

/// The arguments of the run to go on with.
pub(crate) fn arguments(file: Option<&Path>) -> Result<Vec<String>> {
    Ok(read(&wanted(file)?)?.arguments)
}

fn choices(args: &RunArgs, site: Option<&Site>, report: &mut Report) -> Result<Vec<Choice>> {
    let Some(site) = site else { return given(&args.url) };
    let mut choices = Vec::new();
    for kind in args.kinds() {
        match kind.missing().or_else(|| site.refuses(kind)) {
            None => choices.push(Choice::Own(kind, site.clone())),
            Some(reason) => report.missing.push(Missing { backend: kind.name().to_owned(), reason }),
        }
    }
    Ok(choices)
}

fn jobs(
    choices: Vec<Choice>,
    peers: &[Peer],
    workloads: &[&'static dyn Workload],
    args: &RunArgs,
) -> Vec<Job> {
    let job = |choice: Choice| {
        let has_others = args.has_others(choice.near());
        let serving = peers.iter().filter(|peer| has_others && peer.serves(choice.scheme()));
        let peers = serving.cloned().collect();
        let cases = workloads.iter().flat_map(|workload| {
            workload.cases(&args.plan(), &choice).into_iter().map(|case| (*workload, case))
        });
        Job { cases: cases.collect(), peers, choice }
    };
    choices.into_iter().map(job).collect()
}

impl Run {
    /// Builds the other libraries that there are for these backends.
    async fn build(&mut self, choices: &[Choice], args: &RunArgs) -> Vec<Peer> {
        let mut peers: Vec<Peer> = args.peer.iter().map(GivenProgram::peer).collect();
        for library in &peer::ALL {
            let is_wanted = if library.is_contrast() { args.contrasts() } else { args.peers };
            if !is_wanted || !choices.iter().any(|choice| library.serves(choice.scheme())) {
                continue;
            }
            self.progress.stage(&format!("building {}", library.name));
            match library.build().await {
                Ok(peer) => peers.push(peer),
                Err(reason) => self.report.missing.push(Missing { backend: library.name.to_owned(), reason }),
            }
        }
        peers
    }

    /// One backend. An error means that it could not be measured at all; a case that fails is noted in the
    /// report.
    async fn job(&mut self, job: &Job) -> Result<()> {
        let choice = &job.choice;
        self.progress.stage(&format!("{}: starting", choice.name()));
        let target = choice.start().await?;
        let locks = connect(&target.url).await?;
        let mut floor = Floor::connect(&target.floor).await?;
        let backend = backend(&target, floor.server().await?, floor.what(), &locks.backend().capabilities());
        self.note(backend)?;
        let run = format!("{}-{:x}", std::process::id(), faults::nanos());
        let mut bench = Bench { target, locks, floor, peers: job.peers.clone(), run };
        let mut done = Ok(());
        for (workload, case) in &job.cases {
            if let Some(lacking) =
                workload.about().needs.filter(|needed| !bench.locks.capabilities().promises(*needed))
            {
                self.progress.done();
                self.leave_out(
                    &bench.target.name,
                    &format!("{}: it does not promise {lacking}", workload.name()),
                );
                continue;
            }
            done = self.case(*workload, case, &mut bench).await;
            self.progress.done();
            if done.is_err() {
                break;
            }
        }
        // Also after a lock that did not exclude: the server may be that of others.
        let Bench { target, locks, floor, .. } = bench;
        let closed = locks.close().await;
        let removed = floor.finish().await;
        done?;
        closed?;
        removed?;
        // Blocks for a moment: the server is killed and its folder removed.
        drop(target);
        Ok(())
    }

    /// One case, and on to the disk with it.
    async fn case(&mut self, workload: &dyn Workload, case: &Case, bench: &mut Bench) -> Result<()> {
        let backend = bench.target.name.clone();
        self.progress.stage(&format!("{backend}: {}, {}", workload.name(), case.name));
        let before = Ticks::now();
        let error = match workload.measure(case, bench).await {
            Ok(mut measurement) => {
                (measurement.load, measurement.busy) = (load(), Ticks::now().busy_since(before));
                self.report.results.push(measurement);
                return self.save();
            }
            Err(error) => error,
        };
        let failure = Failure {
            backend,
            workload: workload.name().to_owned(),
            case: case.name.clone(),
            reason: error.to_string(),
        };
        self.progress.say(&format!("{}: {} FAILED: {error}", failure.backend, failure.workload));
        let is_violation = matches!(error, Error::Violation(_));
        if is_violation {
            self.report.violation = Some(failure);
        } else {
            self.report.failures.push(failure);
        }
        self.save()?;
        if is_violation { Err(error) } else { Ok(()) }
    }

    /// Figures of different servers do not come into one file.
    fn note(&mut self, backend: Backend) -> Result<()> {
        let before = self.report.backends.iter().find(|before| before.name == backend.name);
        match before {
            Some(before) if before.is_like(&backend) => Ok(()),
            Some(before) => {
                let (then, now) = (&before.version, &backend.version);
                Err(Error::failed(format!("its server is not the one of before: {then} then, {now} now")))
            }
            None => {
                self.report.backends.push(backend);
                Ok(())
            }
        }
    }

    fn leave_out(&mut self, backend: &str, reason: &str) {
        let missing = Missing { backend: backend.to_owned(), reason: reason.to_owned() };
        if !self.report.missing.contains(&missing) {
            self.progress.say(&format!("not measured: {backend}: {reason}"));
            self.report.missing.push(missing);
        }
    }

    fn save(&mut self) -> Result<()> {
        self.report.took(self.began.elapsed());
        self.began = Instant::now();
        self.file.save(&self.report).map_err(|error| {
            Error::File(format!("{} cannot be written: {error}", self.file.path().display()))
        })
    }
}

fn backend(target: &Target, server: Server, floor: &str, promised: &Capabilities) -> Backend {
    let promises = [
        ("across_hosts", promised.promises(Requirement::AcrossHosts)),
        ("fencing", promised.promises(Requirement::Fencing)),
        ("fifo", promised.promises(Requirement::Fifo)),
        ("push", promised.promises(Requirement::Push)),
        ("herd_free", promised.promises(Requirement::HerdFree)),
        ("loss_push", promised.promises(Requirement::LossPush)),
        ("durable", promised.promises(Requirement::Durable)),
        ("failover_safe", promised.promises(Requirement::FailoverSafe)),
        ("shared", promised.promises(Requirement::Shared)),
        ("permits", promised.promises(Requirement::Permits)),
    ];
    let promises: BTreeMap<_, _> = promises.map(|(name, is_so)| (name.to_owned(), is_so)).into();
    let mut settings: BTreeMap<String, String> =
        server.settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    // The address is kept without its options, and these decide what a grant costs and what it survives.
    for option in ["durability", "wait_replicas", "server_order"] {
        let value = target.parsed.option(option);
        settings.extend(value.map(|value| (format!("client {option}"), value.to_owned())));
    }
    Backend {
        name: target.name.clone(),
        address: target.parsed.to_string(),
        version: server.version,
        settings,
        storage: target.storage.clone(),
        floor: floor.to_owned(),
        promises,
        shortest_lease_us: u64::try_from(promised.min_ttl().as_micros()).unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use clap::Parser;

    use super::*;
    use crate::args::Args;
    use crate::record::tests::report;

    /// The load falls by one at each look.
    async fn after(first: f64) -> Result<f64, String> {
        let now = Cell::new(first + 1.0);
        let load = || now.replace(now.get() - 1.0) - 1.0;
        quiet(load, |load| (load >= 3.0).then(|| format!("{load} is too much")), Duration::ZERO).await
    }

    #[tokio::test]
    async fn a_run_waits_until_the_load_falls() {
        assert_eq!(after(2.0).await, Ok(2.0));
        assert_eq!(after(7.0).await, Ok(2.0));
        assert_eq!(after(f64::from(LOOKS) + 2.0).await, Ok(2.0));
        assert_eq!(after(f64::from(LOOKS) + 3.0).await, Err("3 is too much".to_owned()));
    }

    #[test]
    fn a_run_that_goes_on_keeps_the_larger_load() {
        let load_after = |before, now| {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("it.json");
            ResultFile::create(&path, &Report { load_before: before, ..report() }).unwrap();
            let args = Args::try_parse_from(["c", "--busy", "--resume", path.to_str().unwrap()]).unwrap().run;
            let mut report = Report { load_before: now, ..report() };
            open(&args, &mut report).unwrap();
            report.load_before
        };
        assert_eq!((load_after(0.5, 7.0), load_after(7.0, 0.5)), (7.0, 7.0));
    }
}
