//! What hosts note about the jobs that they run.
//!
//! A line of JSON for each event, as in other histories, and a file for each process: a host that was killed
//! is followed by one with the next number.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Firing;
use crate::error::{Error, Result};
use crate::history::lines;

/// The event, and what it is about.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) job: u32,
    pub(super) key: u32,
    #[serde(flatten)]
    pub(super) event: Event,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub(super) enum Event {
    /// The host starts the job.
    Asked,
    /// An attempt begins, under the lock if it is held.
    Began { attempt: u32, at: u64, held: bool },
    /// Its work is done, under the lock if it is held.
    Worked { at: u64, held: bool },
    /// It has failed by itself.
    Failed { at: u64 },
    /// What lockwell says of it in the end.
    Told { at: u64, end: Told },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Told {
    Ran,
    Done,
    GivenUp,
    FailedElsewhere,
    Failed,
    /// A kind of error.
    Refused(String),
}

/// How an attempt has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttemptEnd {
    Worked,
    Failed,
    /// The lock was lost.
    Lost,
    /// Its process was killed.
    Died,
    /// Nobody knows.
    Open,
}

/// An attempt at a job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub(super) worker: u32,
    pub(super) number: u32,
    pub(super) began: u64,
    /// Whether it began under the lock.
    pub(super) held: bool,
    pub(super) end: AttemptEnd,
    /// When it ended.
    pub(super) ended: u64,
    /// The last moment at which it was under the lock.
    pub(super) until: u64,
}

/// What was noted about a job and a key.
#[derive(Debug, Default)]
pub(super) struct OfKey {
    pub(super) attempts: Vec<Attempt>,
    pub(super) told: Vec<(u64, Told)>,
}

/// What all hosts have noted.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(super) firings: BTreeMap<Firing, OfKey>,
    /// How often hosts have started jobs.
    pub(super) asked: u64,
    /// Errors, by kind.
    pub(super) errors: BTreeMap<String, u64>,
    /// How many attempts each process of each worker took along when it was killed.
    pub(super) died: BTreeMap<u32, Vec<u64>>,
}

impl Notes {
    /// Adds what the processes of a worker have noted. All but the last of them were killed.
    pub(crate) fn read(&mut self, worker: u32, history: &Path) -> Result<()> {
        let file = |process: u32| format!("{}.{process}", history.display());
        let texts = (0..).map_while(|process| std::fs::read_to_string(file(process)).ok());
        let texts: Vec<String> = texts.collect();
        let last = texts.len().checked_sub(1).ok_or_else(|| Error::failed("a host has noted nothing"))?;
        for (process, text) in texts.iter().enumerate() {
            let died = self.add(worker, text, process < last)?;
            self.died.entry(worker).or_default().push(died);
        }
        Ok(())
    }

    fn add(&mut self, worker: u32, text: &str, was_killed: bool) -> Result<u64> {
        let mut open: HashMap<u32, Firing> = HashMap::new();
        for line in lines(text) {
            let bad = || Error::failed(format!("a line of a history of jobs: {line:?}"));
            let Line { job, key, event } = serde_json::from_str(line).map_err(|_| bad())?;
            let firing = Firing { job, key };
            let of = self.firings.entry(firing).or_default();
            match event {
                Event::Asked => self.asked += 1,
                Event::Began { attempt: number, at, held } => {
                    let end = AttemptEnd::Open;
                    let attempt = Attempt { worker, number, began: at, held, end, ended: at, until: at };
                    of.attempts.push(attempt);
                    // A host does one job at a time.
                    if open.insert(job, firing).is_some() {
                        return Err(bad());
                    }
                }
                Event::Worked { at, held } => {
                    open.remove(&job).ok_or_else(bad)?;
                    of.end(worker, AttemptEnd::Worked, at, held);
                }
                Event::Failed { at } => {
                    open.remove(&job).ok_or_else(bad)?;
                    of.end(worker, AttemptEnd::Failed, at, false);
                }
                Event::Told { at, end } => {
                    if let Told::Refused(kind) = &end {
                        *self.errors.entry(kind.clone()).or_default() += 1;
                    }
                    if open.remove(&job).is_some() {
                        of.end(worker, AttemptEnd::Lost, at, false);
                    }
                    of.told.push((at, end));
                }
            }
        }
        let died = if was_killed { open.len() } else { 0 };
        for firing in open.into_values().filter(|_| was_killed) {
            let of = self.firings.entry(firing).or_default();
            of.end(worker, AttemptEnd::Died, 0, false);
        }
        Ok(u64::try_from(died).unwrap_or(u64::MAX))
    }
}

impl OfKey {
    /// The last attempt of this worker has ended.
    fn end(&mut self, worker: u32, end: AttemptEnd, at: u64, held: bool) {
        if let Some(attempt) = self.attempts.iter_mut().rev().find(|attempt| attempt.worker == worker) {
            attempt.end = end;
            attempt.ended = attempt.ended.max(at);
            attempt.until = if held { at } else { attempt.until };
        }
    }
}
