//! The steps of a host for a job that runs once for a key.
//!
//! [`jobs::Once`](crate::jobs::Once) decides. This file asks the server what it wants to know.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::in_time::{InTime, unanswered, within};
use super::job::{Job, Once};
use super::{Checked, Choices};
use crate::backend::Backoff;
use crate::background::Book;
use crate::jobs::{AttemptEnd, JobRecord, KeyEntry, KeyState, Once as Machine, OnceAct, OnceEnd, OnceEvent};
use crate::life::Limits;
use crate::{
    Clock, Error, ErrorKind, FencingToken, LockGuard, LockHandle, LockName, Mode, Moment, Operation,
    RecordKind, Result, Wait,
};

/// The pauses before a request for the record that has had no answer is repeated.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// For how long a host that has the lock asks for the record. Where its requests for the lock pass and these do
/// not, another host may have more luck.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

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
    /// The number of the last attempt that was to begin here.
    attempt: u32,
    /// The writes that it begins, of which any may be in the record: the token, and when it began.
    begun: Vec<(FencingToken, SystemTime)>,
    /// How long the work may take, and until when it may go on.
    longest: Option<Duration>,
    over: Moment,
}

impl JobSteps {
    pub(super) fn new(
        book: Arc<Book>,
        choices: Choices,
        name: LockName,
        (key, attempts): (String, NonZeroU32),
        longest: Option<Duration>,
    ) -> Self {
        let (machine, _) = Machine::begin(attempts);
        let record = JobRecord::default();
        let (attempt, begun, over) = (0, Vec::new(), Moment::NEVER);
        Self { book, choices, name, key, machine, record, attempt, begun, longest, over }
    }

    /// Looks without the lock. The job if its key is done. After an error it may be called again.
    pub async fn look(&mut self) -> Result<Option<Job>> {
        self.record = read_jobs(&self.book, &self.name).await?;
        self.note_seen();
        match self.on(OnceEvent::Found(self.found())) {
            OnceAct::End(_) => Ok(self.job()),
            _ => Ok(None),
        }
    }

    /// Looks without the lock, and again while the server is away, for as long as a claim with this wait goes
    /// on.
    pub(super) async fn look_within(&mut self, wait: Wait) -> Result<Option<Job>> {
        let clock = self.book.clock.clone();
        let mut patience = self.choices.patience(wait, self.book.capabilities().is_presumed());
        let looking = async {
            loop {
                match self.look().await {
                    Ok(found) => return Ok(Some(found)),
                    Err(error) => patience.hear(error, &clock)?,
                }
                patience.pause(&clock, end_of(&clock, wait)).await?;
            }
        };
        if let Some(found) = within(&clock, wait, looking).await? {
            return Ok(found);
        }
        let unanswered = || unanswered(&self.book, self.choices.wait, Some(&self.name));
        Err(patience.end().err().unwrap_or_else(unanswered))
    }

    /// The lock is held. [`Once::Ran`], with the number of the attempt: the work is to be done now.
    ///
    /// While it is held, a request without an answer is repeated, for a minute at most. After an error of kind
    /// [`Lost`](ErrorKind::Lost) nothing has begun, and this may be called again under the next lock.
    pub async fn begin(&mut self, held: &LockHandle) -> Result<Once<u32>> {
        let mut pauses = Backoff::new(PAUSES.0, PAUSES.1);
        let now = self.book.clock.now();
        // From the grant on, as the longest hold of the lock, which leaves time to write that the job has failed.
        self.over = now.after(self.longest.unwrap_or(Duration::MAX));
        let give_up = now.after(ANSWER_WITHIN);
        let mut act = self.on(OnceEvent::Granted);
        loop {
            let answer = match act {
                OnceAct::Work(attempt) => {
                    self.book.telemetry.job_begins(&self.name);
                    return Ok(Once::Ran(attempt));
                }
                OnceAct::End(end) => return self.left(end),
                act => self.under(held, act).await,
            };
            match answer {
                Ok(event) => act = self.on(event),
                Err(error) => {
                    act = self.on(heard(&error));
                    let is_late = self.book.clock.has_passed(give_up);
                    if is_late || matches!(act, OnceAct::Take(_) | OnceAct::End(_)) {
                        return Err(error);
                    }
                    self.pause(&error, &mut pauses).await;
                }
            }
        }
    }

    /// Resolves when the work has taken as long as it may, and has failed.
    pub fn too_long(&self) -> impl Future<Output = ()> + Send + use<> {
        let (clock, over) = (self.book.clock.clone(), self.over);
        async move { clock.sleep_until(over).await }
    }

    /// The work has failed by itself. If that cannot be written, the next host takes it for one that has died.
    pub async fn failed(&mut self, held: &LockHandle) {
        let act = self.on(OnceEvent::Failed);
        let written =
            if matches!(act, OnceAct::Write(_)) { self.under(held, act).await.map(drop) } else { Ok(()) };
        if let Err(error) = written {
            tracing::warn!(lockwell.name = %self.name, error = format!("{error:#}"), "the failure of a job is not recorded");
        }
    }

    /// The work has succeeded: writes that, for as long as it takes, and under a new lock if this one is lost.
    pub async fn succeeded(&mut self, held: &LockHandle) -> Result<()> {
        let mut again: Option<LockGuard> = None;
        let mut pauses = Backoff::new(PAUSES.0, PAUSES.1);
        let mut last = None;
        let mut act = self.on(OnceEvent::Succeeded);
        loop {
            let answer = match act {
                OnceAct::Take(until) => {
                    drop(again.take());
                    self.take(until.unwrap_or(Moment::NEVER)).await.map(|guard| {
                        let granted = guard.is_some();
                        again = guard;
                        if granted { OnceEvent::Granted } else { OnceEvent::NotGranted }
                    })
                }
                OnceAct::End(OnceEnd::Ran) => {
                    self.note_seen();
                    return Ok(());
                }
                OnceAct::End(_) => return Err(self.unrecorded(last)),
                act => {
                    let held = again.as_ref().map_or_else(|| held.clone(), LockGuard::handle);
                    self.under(&held, act).await
                }
            };
            act = match answer {
                Ok(event) => self.on(event),
                Err(error) => {
                    let event = heard(&error);
                    self.pause(&error, &mut pauses).await;
                    last = Some(error);
                    self.on(event)
                }
            };
        }
    }

    /// Forgets the key. False: it was not known.
    pub(crate) async fn forget(&mut self, held: &LockHandle) -> Result<bool> {
        self.look_under(held).await?;
        let known = self.record.forget(&self.key);
        if known {
            self.store(held).await?;
        }
        Ok(known)
    }

    fn on(&mut self, event: OnceEvent) -> OnceAct {
        self.machine.on(self.book.clock.now(), event)
    }

    /// Looks at the record under the lock, or writes it.
    async fn under(&mut self, held: &LockHandle, act: OnceAct) -> Result<OnceEvent> {
        match act {
            OnceAct::LookUnder => {
                self.look_under(held).await?;
                Ok(self.found_under())
            }
            OnceAct::Write(state) => {
                self.note(state, held.token());
                self.store(held).await?;
                Ok(OnceEvent::Written)
            }
            act => unreachable!("{act:?} under the lock"),
        }
    }

    fn note(&mut self, state: KeyState, token: FencingToken) {
        if state.end == AttemptEnd::Begun {
            self.record.begin(&self.key, state.attempts, &self.choices.label, token);
            self.attempt = state.attempts;
            self.begun.extend(self.record.key(&self.key).map(|entry| (token, entry.began())));
        } else {
            self.record.end(&self.key, state.end);
        }
    }

    async fn look_under(&mut self, held: &LockHandle) -> Result<()> {
        let found = held.read(RecordKind::Job).await?;
        let parsed = JobRecord::parse(found.as_ref());
        self.record = parsed.map_err(|error| self.decorate(error, Operation::ReadRecord))?;
        self.note_seen();
        Ok(())
    }

    async fn store(&mut self, held: &LockHandle) -> Result<()> {
        let text = self.record.text()?;
        held.write(RecordKind::Job, &text).await
    }

    fn found(&self) -> Option<KeyState> {
        self.record.key(&self.key).map(KeyEntry::state)
    }

    /// An attempt with another token, or that began at another time, is not our own, whatever its number is. Of
    /// older keys the token is not known.
    fn found_under(&self) -> OnceEvent {
        let own = KeyState { attempts: self.attempt, end: AttemptEnd::Begun };
        let newest = self.record.token_of(&self.key);
        let is_own = |entry: &KeyEntry| {
            let mut begun = self.begun.iter();
            begun.any(|(token, began)| *began == entry.began() && newest.is_none_or(|it| it == *token))
        };
        match self.record.key(&self.key) {
            Some(entry) if entry.state() == own && is_own(entry) => OnceEvent::FoundOwn,
            found => OnceEvent::Found(found.map(KeyEntry::state)),
        }
    }

    /// Others have done the job, or have tried to.
    fn left(&self, end: OnceEnd) -> Result<Once<u32>> {
        let gone = || self.decorate(Error::new(ErrorKind::Internal, "no job"), Operation::ReadRecord);
        let job = self.job().ok_or_else(gone)?;
        Ok(match end {
            OnceEnd::GivenUp => Once::GivenUp(job),
            OnceEnd::FailedElsewhere => Once::FailedElsewhere(job),
            _ => Once::Done(job),
        })
    }

    fn job(&self) -> Option<Job> {
        let (entry, by) = self.record.entries().find(|(entry, _)| entry.key == self.key)?;
        Some(Job::new(&self.name, entry, by))
    }

    fn note_seen(&self) {
        self.book.telemetry.job_seen(&self.name, self.record.last_done());
    }

    async fn pause(&self, error: &Error, pauses: &mut Backoff) {
        tracing::info!(lockwell.name = %self.name, error = format!("{error:#}"), "the record of a job is asked for again");
        pauses.pause_by(&self.book.clock).await;
    }

    /// Takes the lock once more, to write that the key is done. A server that is away is waited for until then.
    async fn take(&self, until: Moment) -> Result<Option<LockGuard>> {
        let choices = Choices { limits: Limits::default(), patience: None, ..self.choices.clone() };
        let (book, name, wait) = (Arc::clone(&self.book), self.name.clone(), Wait::Until(until));
        InTime::new(Checked { book, choices, name, mode: Mode::Exclusive, wait }).await
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

    pub(super) fn decorate(&self, error: Error, operation: Operation) -> Error {
        self.book.decorate(error, operation, Some(&self.name))
    }
}

/// What an error of a request for the record means.
fn heard(error: &Error) -> OnceEvent {
    match error.kind() {
        ErrorKind::Lost => OnceEvent::Lost,
        _ if error.is_retryable() => OnceEvent::NoAnswer,
        _ => OnceEvent::Refused,
    }
}

/// Resolves at the end of this wait.
async fn end_of(clock: &Clock, wait: Wait) {
    match wait {
        Wait::Until(end) => clock.sleep_until(end).await,
        _ => std::future::pending().await,
    }
}

/// Reads the record of a lock's jobs without the lock.
pub(crate) async fn read_jobs(book: &Book, name: &LockName) -> Result<JobRecord> {
    let decorate = |error| book.decorate(error, Operation::ReadRecord, Some(name));
    book.capabilities().check_records().map_err(decorate)?;
    let found = book.backend.read_record(name, RecordKind::Job, None).await.map_err(decorate)?;
    JobRecord::parse(found.as_ref()).map_err(decorate)
}
