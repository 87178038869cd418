//! Locks that are broken on purpose, one for each sign by which the checker tells: each is caught every time,
//! or the checker proves nothing.
//!
//! The same workers that the scenarios have work with them, the same witnesses watch, and the same checker
//! reads what they noted. Each lock is right but for one thing; the same lock without it comes out clean.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockwell::backend::{
    Claim, DistributedLock, Grant, Moment, OwnerId, Released, Renewal, Requirement, async_trait, valid_until,
};
use lockwell::{
    Capabilities, Error, ErrorKind, FencingToken, Holder, LockName, LockStatus, Locks, Mode, Result,
};
use tokio::task::JoinSet;

use super::checker;
use super::history::History;
use super::witness::{Guard, Testimony, Witness};
use super::work::work;
use crate::checker::rules::{Deprived, Findings, Rules, Span};
use crate::plan::{Crew, Until, Work};
use crate::time::{micros, nanos, nanos_of};

/// So many times each is tried, and so many times more if one of them shows nothing: on a busy machine the
/// workers may have met too seldom.
const TIMES: u64 = 10;
const AGAIN: u64 = 2;

/// The length of the leases.
const TTL: Duration = Duration::from_millis(60);

/// For how long a lock is tried, in steps: where each comes late, since the machine is busy, the workers do
/// less, and go on for longer.
const STEP: Duration = Duration::from_millis(10);
const STEPS: u32 = 120;

/// Between two times that an operator frees the lock, in steps.
const EACH: u32 = 7;

/// How long a free lock may be withheld.
const BOUND: Duration = Duration::from_millis(1500);

/// Between two questions of a client.
const PAUSE: Duration = Duration::from_millis(1);

/// How long a request or an answer takes, where that matters.
const WAY: Duration = Duration::from_millis(3);

/// What is wrong with a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    /// Half of the clients judge leases by clocks that are ahead: two hold the lock.
    ClientsWallClock,
    /// Two are granted the lock with one token, as after a failover.
    TokenTwice,
    /// The same, and the guard takes a token that is not lower than the highest.
    GuardTakesEqualTokens,
    /// What was granted to somebody who has gone is not given back: a free lock is withheld.
    NoCleanUp,
    /// The operator's request is sent three times, and takes the lock from whoever holds it each time.
    ForceRepeated,
    /// No renewal arrives, though nothing is in its way: a lease runs out.
    NotRenewed,
    /// Nothing.
    None,
}

/// The row of a lock at the server.
#[derive(Clone, Copy, Debug)]
struct Row {
    owner: Option<OwnerId>,
    until: Moment,
    token: u64,
}

impl Row {
    fn is_held(&self, now: Moment) -> bool {
        self.owner.is_some() && self.until > now
    }
}

/// A lock at one server, which is asked again and again until the lock is free.
#[derive(Clone, Debug)]
struct Broken {
    defect: Defect,
    rows: Arc<Mutex<HashMap<LockName, Row>>>,
}

impl Broken {
    /// Does something with a row, all at once.
    fn with<T>(&self, name: &LockName, work: impl FnOnce(&mut Row) -> T) -> T {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Row { owner: None, until: Moment::now(), token: 0 };
        work(rows.entry(name.clone()).or_insert_with(new))
    }

    fn ask(&self, claim: &Claim) -> Option<u64> {
        let (owner, now) = (claim.owner(), Moment::now());
        let is_odd = owner.as_u128() % 2 == 1;
        self.with(claim.name(), |row| {
            let is_ahead = self.defect == Defect::ClientsWallClock && is_odd;
            let judged_at = if is_ahead { now.after(claim.ttl()) } else { now };
            if row.is_held(judged_at) && row.owner != Some(owner) {
                let twice = [Defect::TokenTwice, Defect::GuardTakesEqualTokens].contains(&self.defect);
                return (twice && is_odd).then_some(row.token);
            }
            let lease = if self.defect == Defect::NoCleanUp { Duration::from_hours(1) } else { claim.ttl() };
            *row = Row { owner: Some(owner), until: judged_at.after(lease), token: row.token + 1 };
            Some(row.token)
        })
    }

    /// Frees it whoever holds it.
    fn free(&self, name: &LockName) -> bool {
        self.with(name, |row| {
            let was_held = row.is_held(Moment::now());
            row.owner = None;
            was_held
        })
    }
}

#[async_trait]
impl DistributedLock for Broken {
    fn capabilities(&self) -> Capabilities {
        Capabilities::minimal("broken").promising([Requirement::Fencing])
    }

    async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        while !claim.is_wait_over() {
            let sent = Moment::now();
            let token = self.ask(claim);
            if self.defect == Defect::NoCleanUp {
                tokio::time::sleep(WAY).await;
            }
            if let Some(token) = token {
                return Ok(Some(Grant::new(claim, FencingToken::new(token), sent)));
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(None)
    }

    async fn renew(&self, grants: &[Grant], _: Moment) -> Vec<Renewal> {
        let each = grants.iter().map(|grant| {
            let (claim, sent) = (grant.claim(), Moment::now());
            let until = sent.after(claim.ttl());
            let is_renewed = self.with(claim.name(), |row| {
                let is_ours = row.is_held(sent) && row.owner == Some(claim.owner());
                row.until = if is_ours { until } else { row.until };
                is_ours
            });
            match self.defect {
                Defect::NotRenewed => Renewal::Unknown(Error::new(ErrorKind::Unreachable, "no answer")),
                Defect::TokenTwice | Defect::GuardTakesEqualTokens => {
                    Renewal::Renewed(valid_until(sent, claim.ttl()))
                }
                _ if is_renewed => Renewal::Renewed(valid_until(sent, claim.ttl())),
                _ => Renewal::Lost,
            }
        });
        each.collect()
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        let is_kept = self.defect == Defect::NoCleanUp && claim.is_cancelled();
        let is_freed = self.with(claim.name(), |row| {
            let is_ours = row.owner == Some(claim.owner()) && !is_kept;
            row.owner = row.owner.filter(|_| !is_ours);
            is_ours
        });
        Ok(if is_freed { Released::Released } else { Released::NotHeld })
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        let (row, now) = (self.with(name, |row| *row), Moment::now());
        let holder =
            || Holder::new(FencingToken::new(row.token), "somebody", Mode::Exclusive, row.until.since(now));
        Ok(LockStatus::new(name.clone(), row.is_held(now).then(holder).into_iter().collect(), 0))
    }

    async fn force_release(&self, name: &LockName) -> Result<usize> {
        let freed = self.free(name);
        if self.defect == Defect::ForceRepeated {
            let (server, name) = (self.clone(), name.clone());
            drop(tokio::spawn(async move {
                for _ in 0..2 {
                    tokio::time::sleep(2 * WAY).await;
                    server.free(&name);
                }
            }));
        }
        Ok(usize::from(freed))
    }
}

/// What a run has shown.
#[derive(Debug)]
struct Shown {
    findings: Findings,
    testimony: Testimony,
    operations: u64,
}

impl Shown {
    /// Whether it shows what a lock with this defect does.
    fn tells(&self, defect: Defect) -> bool {
        let found = &self.findings;
        let is_clean = found.is_clean() && self.testimony.guarded_lost == 0 && self.operations > 10;
        match defect {
            Defect::ClientsWallClock => found.overlaps > 0,
            // The guard that binds a token to its owner loses nothing.
            Defect::TokenTwice => {
                found.overlaps > 0 && found.tokens_twice > 0 && self.testimony.guarded_lost == 0
            }
            Defect::GuardTakesEqualTokens => self.testimony.guarded_lost > 0,
            Defect::NoCleanUp => found.late_grants + found.left_behind > 0,
            Defect::ForceRepeated => found.taken > 0,
            Defect::NotRenewed => found.ran_out > 0,
            Defect::None => is_clean,
        }
    }
}

/// Lets two workers work with a lock that has this defect.
async fn show(defect: Defect, seed: u64) -> Shown {
    let folder = tempfile::tempdir().unwrap();
    let guard = if defect == Defect::GuardTakesEqualTokens { Guard::NotLower } else { Guard::ByOwner };
    let path = folder.path().join("witness");
    let witness = Witness::start(&path, guard).unwrap();
    let backend = Broken { defect, rows: Arc::default() };
    let until = Until::later();
    let mut workers = JoinSet::new();
    let gives_up = [Defect::NoCleanUp, Defect::None].contains(&defect);
    let crew = Crew {
        workers: 2,
        tasks: 8,
        locks: 1,
        all_modes: false,
        long: (60, 400),
        cancelled: if gives_up { 70 } else { 0 },
        impatient: 0,
        dropped: 0,
        ..Crew::USUAL
    };
    let history_of = |worker: u32| folder.path().join(format!("worker-{worker}"));
    for worker in 0..crew.workers {
        let locks = Locks::new(Arc::new(backend.clone())).unwrap().server_order();
        let what = Work {
            worker,
            prefix: "broken".to_owned(),
            crew,
            modes: vec![vec![0]],
            ttl: micros(TTL),
            wait: micros(Duration::from_secs(2)),
            seed,
            history: history_of(worker),
            witness: path.clone(),
        };
        let until = until.clone();
        workers.spawn(async move {
            work(&locks, &what, &until).await.unwrap();
            locks.close_within(Duration::from_secs(1)).await.ok();
        });
    }
    let names = [0, 1].map(|lock| LockName::new(format!("broken/{lock}")).unwrap());
    let mut deprived = Vec::new();
    for step in 0..STEPS {
        tokio::time::sleep(STEP).await;
        if defect == Defect::ForceRepeated && step.is_multiple_of(EACH) {
            // The one that is held for long.
            let from = nanos();
            let holders = u64::try_from(backend.force_release(&names[1]).await.unwrap()).unwrap();
            deprived.push(Deprived { lock: 1, span: Span { from, until: nanos() }, holders });
        }
    }
    until.now();
    while let Some(done) = workers.join_next().await {
        done.unwrap();
    }
    let mut history = History::default();
    for worker in 0..crew.workers {
        history.read(worker, &std::fs::read_to_string(history_of(worker)).unwrap()).unwrap();
    }
    let rules = Rules { ttl: nanos_of(TTL), bound: nanos_of(BOUND), deprived, ..Rules::default() };
    let mut findings = checker::check(&history, &rules);
    for name in &names {
        findings.left_behind += u64::from(backend.inspect(name).await.unwrap().is_held());
    }
    Shown { findings, testimony: witness.testimony(), operations: history.operations() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_broken_lock_is_caught_and_the_same_lock_without_a_defect_is_clean() {
    let mut missed = Vec::new();
    for defect in [
        Defect::ClientsWallClock,
        Defect::TokenTwice,
        Defect::GuardTakesEqualTokens,
        Defect::NoCleanUp,
        Defect::ForceRepeated,
        Defect::NotRenewed,
        Defect::None,
    ] {
        // At once: most of the time they sleep.
        let runs: JoinSet<_> = (0..TIMES).map(|seed| show(defect, seed)).collect();
        for shown in runs.join_all().await.into_iter().filter(|shown| !shown.tells(defect)) {
            let mut again = false;
            for seed in TIMES..TIMES + AGAIN {
                again = again || (defect != Defect::None && show(defect, seed).await.tells(defect));
            }
            if !again {
                missed.push(format!("{defect:?}: {shown:?}"));
            }
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}
