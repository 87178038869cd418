//! A busy hour in a few seconds: many holders that wait, try, stop waiting, cancel and die, at random.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::history::Validity;
use super::stage::{claim, millis, soon, within};
use super::time::{has_passed, now, sleep, timeout};
use lockwell_core::backend::lock;
use lockwell_core::{ErrorKind, FencingToken, LockGuard, LockName, Locks, Mode, Moment, Renewal, Result};

/// What is to be done.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) clients: Vec<Locks>,
    pub(super) names: Vec<LockName>,
    /// What the modes are drawn from.
    pub(super) modes: Vec<Mode>,
    pub(super) tasks: u64,
    /// How long it goes on; for longer on a busy machine, until there is something to judge.
    pub(super) span: Duration,
    /// The lease of holders that die. The others renew.
    pub(super) short: Duration,
    pub(super) seed: u64,
}

/// What a run has to show.
#[derive(Debug, Default)]
pub(super) struct WorkRecord {
    pub(super) history: Vec<Validity>,
    /// How many holders died without a release.
    pub(super) dead: usize,
    /// Errors that must not occur on a healthy server.
    pub(super) errors: Vec<String>,
}

impl WorkRecord {
    /// Whether the run has put the lock to the test.
    pub(super) fn says_something(&self) -> bool {
        self.history.len() >= 30 && self.dead >= 1
    }
}

/// Carries the plan out.
pub(super) async fn run(plan: Plan) -> WorkRecord {
    let plan = Arc::new(plan);
    let record = Arc::new(Mutex::new(WorkRecord::default()));
    let (end, latest) = (now().after(plan.span), now().after(plan.span * 10));
    let mut tasks = Vec::new();
    for task in 0..plan.tasks {
        let (plan, record) = (Arc::clone(&plan), Arc::clone(&record));
        tasks.push(tokio::spawn(async move {
            let mut actor = Actor { task, random: StdRng::seed_from_u64(plan.seed ^ task), plan, record };
            while !has_passed(end) || (!lock(&actor.record).says_something() && !has_passed(latest)) {
                actor.step().await;
            }
        }));
    }
    for task in tasks {
        task.await.expect("a task of the workload");
    }
    std::mem::take(&mut *lock(&record))
}

struct Actor {
    task: u64,
    random: StdRng,
    plan: Arc<Plan>,
    record: Arc<Mutex<WorkRecord>>,
}

impl Actor {
    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.random.random_range(0..from.len())].clone()
    }

    async fn step(&mut self) {
        let plan = Arc::clone(&self.plan);
        let (name, mode) = (self.pick(&plan.names), self.pick(&plan.modes));
        let client = &plan.clients[usize::try_from(self.task).unwrap_or(0) % plan.clients.len()];
        let action = self.random.random_range(0..100);
        if action < 4 {
            return self.die(client, &name, mode).await;
        }
        let request = match mode {
            Mode::Exclusive => client.lock(&name),
            Mode::Shared => client.read(&name),
            Mode::Permit { limit } => client.permit(&name, limit.get()),
            other => unreachable!("no plan has the mode {other:?}"),
        };
        let short = millis(self.random.random_range(1..40));
        let asked = now();
        let answer = match action {
            4..30 => request.try_now().await,
            30..45 => request.wait(short).await.map(Some),
            // Dropped while it waits, or just when its turn comes.
            45..60 => timeout(short, request.into_future()).await.map_or(Ok(None), |it| it.map(Some)),
            _ => request.wait(self.plan.span).await.map(Some),
        };
        let waits = !(4..30).contains(&action);
        if let Some(guard) = self.allow(answer, waits) {
            self.hold(guard, asked).await;
        }
    }

    /// The guard, if there is one. A wait that ended is right, and so is the clash of one that does not wait;
    /// other errors are not.
    fn allow(&self, answer: Result<Option<LockGuard>>, waits: bool) -> Option<LockGuard> {
        answer.unwrap_or_else(|error| {
            let right = if waits { ErrorKind::TimedOut } else { ErrorKind::KindClash };
            if error.kind() != right {
                lock(&self.record).errors.push(format!("{error:#}"));
            }
            None
        })
    }

    async fn hold(&mut self, guard: LockGuard, asked: Moment) {
        let from = now();
        if !guard.is_held() {
            return;
        }
        let mut until = from;
        for _ in 0..self.random.random_range(0..4) {
            sleep(Duration::from_micros(self.random.random_range(0..1500))).await;
            let now = now();
            if guard.is_held() {
                until = now;
            }
        }
        let now = now();
        if guard.is_held() {
            until = now;
        }
        self.note_validity(guard.name(), guard.mode(), guard.token(), [asked, from, until]);
        if self.random.random_bool(0.3) {
            drop(guard);
        } else if let Err(error) = guard.release().await {
            lock(&self.record).errors.push(format!("{error:#}"));
        }
    }

    /// Takes the lock and leaves without a release, like a process that dies. Much later, a renewal and a
    /// release of it arrive.
    async fn die(&mut self, client: &Locks, name: &LockName, mode: Mode) {
        let (backend, short) = (Arc::clone(client.backend()), self.plan.short);
        let claim = claim(name, mode, short, within(short * 2));
        let grant = match backend.acquire(&claim).await {
            Ok(Some(grant)) => grant,
            answer => {
                // A backend divides the time of a short lease among its nodes: on a busy machine, a healthy
                // node may then answer too late.
                let mut note = |error: lockwell_core::Error| {
                    if error.kind() != ErrorKind::TimedOut && !error.is_retryable() {
                        lock(&self.record).errors.push(format!("{error:#}"));
                    }
                };
                answer.err().map(&mut note);
                // Out of the queue, in case it is still in there.
                backend.release(&claim).await.err().map(note);
                return;
            }
        };
        let from = now();
        let mut until = grant.deadline();
        if self.random.random_bool(0.5) {
            sleep(short / 3).await;
            if let Some(Renewal::Renewed(deadline)) =
                backend.renew(std::slice::from_ref(&grant), soon()).await.first()
            {
                until = *deadline;
            }
        }
        if until > from {
            self.note_validity(name, mode, grant.token(), [claim.began(), from, until]);
        }
        lock(&self.record).dead += 1;
        let renews_late = self.random.random_bool(0.5);
        drop(tokio::spawn(async move {
            sleep(short * 2).await;
            if renews_late {
                drop(backend.renew(&[grant], soon()).await);
            }
            drop(backend.release(&claim).await);
        }));
    }

    fn note_validity(&self, name: &LockName, mode: Mode, token: FencingToken, times: [Moment; 3]) {
        let [asked, from, until] = times;
        let who = format!("task {}", self.task);
        lock(&self.record).history.push(Validity {
            lock: name.clone(),
            mode,
            who,
            token,
            asked,
            from,
            until,
        });
    }
}
