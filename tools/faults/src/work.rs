//! What a worker does: it takes locks, holds them, writes to the witnesses, and notes all of it.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use lockwell::{ErrorKind, LeaseState, LockGuard, LockRequest, Locks, Loss, Mode};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::process::{Signal, getpid, kill_process};
use tokio::task::JoinSet;

use super::history::{Ask, CANCELLED, End, HELD, Hold, Journal, TIMED_OUT, Who};
use super::witness::{Client, Holder, Read};
use crate::error::{Error, Result};
use crate::jobs;
use crate::plan::{Until, Work};
use crate::time::nanos;

/// How often a holder looks whether it still holds.
const LOOK: Duration = Duration::from_millis(4);

/// One who has looked so often at a lock that is not held any more, and slept in between, should have been
/// told.
const UNTOLD: u32 = 50;

/// How long a worker pauses after an error, so that it does not ask a dead server without a pause.
const AFTER_ERROR: Duration = Duration::from_millis(20);

/// A worker that pauses is stopped before the write of every 60th hold of a task.
const PAUSES: u64 = 60;

/// One task of so many takes locks that are held for long, if there are such.
pub(crate) const SHARE: u32 = 4;

/// Works until then.
pub(crate) async fn work(locks: &Locks, work: &Work, until: &Until) -> Result<()> {
    if work.crew.jobs {
        return jobs::host(locks, work, until).await;
    }
    let journal = Arc::new(Journal::create(&work.history)?);
    let work = Arc::new(work.clone());
    let mut tasks = JoinSet::new();
    for task in 0..work.crew.tasks {
        let who = Who { worker: work.worker, task };
        let seed = work.seed ^ (u64::from(work.worker) << 32) ^ (u64::from(task) << 8);
        let worker = Task {
            who,
            locks: locks.clone(),
            work: Arc::clone(&work),
            journal: Arc::clone(&journal),
            witness: Client::connect(&work.witness).await?,
            random: StdRng::seed_from_u64(seed),
            holds: 0,
            until: until.clone(),
        };
        tasks.spawn(worker.run());
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

struct Task {
    who: Who,
    locks: Locks,
    work: Arc<Work>,
    journal: Arc<Journal>,
    witness: Client,
    random: StdRng,
    holds: u64,
    until: Until,
}

impl Task {
    async fn run(mut self) -> Result<()> {
        while !self.until.is_over() {
            self.step().await?;
            // A lock that is free at once would keep the thread from the other tasks.
            tokio::task::consume_budget().await;
        }
        Ok(())
    }

    /// Whether this task takes locks that are held for long.
    fn takes_its_time(&self) -> bool {
        self.work.crew.long.0 > 0 && self.who.task % SHARE == SHARE - 1
    }

    fn chance(&mut self, of_a_hundred: u32) -> bool {
        self.random.random_range(0..100) < of_a_hundred
    }

    async fn step(&mut self) -> Result<()> {
        let lock = self.random.random_range(0..self.work.crew.locks);
        let lock = if self.takes_its_time() { self.work.crew.locks + lock } else { lock };
        let modes = &self.work.modes[lock as usize % self.work.modes.len()];
        let code = modes[self.random.random_range(0..modes.len())];
        let mode = Mode::from_code(code).ok_or_else(|| Error::failed("not a mode"))?;
        let request = self.request(lock, mode);
        let ask = Ask { who: self.who, lock, mode, asked: nanos() };
        let mut waits = true;
        let answer = if self.chance(self.work.crew.cancelled) {
            self.given_up(request).await
        } else if self.chance(self.work.crew.impatient) {
            waits = false;
            request
                .try_now()
                .await
                .map_err(|error| error.kind())
                .and_then(|guard| guard.ok_or(ErrorKind::Held))
        } else {
            request.await.map_err(|error| error.kind())
        };
        match answer {
            Ok(guard) => self.hold(guard, ask).await,
            Err(kind) => {
                let why = match kind {
                    ErrorKind::TimedOut => TIMED_OUT.to_owned(),
                    // It does not ask for a free lock to be granted in time.
                    ErrorKind::Held if !waits => HELD.to_owned(),
                    ErrorKind::Cancelled => CANCELLED.to_owned(),
                    other => format!("{other:?}"),
                };
                self.journal.missed(&ask, nanos(), why);
                if !matches!(kind, ErrorKind::TimedOut | ErrorKind::Held | ErrorKind::Cancelled) {
                    tokio::time::sleep(AFTER_ERROR).await;
                }
                Ok(())
            }
        }
    }

    fn request(&self, lock: u32, mode: Mode) -> LockRequest {
        let name = self.work.name(lock);
        let request = match mode {
            Mode::Shared => self.locks.read(name),
            Mode::Permit { limit } => self.locks.permit(name, limit.get()),
            _ => self.locks.lock(name),
        };
        request.ttl(self.work.ttl()).wait(Duration::from_micros(self.work.wait))
    }

    /// Drops the request: after so many polls, or after so long, whichever the dice say.
    async fn given_up(&mut self, request: LockRequest) -> Result<LockGuard, ErrorKind> {
        let mut request = pin!(request.into_future());
        if self.chance(50) {
            let mut polls = self.random.random_range(1..8);
            return std::future::poll_fn(|context| {
                polls -= 1;
                match request.as_mut().poll(context) {
                    Poll::Ready(answer) => Poll::Ready(answer.map_err(|error| error.kind())),
                    Poll::Pending if polls == 0 => Poll::Ready(Err(ErrorKind::Cancelled)),
                    Poll::Pending => Poll::Pending,
                }
            })
            .await;
        }
        let short = Duration::from_micros(self.random.random_range(0..5_000));
        let answer = tokio::time::timeout(short, request).await;
        answer.map_or(Err(ErrorKind::Cancelled), |answer| answer.map_err(|error| error.kind()))
    }

    /// Holds the lock for a while.
    async fn hold(&mut self, guard: LockGuard, ask: Ask) -> Result<()> {
        let from = nanos();
        let token = guard.token().get();
        if !guard.is_held() {
            // It ended on its way here.
            self.journal.granted(&ask, from, token);
            let hold = Hold { until: from, ..blank(ask, token, from) };
            return self.give_up(guard, Hold { end: End::Expired, ..hold }).await;
        }
        self.journal.granted(&ask, from, token);
        self.holds += 1;
        let owner =
            (u64::from(self.who.worker) << 48) | (u64::from(self.who.task) << 24) | (self.holds & 0xff_ffff);
        let holder = Holder { lock: ask.lock, token, owner };
        let writes = ask.mode == Mode::Exclusive;
        let read = if writes { Some(self.witness.read(holder).await?) } else { None };
        if read.is_some_and(Read::is_refused) {
            self.journal.refused(self.who, nanos());
        }
        let length = if self.takes_its_time() && self.chance(self.work.crew.long.0) {
            self.work.long_hold()
        } else if self.chance(70) {
            0
        } else {
            self.random.random_range(0..=self.work.crew.hold)
        };
        let mut hold = blank(ask, token, from);
        let lost = self.watch_validity(&guard, &mut hold, Duration::from_micros(length)).await;
        // As an application does: a look, and then the deed. Between them there may be time for anything.
        if let Some(read) = read
            && lost.is_none()
            && self.look(&guard, &mut hold)
        {
            if self.work.crew.pauses && self.holds.is_multiple_of(PAUSES) && !self.until.is_over() {
                // Whoever watches it lets it go on.
                kill_process(getpid(), Signal::STOP)
                    .map_err(|errno| Error::failed(format!("SIGSTOP: {errno}")))?;
            }
            if !self.witness.write(holder, read).await? {
                self.journal.refused(self.who, nanos());
            }
        }
        // The write took a while: for so long the lock counted as held.
        self.look(&guard, &mut hold);
        // It may have been lost since the last look.
        hold.end = match lost.or_else(|| loss(&guard)) {
            Some(Loss::Taken) => End::Taken,
            Some(_) => End::Expired,
            None => End::Released,
        };
        self.give_up(guard, hold).await
    }

    /// Notes the time, if the guard says that it is held.
    fn look(&self, guard: &LockGuard, hold: &mut Hold) -> bool {
        let now = nanos();
        let is_over = guard.time_left().is_zero();
        let is_held = guard.is_held();
        if is_held {
            hold.until = now;
            if is_over {
                self.journal.revived(self.who);
            }
        }
        is_held
    }

    /// Looks again and again for so long. Returns why the lock was lost, if it was.
    async fn watch_validity(&self, guard: &LockGuard, hold: &mut Hold, length: Duration) -> Option<Loss> {
        let end = tokio::time::Instant::now() + length;
        let mut until = nanos();
        let mut written = hold.from;
        // One for all looks: a new one would look at the clock by itself, and hide that nobody wakes it.
        let mut told = pin!(guard.lost());
        let mut in_vain = 0;
        loop {
            if self.look(guard, hold) {
                in_vain = 0;
                until = until.max(deadline(hold.until, guard));
                if hold.until - written > 15_000_000 {
                    written = hold.until;
                    self.journal.still_held(self.who, hold.until);
                }
            } else {
                in_vain += 1;
                if in_vain == UNTOLD {
                    self.journal.untold(self.who);
                }
            }
            let pause = end.saturating_duration_since(tokio::time::Instant::now()).min(LOOK);
            if pause.is_zero() {
                return None;
            }
            tokio::select! {
                loss = &mut told => {
                    let now = nanos();
                    hold.told_late = now.saturating_sub(until);
                    // What the server says after the end of the lease is no news.
                    return Some(if now < until { loss } else { Loss::Expired });
                }
                () = tokio::time::sleep(pause) => (),
            }
        }
    }

    async fn give_up(&mut self, guard: LockGuard, mut hold: Hold) -> Result<()> {
        // The time first: a pause between the two must not make the lease longer.
        let deadline = deadline(nanos(), &guard);
        hold.called = nanos();
        if hold.end == End::Released && self.chance(self.work.crew.dropped) {
            drop(guard);
            hold.end = End::Dropped;
        } else {
            match (guard.release().await, hold.end) {
                // The lease was over, and nobody had taken the lock since.
                (Ok(()), End::Expired) => hold.end = End::Released,
                (Err(error), End::Released) if error.kind() == ErrorKind::Lost => {
                    // That the server did not know the lock any more is no wonder after its lease.
                    let is_early = nanos() < deadline;
                    hold.end = if is_early { End::Taken } else { End::Expired };
                }
                (Err(_), End::Released) => hold.end = End::Unknown,
                _ => (),
            }
        }
        hold.answered = nanos();
        self.journal.ended(&hold);
        Ok(())
    }
}

/// The end of the lease as the guard has it, at this moment or since.
fn deadline(now: u64, guard: &LockGuard) -> u64 {
    now.saturating_add(u64::try_from(guard.time_left().as_nanos()).unwrap_or(u64::MAX))
}

fn loss(guard: &LockGuard) -> Option<Loss> {
    match guard.lease_state() {
        LeaseState::Lost(loss) => Some(loss),
        _ => None,
    }
}

fn blank(ask: Ask, token: u64, from: u64) -> Hold {
    Hold { ask, token, from, until: from, end: End::Released, called: 0, answered: 0, told_late: 0 }
}
