//! What is known of jobs that run once for a key.

use std::time::{Duration, SystemTime};

use crate::jobs::{AttemptEnd, KeyEntry};
use crate::{FencingToken, LockName};

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

impl<T> Once<T> {
    pub(super) fn map<U>(self, ran: impl FnOnce(T) -> U) -> Once<U> {
        match self {
            Self::Ran(value) => Once::Ran(ran(value)),
            Self::Done(job) => Once::Done(job),
            Self::FailedElsewhere(job) => Once::FailedElsewhere(job),
            Self::GivenUp(job) => Once::GivenUp(job),
        }
    }
}

impl Job {
    pub(crate) fn new(name: &LockName, entry: &KeyEntry, by: Option<(&str, FencingToken)>) -> Self {
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
