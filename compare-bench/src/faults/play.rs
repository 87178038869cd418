//! One run of one scenario on one backend, from the start of the servers to the verdict.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockwell::{LockConfig, Locks};
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::JoinSet;

use super::checker::{self, Findings, Outage, Rules, Span};
use super::ground::{Ground, Kind};
use super::habit::Habit;
use super::history::{End, History};
use super::nanos;
use super::result::{Counts, Outcome, Verdict};
use super::scenario::{Expected, Scenario};
use super::schedule::{Fault, Strike};
use super::strike::{Happened, Stage};
use super::witness::{Guard, Testimony, Witness};
use super::work::Work;
use super::worker::Worker;
use crate::error::{Error, Result};

/// The length of the leases.
const TTL: Duration = Duration::from_millis(1500);

/// How long a free lock may be withheld from those who wait. Behind each notification stands a look, at the latest after
/// 1.3 s on most backends; the rest is for a busy machine.
const BOUND: Duration = Duration::from_secs(4);

/// A waiter that asked so much earlier than another was the first of them at the server.
const ORDER: Duration = Duration::from_millis(1500);

/// For how long it goes on after the last fault and all that may follow from it.
const CALM: Duration = Duration::from_millis(2500);

/// How long the workers may take to come to an end.
const TIMEOUT: Duration = Duration::from_secs(40);

/// How many operations a run has at least to say anything.
const LEAST: u64 = 50;

/// One run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) kind: Kind,
    pub(crate) seed: u64,
    /// Where the histories go.
    pub(crate) folder: &'a Path,
}

impl Run<'_> {
    /// The faults that this run has.
    fn schedule(&self) -> Vec<Strike> {
        self.scenario.schedule(self.seed, self.kind, millis(TTL))
    }

    /// Plays it.
    pub(crate) async fn play(&self, expected: Expected) -> Result<Outcome> {
        let schedule = self.schedule();
        let ground = Ground::start(self.kind, self.scenario.memory).await?;
        let path = self.folder.join("witness");
        let witness = Witness::start(&path, Guard::default())?;
        let (stage, workers) = self.assemble(ground, &schedule, &path).await?;
        let began = nanos();
        let (killed, until) = self.perform(&stage, workers, &schedule).await?;
        let left_behind = quiet(&stage).await?;
        let mut history = History::default();
        for worker in 0..self.scenario.crew.workers {
            let text = std::fs::read_to_string(self.history(worker))?;
            history.read(worker, &text)?;
        }
        let happened = stage.happened.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let deprived = stage.deprived.load(Ordering::SeqCst);
        let rules = self.rules(&happened, deprived, until);
        let mut findings = checker::check(&history, &rules);
        findings.left_behind = u64::try_from(left_behind.len()).unwrap_or(u64::MAX);
        findings.examples.extend(left_behind);
        let testimony = witness.testimony();
        let counts = counts(&history, &testimony, &happened, &killed);
        let verdict = verdict(expected, &findings, &testimony, &counts);
        Ok(Outcome {
            scenario: self.scenario.name.to_owned(),
            backend: self.kind.name().to_owned(),
            seed: self.seed,
            expected,
            verdict,
            seconds: Duration::from_nanos(nanos() - began).as_secs_f64(),
            counts,
            findings,
            began,
            happened,
        })
    }

    fn history(&self, worker: u32) -> std::path::PathBuf {
        self.folder.join(format!("worker-{worker}"))
    }

    fn work(&self, worker: u32, witness: &Path, prefix: &str) -> Work {
        let crew = &self.scenario.crew;
        let (mutex, readers, permits) = (vec![0], vec![0, -1, -1], vec![2]);
        let modes = match (crew.all_modes, self.kind.has_permits()) {
            (false, _) => vec![mutex],
            (true, true) => vec![mutex, readers, permits],
            (true, false) => vec![mutex, readers],
        };
        Work {
            worker,
            prefix: prefix.to_owned(),
            locks: crew.locks,
            tasks: crew.tasks,
            modes,
            ttl: micros(TTL),
            wait: micros(TTL * 2),
            hold: crew.hold,
            long: (crew.long.0, micros(TTL) * crew.long.1 / 100),
            cancelled: crew.cancelled,
            impatient: crew.impatient,
            dropped: crew.dropped,
            habit: crew.habit,
            seed: self.seed,
            history: self.history(worker),
            witness: witness.to_owned(),
        }
    }

    /// Starts the workers, each with its own way to the servers.
    async fn assemble(
        &self,
        ground: Ground,
        schedule: &[Strike],
        witness: &Path,
    ) -> Result<(Arc<Stage>, Vec<Worker>)> {
        let prefix = format!("faults/{}/{:08x}", self.scenario.name, rand::random::<u32>());
        let (mut lines, mut workers) = (Vec::new(), Vec::new());
        for worker in 0..self.scenario.crew.workers {
            let line = ground.line().await?;
            let work = self.work(worker, witness, &prefix);
            workers.push(match self.kind {
                Kind::Memory => Worker::tasks(&line.url, work).await?,
                _ => Worker::process(&line.url, work).await?,
            });
            lines.push(line);
        }
        for worker in &mut workers {
            worker.ready().await?;
        }
        let operator = if Scenario::has_operator(schedule) { Some(operator(&ground).await?) } else { None };
        let names = (0..2 * self.scenario.crew.locks).map(|lock| format!("{prefix}/{lock}")).collect();
        let stage = Stage {
            ground,
            lines,
            workers: workers.iter().map(Worker::id).collect(),
            names,
            operator,
            deprived: AtomicU64::new(0),
            happened: Mutex::default(),
        };
        Ok((Arc::new(stage), workers))
    }

    /// Lets the workers work and the faults happen. Returns who was killed, and when they were told to end.
    async fn perform(
        &self,
        stage: &Arc<Stage>,
        mut workers: Vec<Worker>,
        schedule: &[Strike],
    ) -> Result<(Vec<u32>, u64)> {
        for worker in &mut workers {
            worker.begin().await?;
        }
        let begun = tokio::time::Instant::now();
        let watch = (self.scenario.crew.habit == Habit::PausesBeforeWrite).then(|| {
            let ids: Vec<u32> = stage.workers.iter().flatten().copied().collect();
            tokio::spawn(go_on(ids))
        });
        let mut strikes = JoinSet::new();
        for &strike in schedule {
            let stage = Arc::clone(stage);
            strikes.spawn(async move {
                tokio::time::sleep_until(begun + Duration::from_millis(strike.at)).await;
                stage.strike(strike).await
            });
        }
        while let Some(done) = strikes.join_next().await {
            done??;
        }
        let is_killed = |strike: &Strike| match strike.fault {
            Fault::KillWorker { worker } => Some(worker),
            _ => None,
        };
        let killed: Vec<u32> = schedule.iter().filter_map(is_killed).collect();
        // Faults may have taken longer than planned, as the start of a server does on a busy machine.
        let calm = if schedule.is_empty() { Duration::ZERO } else { TTL + BOUND + CALM };
        let least = begun + Duration::from_millis(self.scenario.crew.least);
        tokio::time::sleep_until(least.max(tokio::time::Instant::now() + calm)).await;
        let until = nanos();
        for worker in &mut workers {
            worker.stop().await;
        }
        for (number, worker) in workers.into_iter().enumerate() {
            let was_killed = killed.iter().any(|one| *one as usize == number);
            worker.finish(was_killed, TIMEOUT).await?;
        }
        if let Some(watch) = watch {
            watch.abort();
        }
        Ok((killed, until))
    }

    fn rules(&self, happened: &[Happened], deprived: u64, until: u64) -> Rules {
        let span = |one: &Happened| Span { from: one.from, until: one.until };
        let mut faults: Vec<Span> = happened.iter().map(span).collect();
        // At the end everybody leaves, at a different moment each.
        faults.push(Span { from: until, until: u64::MAX });
        if self.scenario.crew.habit == Habit::PausesBeforeWrite {
            faults.push(Span { from: 0, until: u64::MAX });
        }
        let nodes = self.kind.nodes();
        let outages = happened.iter().filter_map(|one| {
            let worker = match one.strike.fault {
                Fault::Blackhole { worker, .. } | Fault::Cut { worker, .. } => Some(worker),
                Fault::KillAll { .. } => None,
                Fault::PauseServer { .. } | Fault::KillServer { .. } if nodes == 1 => None,
                _ => return None,
            };
            Some(Outage { span: Span { from: one.inner_from, until: one.inner_until }, worker })
        });
        // In the first moments, with readers who come in together, order says nothing.
        let in_order = self.kind.is_in_order().then(|| nanos_of(ORDER));
        Rules {
            ttl: nanos_of(TTL),
            bound: nanos_of(BOUND),
            in_order,
            outages: outages.collect(),
            faults,
            deprived,
        }
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

fn nanos_of(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Lets processes that have stopped themselves go on after two leases.
async fn go_on(ids: Vec<u32>) {
    let mut waiting: JoinSet<()> = JoinSet::new();
    let mut stopped: Vec<u32> = Vec::new();
    loop {
        tokio::time::sleep(Duration::from_millis(20)).await;
        for &id in &ids {
            let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
            let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
            let (is_stopped, is_known) = (state == Some('T'), stopped.contains(&id));
            if !is_stopped {
                stopped.retain(|other| *other != id);
            }
            if is_stopped && !is_known {
                stopped.push(id);
                waiting.spawn(async move {
                    tokio::time::sleep(TTL * 2).await;
                    if let Some(id) = i32::try_from(id).ok().and_then(Pid::from_raw) {
                        // It may have ended meanwhile.
                        kill_process(id, Signal::CONT).ok();
                    }
                });
            }
        }
    }
}

/// A client with nothing in between.
async fn operator(ground: &Ground) -> Result<Locks> {
    Ok(lockwell::connect_with(LockConfig::new(ground.direct()).ttl(TTL)).await?)
}

/// Waits until the locks are free and nobody waits for them, for as long as it may take. Returns what is left behind.
async fn quiet(stage: &Stage) -> Result<Vec<String>> {
    let locks = operator(&stage.ground).await?;
    let end = tokio::time::Instant::now() + TTL + BOUND * 2;
    let left = loop {
        let left = left_behind(&locks, &stage.names).await?;
        if left.is_empty() || tokio::time::Instant::now() > end {
            break left;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    locks.close().await?;
    Ok(left)
}

async fn left_behind(locks: &Locks, names: &[String]) -> Result<Vec<String>> {
    let mut left = Vec::new();
    for name in names {
        let status = locks.inspect(name.as_str()).await?;
        if status.is_held() || status.waiters > 0 {
            let (holders, waiters) = (status.holders.len(), status.waiters);
            left.push(format!("left behind: {name} has {holders} holders and {waiters} waiters"));
        }
    }
    Ok(left)
}

fn counts(history: &History, testimony: &Testimony, happened: &[Happened], killed: &[u32]) -> Counts {
    let ended = |end| {
        let number = history.holds.iter().filter(|hold| hold.end == end).count();
        u64::try_from(number).unwrap_or(u64::MAX)
    };
    // From the death of a holder to the next grant of what it held.
    let deaths = happened.iter().filter_map(|one| match one.strike.fault {
        Fault::KillWorker { worker } if killed.contains(&worker) => Some((worker, one.from)),
        _ => None,
    });
    let mut recovery = Vec::new();
    for (worker, at) in deaths {
        let held = |hold: &&super::history::Hold| {
            hold.end == End::Unfinished
                && hold.ask.who.worker == worker
                && hold.ask.mode == lockwell::Mode::Exclusive
        };
        for dead in history.holds.iter().filter(held) {
            let later = history.holds.iter().filter(|hold| hold.ask.lock == dead.ask.lock && hold.from > at);
            recovery.extend(later.map(|hold| hold.from - at).min());
        }
    }
    let mut late: Vec<u64> =
        history.holds.iter().map(|hold| hold.told_late).filter(|late| *late > 0).collect();
    late.sort_unstable();
    Counts {
        operations: history.operations(),
        grants: u64::try_from(history.holds.len()).unwrap_or(u64::MAX),
        expired: ended(End::Expired),
        taken: ended(End::Taken),
        unknown: ended(End::Unknown),
        unfinished: ended(End::Unfinished),
        errors: history.errors.clone(),
        unguarded_writes: testimony.plain_writes,
        unguarded_lost: testimony.plain_lost,
        guarded_writes: testimony.guarded_writes,
        guarded_lost: testimony.guarded_lost,
        refused: testimony.refused,
        recovery_ms: recovery.iter().max().map(|nanos| nanos / 1_000_000),
        told_late_us: late.last().map(|nanos| nanos / 1000),
        told: u64::try_from(late.len()).unwrap_or(u64::MAX),
    }
}

fn verdict(expected: Expected, findings: &Findings, testimony: &Testimony, counts: &Counts) -> Verdict {
    let mut reasons: Vec<String> =
        findings.wrong().into_iter().map(|(number, what)| format!("{number} {what}")).collect();
    if expected != Expected::MayOverlap {
        let what = findings.unsafe_ones().into_iter();
        reasons.extend(what.map(|(number, what)| format!("{number} {what}")));
    }
    if testimony.guarded_lost > 0 {
        reasons.push(format!("{} writes lost at the guarded witness", testimony.guarded_lost));
    }
    match (reasons.is_empty(), counts.operations < LEAST) {
        (false, _) => Verdict::Otherwise { reasons },
        (true, false) => Verdict::AsExpected,
        (true, true) => {
            Verdict::NotRun { why: format!("only {} operations, which says nothing", counts.operations) }
        }
    }
}

/// A failure of the machinery itself, which says nothing about the lock.
pub(crate) fn failure(run: &Run<'_>, expected: Expected, error: &Error) -> Outcome {
    Outcome {
        scenario: run.scenario.name.to_owned(),
        backend: run.kind.name().to_owned(),
        seed: run.seed,
        expected,
        verdict: Verdict::NotRun { why: error.to_string() },
        seconds: 0.0,
        counts: Counts::default(),
        findings: Findings::default(),
        began: 0,
        happened: Vec::new(),
    }
}
