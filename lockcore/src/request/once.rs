//! A job that runs once for a key, over all hosts: its steps, and the request that takes them.
//!
//! [`jobs::Once`](crate::jobs::Once) decides. This file asks the server what it wants to know.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::{Choices, LockRequest, One};
use crate::backend::Backoff;
use crate::background::{Book, lost_at_work};
use crate::jobs::{
    AttemptEnd, Entry, JobRecord, KeyState, Once as Machine, OnceAct, OnceEnd, OnceEvent, check_key,
};
use crate::{
    Error, ErrorKind, FencingToken, LockGuard, LockHandle, LockName, Mode, Moment, Operation, RecordKind,
    Result, Wait,
};

/// The pauses before a write that has had no answer is repeated.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// For how long a lock is held beyond the longest time of the job: to write that it has failed.
const TO_WRITE: Duration = Duration::from_secs(3);

/// The kind of request of [`Locks::once`](crate::Locks::once): a job that runs once for a key.
#[derive(Debug)]
pub struct Keyed {
    one: One,
    key: String,
    attempts: u32,
}

/// What the record of a lock says about a key.
///
/// A record of values to read, so its fields are public; later versions may add some.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Job {
    /// The lock.
    pub name: LockName,
    /// The key.
    pub key: String,
    /// What has become of the last attempt.
    pub state: JobState,
    /// How many attempts have begun.
    pub attempts: u32,
    /// When the last one began, by the clock of its host.
    pub began: SystemTime,
    /// How long it took, if it has ended.
    pub took: Option<Duration>,
    /// The label of who began it. Only the newest key of a lock has it.
    pub by: Option<String>,
    /// The token with which it began. Only the newest key of a lock has it.
    pub token: Option<FencingToken>,
}

/// What has become of the last attempt at a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum JobState {
    /// The key is done.
    Done,
    /// It has begun, and its host has the lock, as far as was asked: only [`Locks::job`](crate::Locks::job)
    /// and [`Locks::jobs`](crate::Locks::jobs) ask.
    Running,
    /// It has failed by itself.
    Failed,
    /// It has begun, and its host has lost the lock without a word.
    Died,
}

/// How a job that runs once for a key has ended.
#[must_use = "the job may not have run"]
#[derive(Debug, PartialEq, Eq)]
pub enum Once<T> {
    /// It ran here, and the key is done.
    Ran(T),
    /// The key was done before.
    Done(Job),
    /// It failed elsewhere while this host waited, which leaves it for the next time.
    FailedElsewhere(Job),
    /// All attempts are used up, without success.
    GivenUp(Job),
}

/// An attempt at a job, for the job itself.
#[derive(Clone, Debug)]
pub struct JobRun {
    held: LockHandle,
    attempt: u32,
}

impl JobRun {
    /// The lock under which it runs.
    pub fn held(&self) -> &LockHandle {
        &self.held
    }

    /// The number of this attempt for its key, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }
}

impl Job {
    pub(crate) fn new(name: &LockName, entry: &Entry, by: Option<(&str, FencingToken)>) -> Self {
        let state = match entry.end {
            AttemptEnd::Done => JobState::Done,
            AttemptEnd::Failed => JobState::Failed,
            // Of all keys of a lock only the newest can be under way.
            AttemptEnd::Begun if by.is_none() => JobState::Died,
            AttemptEnd::Begun => JobState::Running,
        };
        Self {
            name: name.clone(),
            key: entry.key.clone(),
            state,
            attempts: entry.attempts,
            began: entry.began(),
            took: entry.took(),
            by: by.map(|(label, _)| label.to_owned()),
            token: by.map(|(_, token)| token),
        }
    }
}

/// The steps of a host for a job and a key, for callers that take the lock themselves, as the command does.
#[doc(hidden)]
#[derive(Debug)]
pub struct JobSteps {
    book: Arc<Book>,
    choices: Choices,
    name: LockName,
    key: String,
    machine: Machine,
    record: JobRecord,
    /// With which the attempt began.
    token: Option<FencingToken>,
}

impl LockRequest<Keyed> {
    pub(crate) fn keyed(request: LockRequest<One>, key: String) -> Self {
        let LockRequest { book, mut choices, what: one } = request;
        // Who waits at the server can take the job over, and each attempt has a token of its own.
        choices.local = None;
        Self { book, choices, what: Keyed { one, key, attempts: 3 } }
    }

    /// How many attempts a key may have, over all hosts: 3 by default. With 1 it runs at most once, as long
    /// as the record is not lost.
    pub fn attempts(mut self, most: u32) -> Self {
        self.what.attempts = most;
        self
    }

    /// Runs `work` unless the key is done, or has had all of its attempts. Other hosts wait meanwhile, and the
    /// next one takes over if this one dies.
    ///
    /// If `work` fails, or takes longer than [`max_hold`](LockRequest::max_hold), the attempt has failed. If
    /// it is dropped, panics, or its process dies, the attempt counts, and the next host tries again at once.
    /// So the work is done at least once, and `work` is called at most as often as there are attempts, unless
    /// the record is lost: [`records`](crate::Requirement::Records).
    ///
    /// # Errors
    /// That of the work. Or of kind [`TimedOut`](ErrorKind::TimedOut) if the lock was held for the whole
    /// wait; [`Lost`](ErrorKind::Lost) if it was lost before the end of the work, or if the work has
    /// succeeded and this could not be written within a minute;
    /// [`Unsupported`](ErrorKind::Unsupported) without [`records`](crate::Requirement::Records);
    /// [`Misconfigured`](ErrorKind::Misconfigured) if a later version has written the record. Nothing runs
    /// unless it could be written that it begins.
    ///
    /// # Cancel safety
    /// Dropping this future drops that of `work`; the lock is released in the background, and the attempt
    /// counts as one of a host that has died.
    pub async fn try_run<F, W, T, E>(self, work: F) -> Result<Once<T>, E>
    where
        F: FnOnce(JobRun) -> W,
        W: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        let longest = self.choices.limits.max_hold;
        let (mut steps, request) = self.steps()?;
        if let Some(job) = steps.look().await? {
            return Ok(Once::Done(job));
        }
        let guard = request.await?;
        let attempt = match steps.begin(&guard.handle()).await? {
            Once::Ran(attempt) => attempt,
            Once::Done(job) => return Ok(Once::Done(job)),
            Once::FailedElsewhere(job) => return Ok(Once::FailedElsewhere(job)),
            Once::GivenUp(job) => return Ok(Once::GivenUp(job)),
        };
        let clock = steps.book.clock.clone();
        let over = clock.now().after(longest.unwrap_or(Duration::MAX));
        let run = JobRun { held: guard.handle(), attempt };
        let answer = tokio::select! {
            biased;
            answer = work(run) => answer,
            _ = guard.lost() => {
                let error = lost_at_work(guard.renewal_failure());
                return Err(steps.decorate(error, Operation::Hold).into());
            }
            () = clock.sleep_until(over) => {
                steps.failed(&guard.handle()).await;
                let error = Error::new(ErrorKind::Lost, "the job took longer than its longest hold: it has failed");
                return Err(steps.decorate(error, Operation::Hold).into());
            }
        };
        match answer {
            Ok(value) => {
                steps.succeeded(&guard.handle()).await?;
                // The keeper repeats a release that fails.
                drop(guard.release().await);
                Ok(Once::Ran(value))
            }
            Err(error) => {
                steps.failed(&guard.handle()).await;
                drop(guard.release().await);
                Err(error)
            }
        }
    }

    /// The steps, and the request for the lock.
    #[doc(hidden)]
    pub fn steps(self) -> Result<(JobSteps, LockRequest<One>)> {
        let Self { book, mut choices, what: Keyed { one, key, attempts } } = self;
        let bad = |error, name| book.decorate(error, Operation::Acquire, name);
        let name = one.name.map_err(|error| bad(error, None))?;
        let few = || Error::new(ErrorKind::InvalidInput, "a job has at least one attempt, this one has 0");
        let checked = check_key(&key).and_then(|()| {
            book.check_open()?;
            choices.check(&book, Mode::Exclusive)?;
            NonZeroU32::new(attempts).ok_or_else(few)
        });
        let attempts = checked.map_err(|error| bad(error, Some(&name)))?;
        choices.limits.max_hold = choices.limits.max_hold.map(|most| most.saturating_add(TO_WRITE));
        let what = One { name: Ok(name.clone()), mode: Ok(Mode::Exclusive) };
        let request = LockRequest { book: Arc::clone(&book), choices: choices.clone(), what };
        let (machine, _) = Machine::begin(attempts);
        let record = JobRecord::default();
        Ok((JobSteps { book, choices, name, key, machine, record, token: None }, request))
    }
}

impl JobSteps {
    /// Looks without the lock. The job if its key is done.
    pub async fn look(&mut self) -> Result<Option<Job>> {
        self.record = read_jobs(&self.book, &self.name).await?;
        match self.on(OnceEvent::Found(self.found())) {
            OnceAct::End(_) => Ok(self.job()),
            _ => Ok(None),
        }
    }

    /// The lock is held. [`Once::Ran`], with the number of the attempt: the work is to be done now.
    pub async fn begin(&mut self, held: &LockHandle) -> Result<Once<u32>> {
        self.on(OnceEvent::Granted);
        self.look_under(held).await?;
        match self.on(OnceEvent::Found(self.found())) {
            OnceAct::Write(begun) => {
                let label = Arc::clone(&self.choices.label);
                self.record.begin(&self.key, begun.attempts, &label, held.token());
                self.token = Some(held.token());
                self.write(held).await?;
                self.on(OnceEvent::Written);
                Ok(Once::Ran(begun.attempts))
            }
            OnceAct::End(end) => {
                let gone = || self.decorate(Error::new(ErrorKind::Internal, "no job"), Operation::ReadRecord);
                let job = self.job().ok_or_else(gone)?;
                Ok(match end {
                    OnceEnd::GivenUp => Once::GivenUp(job),
                    OnceEnd::FailedElsewhere => Once::FailedElsewhere(job),
                    _ => Once::Done(job),
                })
            }
            act => unreachable!("{act:?} after a look under the lock"),
        }
    }

    /// The work has failed by itself. If that cannot be written, the next host takes it for one that has died.
    pub async fn failed(&mut self, held: &LockHandle) {
        if let OnceAct::Write(state) = self.on(OnceEvent::Failed) {
            self.record.end(&self.key, state.end);
            if let Err(error) = self.write(held).await {
                tracing::warn!(lock = %self.name, error = format!("{error:#}"), "the failure of a job is not recorded");
            }
        }
    }

    /// The work has succeeded: writes that, for as long as it takes, and under a new lock if this one is lost.
    pub async fn succeeded(&mut self, held: &LockHandle) -> Result<()> {
        let mut again: Option<LockGuard> = None;
        let mut backoff = Backoff::new(PAUSES.0, PAUSES.1);
        let mut last = None;
        let mut act = self.on(OnceEvent::Succeeded);
        loop {
            let held = again.as_ref().map_or_else(|| held.clone(), LockGuard::handle);
            let event = match act {
                OnceAct::Write(state) => {
                    self.record.end(&self.key, state.end);
                    self.write(&held).await.map(|()| OnceEvent::Written)
                }
                OnceAct::LookUnder => {
                    self.look_under(&held).await.map(|()| OnceEvent::Found(self.found_own()))
                }
                OnceAct::Take(until) => {
                    drop(again.take());
                    self.take(until.unwrap_or(Moment::NEVER)).await.map(|guard| {
                        let granted = guard.is_some();
                        again = guard;
                        if granted { OnceEvent::Granted } else { OnceEvent::NotGranted }
                    })
                }
                OnceAct::End(OnceEnd::Ran) => return Ok(()),
                _ => return Err(self.unrecorded(last)),
            };
            let event = match event {
                Ok(event) => event,
                Err(error) => {
                    let event = match error.kind() {
                        ErrorKind::Lost => OnceEvent::Lost,
                        _ if error.is_retryable() => OnceEvent::NoAnswer,
                        _ => OnceEvent::Refused,
                    };
                    last = Some(error);
                    backoff.pause_by(&self.book.clock).await;
                    event
                }
            };
            act = self.on(event);
        }
    }

    /// Forgets the key. False: it was not known.
    pub(crate) async fn forget(&mut self, held: &LockHandle) -> Result<bool> {
        self.look_under(held).await?;
        let known = self.record.forget(&self.key);
        if known {
            self.write(held).await?;
        }
        Ok(known)
    }

    fn on(&mut self, event: OnceEvent) -> OnceAct {
        self.machine.on(self.book.clock.now(), event)
    }

    fn found(&self) -> Option<KeyState> {
        self.record.key(&self.key).map(Entry::state)
    }

    /// After a loss: an attempt with another token is not our own, whatever its number is.
    fn found_own(&self) -> Option<KeyState> {
        let other = self.record.token_of(&self.key).is_some_and(|token| Some(token) != self.token);
        self.found().filter(|found| found.end != AttemptEnd::Begun || !other)
    }

    fn job(&self) -> Option<Job> {
        let (entry, by) = self.record.entries().find(|(entry, _)| entry.key == self.key)?;
        Some(Job::new(&self.name, entry, by))
    }

    async fn look_under(&mut self, held: &LockHandle) -> Result<()> {
        let found = held.read(RecordKind::Job).await?;
        let parsed = JobRecord::parse(found.as_ref());
        self.record = parsed.map_err(|error| self.decorate(error, Operation::ReadRecord))?;
        Ok(())
    }

    async fn write(&mut self, held: &LockHandle) -> Result<()> {
        let text = self.record.text()?;
        held.write(RecordKind::Job, &text).await
    }

    /// Takes the lock once more, to write that the key is done.
    async fn take(&self, until: Moment) -> Result<Option<LockGuard>> {
        let mut choices = self.choices.clone();
        choices.limits = crate::life::Limits::default();
        let mut backoff = Backoff::new(PAUSES.0, PAUSES.1);
        loop {
            match choices.begin(&self.book, self.name.clone(), Mode::Exclusive, Wait::Until(until)).await {
                Err(error) if error.is_retryable() && !self.book.clock.has_passed(until) => {
                    backoff.pause_by(&self.book.clock).await;
                }
                answer => return answer,
            }
        }
    }

    fn unrecorded(&self, last: Option<Error>) -> Error {
        let text = "the job has succeeded, and that is not recorded: it may run again";
        let error = Error::new(ErrorKind::Lost, text);
        let error = match last {
            Some(last) => error.with_source(last),
            None => error,
        };
        self.decorate(error, Operation::WriteRecord)
    }

    fn decorate(&self, error: Error, operation: Operation) -> Error {
        self.book.decorate(error, operation, Some(&self.name))
    }
}

/// Reads the record of a lock's jobs without the lock.
pub(crate) async fn read_jobs(book: &Book, name: &LockName) -> Result<JobRecord> {
    let decorate = |error| book.decorate(error, Operation::ReadRecord, Some(name));
    book.capabilities().check_records().map_err(decorate)?;
    let found = book.backend.read_record(name, RecordKind::Job, None).await.map_err(decorate)?;
    JobRecord::parse(found.as_ref()).map_err(decorate)
}
