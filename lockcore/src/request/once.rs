//! A request for a job that runs once for a key, over all hosts.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::in_time::InTime;
use super::job::Once;
use super::job_steps::JobSteps;
use super::{Choices, LockRequest, One};
use crate::backend::Backoff;
use crate::background::lost_at_work;
use crate::jobs::check_key;
use crate::{Error, ErrorKind, LockGuard, LockHandle, Mode, Operation, Result, Wait};

/// The pauses after a lock that was lost before the job had begun.
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

/// An attempt at a job, for the job itself.
#[derive(Clone, Debug)]
pub struct JobRun {
    held: LockHandle,
    attempt: u32,
}

/// An attempt that has begun.
#[doc(hidden)]
#[derive(Debug)]
pub struct Attempt {
    pub steps: JobSteps,
    pub guard: LockGuard,
    pub number: u32,
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
    /// [wait](LockRequest::wait), which covers a server that is away, as that of a lock does;
    /// [`Lost`](ErrorKind::Lost) if it was lost before the end of the work, or if the work has succeeded and
    /// this could not be written within a minute; [`Unsupported`](ErrorKind::Unsupported) without
    /// [`records`](crate::Requirement::Records);
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
        // What comes before and after the work is large, and is not stored in each future of it.
        let Attempt { mut steps, guard, number } = match Box::pin(self.begin()).await? {
            Once::Ran(attempt) => attempt,
            Once::Done(job) => return Ok(Once::Done(job)),
            Once::FailedElsewhere(job) => return Ok(Once::FailedElsewhere(job)),
            Once::GivenUp(job) => return Ok(Once::GivenUp(job)),
        };
        let run = JobRun { held: guard.handle(), attempt: number };
        let answer = tokio::select! {
            biased;
            answer = work(run) => answer,
            _ = guard.lost() => {
                let error = lost_at_work(guard.renewal_failure());
                return Err(steps.decorate(error, Operation::Hold).into());
            }
            () = steps.too_long() => {
                steps.failed(&guard.handle()).await;
                let error = Error::new(ErrorKind::Lost, "the job took longer than its longest hold: it has failed");
                return Err(steps.decorate(error, Operation::Hold).into());
            }
        };
        match answer {
            Ok(value) => {
                Box::pin(steps.succeeded(&guard.handle())).await?;
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

    /// As far as the work, for callers that do it themselves. [`Once::Ran`]: it is to be done now.
    #[doc(hidden)]
    pub async fn begin(self) -> Result<Once<Attempt>> {
        let (mut steps, request) = self.steps()?;
        let request = request.checked(Choices::until)?;
        if let Some(job) = steps.look_within(request.wait).await? {
            return Ok(Once::Done(job));
        }
        let mut pauses = Backoff::new(PAUSES.0, PAUSES.1);
        loop {
            let mut taking = InTime::new(request.clone());
            let Some(guard) = (&mut taking).await? else { return Err(taking.timed_out()) };
            match steps.begin(&guard.handle()).await {
                Ok(begun) => return Ok(begun.map(|number| Attempt { steps, guard, number })),
                // Nothing has begun.
                Err(error)
                    if error.kind() == ErrorKind::Lost && request.wait != Wait::No && !request.is_late() => {}
                Err(error) => return Err(error),
            }
            pauses.pause_by(&request.book.clock).await;
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
        let longest = choices.limits.max_hold;
        choices.limits.max_hold = longest.map(|most| most.saturating_add(TO_WRITE));
        let what = One { name: Ok(name.clone()), mode: Ok(Mode::Exclusive) };
        let request = LockRequest { book: Arc::clone(&book), choices: choices.clone(), what };
        Ok((JobSteps::new(book, choices, name, (key, attempts), longest), request))
    }
}
