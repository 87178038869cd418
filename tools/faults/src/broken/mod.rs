//! Locks that are broken on purpose: each is caught, every time, or the checker proves nothing.
//!
//! The same workers that the scenarios have work with them, the same witnesses watch, and the same checker
//! reads what they noted. Each lock is right but for one thing; the same lock without the defect comes out
//! clean.

mod client;
mod defect;
mod queue;
mod server;
mod votes;

use std::sync::Arc;
use std::time::Duration;

use lockwell::Locks;
use tokio::task::JoinSet;

use self::defect::{Defect, Sign};
use super::checker;
use super::history::History;
use super::schedule::{Fault, PlannedFault};
use super::soak::shrink::shrink;
use super::witness::{Guard, Testimony, Witness};
use super::work::work;
use crate::checker::rules::{Deprived, Findings, Rules, Span};
use crate::plan::{Crew, Until, Work};
use crate::time::{micros, millis, nanos, nanos_of};

/// So many times each is tried.
const TIMES: u64 = 20;
/// So many times more, if one of them shows nothing.
const AGAIN: u64 = 2;

/// The length of the leases.
const TTL: Duration = Duration::from_millis(60);

/// For how long a lock is tried, in steps: where each comes late, since the machine is busy, the workers do
/// less, and go on for longer.
const LENGTH: Duration = Duration::from_millis(1200);
const STEP: Duration = Duration::from_millis(10);

/// How long a free lock may be withheld.
const BOUND: Duration = Duration::from_millis(1500);

/// What a run has shown.
#[derive(Debug)]
struct Shown {
    findings: Findings,
    testimony: Testimony,
    operations: u64,
}

impl Shown {
    fn has(&self, sign: Sign) -> bool {
        let number = match sign {
            Sign::Overlap => self.findings.overlaps,
            Sign::Token => self.findings.tokens_twice + self.findings.tokens_fallen,
            Sign::Withheld => self.findings.late_grants + self.findings.left_behind,
            Sign::Taken => self.findings.taken,
            Sign::RanOut => self.findings.ran_out,
            Sign::GuardedLoss => self.testimony.guarded_lost,
        };
        number > 0
    }
}

/// The faults that a defect needs to show itself: an operator who frees the lock that is held for long.
fn usual(defect: Defect) -> Vec<PlannedFault> {
    let each = 70;
    let number = if defect.needs_an_operator() { millis(LENGTH) / each } else { 0 };
    let free = |turn| PlannedFault { at: turn * each, fault: Fault::ForceRelease { lock: 1 } };
    (1..=number).map(free).collect()
}

/// Lets two workers work with a lock that has this defect. Of faults, those of an operator are carried out,
/// and the others are nothing to a lock in this process.
async fn show(defect: Defect, seed: u64, faults: Vec<PlannedFault>) -> Shown {
    let folder = tempfile::tempdir().unwrap();
    let guard = if defect == Defect::GuardTakesEqualTokens { Guard::NotLower } else { Guard::ByOwner };
    let path = folder.path().join("witness");
    let witness = Witness::start(&path, guard).unwrap();
    let backend = defect::lock(defect);
    let until = Until::later();
    let mut workers = JoinSet::new();
    let crew = Crew {
        workers: 2,
        tasks: 8,
        locks: 1,
        all_modes: false,
        long: (60, 400),
        cancelled: if defect.needs_cancellation() { 70 } else { 0 },
        impatient: 0,
        dropped: 0,
        ..Crew::USUAL
    };
    let histories: Vec<_> =
        (0..crew.workers).map(|worker| folder.path().join(format!("worker-{worker}"))).collect();
    for (worker, history) in histories.iter().enumerate() {
        let locks = Locks::new(Arc::clone(&backend)).unwrap().server_order();
        let what = Work {
            worker: u32::try_from(worker).unwrap(),
            prefix: "broken".to_owned(),
            crew,
            modes: vec![vec![0]],
            ttl: micros(TTL),
            wait: micros(Duration::from_secs(2)),
            seed,
            history: history.clone(),
            witness: path.clone(),
        };
        let until = until.clone();
        workers.spawn(async move {
            work(&locks, &what, &until).await.unwrap();
            locks.close_within(Duration::from_secs(1)).await.ok();
        });
    }
    let begun = tokio::time::Instant::now();
    let planned = async {
        let mut deprived = Vec::new();
        for planned in faults {
            tokio::time::sleep_until(begun + Duration::from_millis(planned.at)).await;
            if let Fault::ForceRelease { lock } = planned.fault {
                let name = lockwell::LockName::new(format!("broken/{lock}")).unwrap();
                let from = nanos();
                let holders = u64::try_from(backend.force_release(&name).await.unwrap()).unwrap();
                deprived.push(Deprived { lock, span: Span { from, until: nanos() }, holders });
            }
        }
        deprived
    };
    let wait = async {
        for _ in 0..LENGTH.as_millis() / STEP.as_millis() {
            tokio::time::sleep(STEP).await;
        }
    };
    let (deprived, ()) = tokio::join!(planned, wait);
    until.now();
    while let Some(done) = workers.join_next().await {
        done.unwrap();
    }
    let mut history = History::default();
    for (worker, path) in histories.iter().enumerate() {
        let text = std::fs::read_to_string(path).unwrap();
        history.read(u32::try_from(worker).unwrap(), &text).unwrap();
    }
    let rules = Rules { ttl: nanos_of(TTL), bound: nanos_of(BOUND), deprived, ..Rules::default() };
    let mut findings = checker::check(&history, &rules);
    for name in ["broken/0", "broken/1"] {
        let name = lockwell::LockName::new(name).unwrap();
        findings.left_behind += u64::from(backend.inspect(&name).await.unwrap().is_held());
    }
    Shown { findings, testimony: witness.testimony(), operations: history.operations() }
}

/// Tries a defect so many times, some at once: most of the time they sleep.
async fn tried(defect: Defect) -> Vec<Shown> {
    let mut shown = Vec::new();
    let seeds: Vec<u64> = (0..TIMES).collect();
    for some in seeds.chunks(10) {
        let mut runs = JoinSet::new();
        for &seed in some {
            runs.spawn(show(defect, seed, usual(defect)));
        }
        shown.extend(runs.join_all().await);
    }
    shown
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_broken_lock_is_caught_every_time() {
    let mut missed = Vec::new();
    for &(defect, sign) in defect::ALL {
        let shown = tried(defect).await;
        let caught = shown.iter().filter(|one| one.has(sign)).count();
        let operations: u64 = shown.iter().map(|one| one.operations).sum();
        println!("{defect:?}: {sign:?} in {caught} of {TIMES}, {operations} operations");
        for one in shown.iter().filter(|one| !one.has(sign)) {
            // On a busy machine the workers may have met too seldom.
            let mut again = false;
            for seed in TIMES..TIMES + AGAIN {
                again = again || show(defect, seed, usual(defect)).await.has(sign);
            }
            if !again {
                missed.push(format!("{defect:?} was caught in {caught} of {TIMES}: {one:?}"));
            }
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

/// The same locks without a defect: what is found is the defect, and not the lock that it is in.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_same_locks_without_a_defect_are_clean() {
    for defect in [Defect::None, Defect::NoneByQueue, Defect::NoneByVotes] {
        for shown in tried(defect).await {
            let is_clean = shown.findings.is_clean() && shown.testimony.guarded_lost == 0;
            assert!(is_clean && shown.operations > 10, "{defect:?}: {shown:?}");
        }
    }
}

/// Two who have one token: the guard that binds it to its owner loses nothing, and the wrong guard does.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_guard_bears_equal_tokens() {
    for shown in tried(Defect::TokenTwice).await {
        assert!(shown.has(Sign::Overlap) && shown.has(Sign::Token), "{shown:?}");
        assert_eq!(shown.testimony.guarded_lost, 0, "{shown:?}");
    }
}

/// Of eight faults, the operator's ones are what a lock that repeats them does not survive.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn faults_are_shrunk_to_those_that_matter() {
    let harmless = |at| PlannedFault { at, fault: Fault::Reset { worker: 0 } };
    let free = |at| PlannedFault { at, fault: Fault::ForceRelease { lock: 1 } };
    let all: Vec<PlannedFault> = (0..8)
        .map(|turn| if turn % 4 == 1 { free(150 + turn * 100) } else { harmless(150 + turn * 100) })
        .collect();
    let mut asked = 0;
    let kept = shrink(all.len(), 30, async |numbers: &[usize]| {
        asked += 1;
        let mut runs = JoinSet::new();
        for seed in 0..6 {
            let some = numbers.iter().map(|number| all[*number]).collect();
            runs.spawn(show(Defect::ForceRepeated, seed, some));
        }
        runs.join_all().await.iter().any(|shown| shown.has(Sign::Taken))
    })
    .await;
    let are_freeing = kept.iter().all(|number| matches!(all[*number].fault, Fault::ForceRelease { .. }));
    assert!(!kept.is_empty() && are_freeing, "{kept:?} after {asked} questions");
}
