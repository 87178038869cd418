//! One run of one scenario on one backend, from the start of the servers to the verdict.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use lockwell::{LockConfig, Locks};
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::JoinSet;

use super::history::History;
use super::inject::Stage;
use super::result::RunOutcome;
use super::scenario::{Expected, Scenario};
use super::schedule::{Fault, PlannedFault};
use super::servers::{TestServers, worker_clock};
use super::witness::{Guard, Witness};
use super::{checker, excerpt, jobs, judge};
use crate::error::{Error, Result};
use crate::jobs::{Firing, Notes, Stored};
use crate::made::Made;
use crate::plan::Work;
use crate::post::Post;
use crate::run::Run;
use crate::time::{micros, nanos, nanos_of};

/// For how long it goes on after the last fault and all that may follow from it.
///
/// Attempts that are given up cover about a third of the time of a lock that nobody gets, and the rest of
/// what is judged must be longer than the bound.
const CALM: Duration = Duration::from_secs(5);

/// What is known of the workers when they have ended.
#[derive(Debug)]
struct Ended {
    /// Who was killed on purpose.
    killed: Vec<u32>,
    /// When the others were told to end.
    until: u64,
    /// Those that did not end, panicked or crashed, in words.
    badly: Vec<String>,
}

impl Run<'_> {
    /// Plays it.
    pub(crate) async fn play(&self, expected: Expected) -> Result<RunOutcome> {
        let schedule = self.schedule();
        let servers = TestServers::start(self.kind, self.scenario.memory, self.scenario.setup).await?;
        let path = self.folder.join("witness");
        let witness = Witness::start(&path, Guard::default())?;
        let stage = self.assemble(servers, &schedule, &path).await?;
        let began = nanos();
        let Ended { killed, until, badly } = self.perform(&stage, &schedule).await?;
        // An error in this must not hide what can be seen without it.
        let (mut left_behind, mut history, mut notes) = (Vec::new(), History::default(), Notes::default());
        let looked = quiet(&stage, &mut left_behind).await;
        let looked = looked.and(self.read(&mut history, &mut notes));
        let stored = if self.scenario.crew.jobs { stored(&stage).await } else { Ok(BTreeMap::new()) };
        let mut happened = stage.happened.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let deprived = stage.deprived.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let rules = judge::rules(self, &happened, deprived, until);
        let mut findings = checker::check(&history, &rules);
        jobs::effects(&notes, &mut happened);
        let looked = looked.and(stored.map(|stored| jobs::check(&notes, &stored, &mut findings)));
        findings.left_behind = u64::try_from(left_behind.len()).unwrap_or(u64::MAX);
        findings.ended_badly = u64::try_from(badly.len()).unwrap_or(u64::MAX);
        findings.examples.extend(badly.into_iter().chain(left_behind));
        findings
            .examples
            .extend(looked.as_ref().err().map(|error| format!("not all was looked at: {error}")));
        let testimony = witness.testimony();
        let mut counts = judge::counts(self.scenario.crew.pauses, &history, &testimony, &happened, &killed);
        jobs::count(&notes, &mut counts);
        let verdict = judge::verdict(expected, &findings, &testimony, &counts, &happened);
        let verdict = judge::unless_unseen(verdict, looked)?;
        let excerpt = excerpt::of(&history, &happened, began, nanos_of(self.kind.ttl()));
        Ok(RunOutcome {
            scenario: self.scenario.name.to_owned(),
            backend: self.kind.name().to_owned(),
            seed: self.seed,
            made: Made::default(),
            expected,
            verdict,
            seconds: Duration::from_nanos(nanos() - began).as_secs_f64(),
            counts,
            findings,
            began,
            happened,
            excerpt,
        })
    }

    /// Adds what the workers have noted: of all of them, also if one has crashed before it noted anything.
    fn read(&self, history: &mut History, notes: &mut Notes) -> Result<()> {
        let mut all = Ok(());
        for worker in 0..self.scenario.crew.workers {
            if self.scenario.crew.jobs {
                all = all.and(notes.read(worker, &self.history(worker)));
                continue;
            }
            let text = std::fs::read_to_string(self.history(worker)).map_err(Error::from);
            all = all.and(text.and_then(|text| history.read(worker, &text)));
        }
        all
    }

    /// For how long it goes on after the last fault.
    fn calm(&self) -> Duration {
        self.scenario.setup.grace() + self.kind.ttl() + judge::BOUND + CALM
    }

    fn history(&self, worker: u32) -> std::path::PathBuf {
        self.folder.join(format!("worker-{worker}"))
    }

    fn work(&self, worker: u32, witness: &Path, prefix: &str) -> Work {
        let crew = self.scenario.crew;
        let (mutex, readers, permits) = (vec![0], vec![0, -1, -1], vec![2]);
        let modes = match (crew.all_modes, self.kind.has_permits()) {
            (false, _) => vec![mutex],
            (true, true) => vec![mutex, readers, permits],
            (true, false) => vec![mutex, readers],
        };
        Work {
            worker,
            prefix: prefix.to_owned(),
            crew,
            modes,
            ttl: micros(self.kind.ttl()),
            wait: micros(self.kind.ttl() * 2),
            seed: self.seed,
            history: self.history(worker),
            witness: witness.to_owned(),
        }
    }

    /// Starts the workers, each with its own way to the servers.
    async fn assemble(
        &self,
        servers: TestServers,
        schedule: &[PlannedFault],
        witness: &Path,
    ) -> Result<Arc<Stage>> {
        let prefix = format!("faults/{}/{:08x}", self.scenario.name, rand::random::<u32>());
        let (mut lines, mut posts) = (Vec::new(), Vec::new());
        for worker in 0..self.scenario.crew.workers {
            let line = servers.line().await?;
            let work = self.work(worker, witness, &prefix);
            let clocks = servers.clocks.as_ref();
            let clock = clocks.map(|clocks| clocks.environment(&worker_clock(worker))).transpose()?;
            let environment = clock.map_or_else(Vec::new, Vec::from);
            posts.push(Post::fill(self.kind, &line.url, work, environment).await?);
            lines.push(line);
        }
        for post in &posts {
            post.ready().await?;
        }
        let operator = if Scenario::has_operator(schedule) { Some(operator(&servers).await?) } else { None };
        let names = self.work(0, witness, &prefix).names();
        let turns = servers.nodes.iter().map(|_| tokio::sync::Mutex::default()).collect();
        let line_turns = lines.iter().map(|_| tokio::sync::Mutex::default()).collect();
        let stage = Stage {
            servers,
            turns,
            line_turns,
            lines,
            posts,
            names,
            operator,
            chosen: Mutex::default(),
            hung: Mutex::default(),
            deprived: Mutex::default(),
            happened: Mutex::default(),
        };
        Ok(Arc::new(stage))
    }

    /// Lets the workers work and the faults happen. However a worker ends, that is no error of the run.
    async fn perform(&self, stage: &Arc<Stage>, schedule: &[PlannedFault]) -> Result<Ended> {
        for post in &stage.posts {
            post.begin().await;
        }
        let begun = tokio::time::Instant::now();
        let watch = self.scenario.crew.pauses.then(|| {
            let ids: Vec<u32> = stage.posts.iter().filter_map(Post::id).collect();
            // Ends with this, also where a part of the run fails.
            let mut watch = JoinSet::new();
            watch.spawn(go_on(ids, self.kind.ttl() * 2));
            watch
        });
        let mut faults = JoinSet::new();
        for &planned in schedule {
            let stage = Arc::clone(stage);
            faults.spawn(async move {
                tokio::time::sleep_until(begun + Duration::from_millis(planned.at)).await;
                stage.inject(planned).await
            });
        }
        while let Some(done) = faults.join_next().await {
            done??;
        }
        let is_killed = |planned: &PlannedFault| match planned.fault {
            Fault::KillWorker { worker } => Some(worker),
            _ => None,
        };
        let killed: Vec<u32> = schedule.iter().filter_map(is_killed).collect();
        // Faults may have taken longer than planned, as the start of a server does on a busy machine.
        let calm = if schedule.is_empty() { Duration::ZERO } else { self.calm() };
        let least = begun + Duration::from_millis(self.scenario.crew.least);
        tokio::time::sleep_until(least.max(tokio::time::Instant::now() + calm)).await;
        let until = nanos();
        for post in &stage.posts {
            post.stop().await;
        }
        // At once, since each that hangs takes all of that time.
        let ends = (0..).zip(&stage.posts).map(|(number, post)| post.finish(killed.contains(&number)));
        let ends = join_all(ends).await;
        drop(watch);
        let wrong = (0..).zip(ends).flat_map(|(number, ends)| ends.into_iter().map(move |end| (number, end)));
        let badly = wrong.map(|(number, end): (u32, String)| format!("worker {number}: {end}")).collect();
        Ok(Ended { killed, until, badly })
    }
}

/// Lets processes that have stopped themselves go on after this time. One may stop again at once.
async fn go_on(ids: Vec<u32>, after: Duration) {
    let mut stopped: BTreeMap<u32, tokio::time::Instant> = BTreeMap::new();
    loop {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let now = tokio::time::Instant::now();
        for &id in &ids {
            let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
            let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
            if state == Some('T') && now > *stopped.entry(id).or_insert(now) + after {
                stopped.remove(&id);
                if let Some(id) = i32::try_from(id).ok().and_then(Pid::from_raw) {
                    // It may have ended meanwhile.
                    kill_process(id, Signal::CONT).ok();
                }
            }
        }
    }
}

/// A client with nothing in between.
async fn operator(servers: &TestServers) -> Result<Locks> {
    Ok(lockwell::connect_with(LockConfig::new(servers.direct()).ttl(servers.kind.ttl())).await?)
}

/// Waits until the locks are free and nobody waits for them, for as long as it may take. Adds what is left
/// behind.
async fn quiet(stage: &Stage, all: &mut Vec<String>) -> Result<()> {
    let locks = operator(&stage.servers).await?;
    let end = tokio::time::Instant::now() + stage.servers.kind.ttl() + judge::BOUND * 2;
    *all = loop {
        let left = left_behind(&locks, &stage.names).await;
        let is_over = tokio::time::Instant::now() > end;
        match left {
            Ok(left) if left.is_empty() || is_over => break left,
            // A server that is not ready yet.
            Err(error) if is_over => return Err(error),
            _ => (),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    locks.close().await?;
    Ok(())
}

/// What is stored of the jobs.
async fn stored(stage: &Stage) -> Result<BTreeMap<Firing, Stored>> {
    let locks = operator(&stage.servers).await?;
    let stored = jobs::stored(&locks, &stage.names).await?;
    locks.close().await?;
    Ok(stored)
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

#[cfg(test)]
mod tests {
    use super::super::history::{Ask, End, Hold, Miss, Who, Why};
    use super::super::inject::Happened;
    use super::super::kind::Kind;
    use super::*;
    use crate::table;

    const SECOND: u64 = 1_000_000_000;

    /// What a run has noted in which a lock was free from a fault on, and everybody waited for it in vain.
    fn stuck(run: &Run<'_>, happened: &Happened, until: u64) -> History {
        let ask = |task, asked| Ask {
            who: Who { worker: 0, task },
            lock: 0,
            mode: lockwell::Mode::Exclusive,
            asked,
        };
        let before = happened.from - SECOND;
        let last = Hold {
            ask: ask(0, before - 10),
            token: 1,
            from: before,
            until: before + 10,
            end: End::Released,
            called: before + 10,
            answered: before + 20,
            told_late: 0,
        };
        let wait = nanos_of(run.kind.ttl() * 2);
        let mut misses = Vec::new();
        for task in 0..2 {
            let mut asked = before + 30 + u64::from(task) * wait / 2;
            while asked < until {
                misses.push(Miss { ask: ask(task, asked), answered: asked + wait, why: Why::TimedOut });
                asked += wait + 10;
            }
        }
        History { holds: vec![last], misses, ..History::default() }
    }

    #[test]
    fn what_a_worker_noted_is_read_though_another_has_left_nothing() {
        let scenario = table::all().find(|one| one.name == "server-killed").expect("it is in the table");
        let folder = tempfile::tempdir().expect("a folder");
        let run = Run { scenario, kind: Kind::Redis, seed: 1, folder: folder.path() };
        let noted = r#"{"task":0,"event":"missed","lock":2,"mode":0,"asked":10,"answered":20,"why":"held"}"#;
        std::fs::write(run.history(1), format!("{noted}\n{{\"task\"")).expect("it is written");
        let mut history = History::default();
        assert!(run.read(&mut history, &mut Notes::default()).is_err());
        assert_eq!(history.operations(), 1);
    }

    #[test]
    fn a_run_is_long_enough_to_show_that_a_lock_is_withheld() {
        let scenario = table::all().find(|one| one.name == "server-killed").expect("it is in the table");
        for kind in Kind::ALL {
            let run = Run { scenario, kind, seed: 1, folder: Path::new("") };
            let fault = Fault::KillServer { node: 0, millis: 0 };
            let (from, ended) = (20 * SECOND, 21 * SECOND);
            let planned = PlannedFault { at: 0, fault };
            let happened =
                Happened { planned, from, until: ended, inner_from: from, inner_until: ended, effect: None };
            let until = ended + nanos_of(run.calm());
            let history = stuck(&run, &happened, until);
            let findings = checker::check(&history, &judge::rules(&run, &[happened], Vec::new(), until));
            assert!(findings.late_grants > 0, "{kind:?}: {findings:?}");
        }
    }
}
