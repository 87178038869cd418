//! What workers note about the locks that they take, and the files in which they note it.
//!
//! One line of JSON for each event, written at once, so that the file of a process that is killed is good up
//! to its last line. Times are nanoseconds of the boot clock, which all processes of a host share.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use lockwell::backend::{FencingToken, Mode, Moment};
use lockwell_conformance::history::Held;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// A task of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Who {
    pub(crate) worker: u32,
    pub(crate) task: u32,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {} task {}", self.worker, self.task)
    }
}

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) who: Who,
    /// The number of the lock.
    pub(crate) lock: u32,
    pub(crate) mode: Mode,
    /// Just before the call.
    pub(crate) asked: u64,
}

/// A lock that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) ask: Ask,
    pub(crate) token: u64,
    /// Just after the grant.
    pub(crate) from: u64,
    /// A moment just before the last one at which the guard said that it was held.
    pub(crate) until: u64,
    pub(crate) end: End,
    /// When the release was called, and when it had its answer; 0 if it was not.
    pub(crate) called: u64,
    pub(crate) answered: u64,
    /// How long after the deadline its loss was told, if it was.
    pub(crate) told_late: u64,
}

impl Held for Hold {
    fn mode(&self) -> Mode {
        self.ask.mode
    }

    fn token(&self) -> FencingToken {
        FencingToken::new(self.token)
    }

    fn asked(&self) -> Moment {
        Moment::from_nanos(self.ask.asked)
    }

    fn from(&self) -> Moment {
        Moment::from_nanos(self.from)
    }

    fn until(&self) -> Moment {
        Moment::from_nanos(self.until)
    }
}

/// How a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum End {
    /// The release was confirmed.
    Released,
    /// The guard was dropped.
    Dropped,
    /// The lease ran out.
    Expired,
    /// The server had given the lock to another, or to nobody, before that.
    Taken,
    /// The release has no answer.
    Unknown,
    /// The worker died, or the file ends.
    Unfinished,
}

/// An attempt that was not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Miss {
    pub(crate) ask: Ask,
    pub(crate) answered: u64,
    pub(crate) why: Why,
}

/// Why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Another had it, until the wait ended.
    TimedOut,
    /// Another had it, and it was not waited for.
    Held,
    /// The caller went away.
    Cancelled,
    /// An error.
    Failed,
}

/// All that was noted.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) holds: Vec<Hold>,
    pub(crate) misses: Vec<Miss>,
    /// Errors, by kind.
    pub(crate) errors: BTreeMap<String, u64>,
    /// Guards that were held after they had been lost.
    pub(crate) revived: u64,
    /// Holders whom `lost()` did not tell.
    pub(crate) untold: u64,
    /// When the guarded witness refused something, and whose it was.
    pub(crate) refused: Vec<(Who, u64)>,
}

/// A line of a file: what a task notes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
enum Event {
    /// The validity begins. The mode is its code.
    Granted {
        lock: u32,
        mode: i64,
        asked: u64,
        from: u64,
        token: u64,
    },
    StillHeld {
        until: u64,
    },
    /// The validity has ended, and the release has its answer.
    Ended {
        until: u64,
        end: End,
        called: u64,
        answered: u64,
        told_late: u64,
    },
    /// Not granted.
    Missed {
        lock: u32,
        mode: i64,
        asked: u64,
        answered: u64,
        why: String,
    },
    /// The guard said that it was held after it had said that it was not.
    Revived,
    /// `lost()` says nothing long after the guard was not held any more.
    Untold,
    /// The guarded witness refused a stale read or write.
    Refused {
        at: u64,
    },
}

/// The event and its task.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    task: u32,
    #[serde(flatten)]
    event: Event,
}

/// A file that is being written. Its lines go to the operating system one by one.
#[derive(Debug)]
pub(crate) struct Journal(Mutex<File>);

impl Journal {
    pub(crate) fn create(path: &Path) -> Result<Self> {
        Ok(Self(Mutex::new(File::create_new(path)?)))
    }

    fn note(&self, who: Who, event: Event) {
        self.write(&Line { task: who.task, event });
    }

    pub(crate) fn write(&self, line: &impl Serialize) {
        let line = serde_json::to_string(line).map(|line| line + "\n");
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let written = line.map_err(Into::into).and_then(|line| file.write_all(line.as_bytes()));
        // A history with gaps proves nothing.
        assert!(written.is_ok(), "the history cannot be written: {written:?}");
    }

    pub(crate) fn granted(&self, ask: &Ask, from: u64, token: u64) {
        let Ask { who, lock, mode, asked } = *ask;
        self.note(who, Event::Granted { lock, mode: mode.code(), asked, from, token });
    }

    pub(crate) fn still_held(&self, who: Who, until: u64) {
        self.note(who, Event::StillHeld { until });
    }

    pub(crate) fn ended(&self, hold: &Hold) {
        let Hold { ask, until, end, called, answered, told_late, .. } = *hold;
        self.note(ask.who, Event::Ended { until, end, called, answered, told_late });
    }

    /// `why` is the kind of the error, where it is one.
    pub(crate) fn missed(&self, ask: &Ask, answered: u64, why: String) {
        let Ask { who, lock, mode, asked } = *ask;
        self.note(who, Event::Missed { lock, mode: mode.code(), asked, answered, why });
    }

    pub(crate) fn revived(&self, who: Who) {
        self.note(who, Event::Revived);
    }

    pub(crate) fn untold(&self, who: Who) {
        self.note(who, Event::Untold);
    }

    pub(crate) fn refused(&self, who: Who, at: u64) {
        self.note(who, Event::Refused { at });
    }
}

/// How a wait that ended is written.
pub(crate) const TIMED_OUT: &str = "timed-out";

/// How an attempt without a wait is written for which the lock was not free.
pub(crate) const HELD: &str = "held";

/// How an attempt that was given up is written.
pub(crate) const CANCELLED: &str = "cancelled";

/// The lines of a file. One without an end was being written when the worker died.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive('\n').map_while(|line| line.strip_suffix('\n'))
}

impl History {
    /// Adds the file of a worker.
    pub(crate) fn read(&mut self, worker: u32, text: &str) -> Result<()> {
        let mut open: HashMap<u32, Hold> = HashMap::new();
        for (number, line) in lines(text).enumerate() {
            serde_json::from_str(line)
                .ok()
                .and_then(|line| self.add(worker, line, &mut open))
                .ok_or_else(|| Error::failed(format!("line {} of a history: {line:?}", number + 1)))?;
        }
        self.holds.extend(open.into_values());
        Ok(())
    }

    fn add(&mut self, worker: u32, line: Line, open: &mut HashMap<u32, Hold>) -> Option<()> {
        let Line { task, event } = line;
        let who = Who { worker, task };
        let ask = |lock, mode, asked| Some(Ask { who, lock, mode: Mode::from_code(mode)?, asked });
        match event {
            Event::Granted { lock, mode, asked, from, token } => {
                let (ask, end) = (ask(lock, mode, asked)?, End::Unfinished);
                let hold = Hold { ask, token, from, until: from, end, called: 0, answered: 0, told_late: 0 };
                // A task has one hold at a time.
                return open.insert(task, hold).is_none().then_some(());
            }
            Event::StillHeld { until } => open.get_mut(&task)?.until = until,
            Event::Ended { until, end, called, answered, told_late } => {
                let hold = open.remove(&task)?;
                self.holds.push(Hold { until, end, called, answered, told_late, ..hold });
            }
            Event::Missed { lock, mode, asked, answered, why } => {
                let ask = ask(lock, mode, asked)?;
                let why = match &*why {
                    TIMED_OUT => Why::TimedOut,
                    HELD => Why::Held,
                    CANCELLED => Why::Cancelled,
                    _ => {
                        *self.errors.entry(why).or_default() += 1;
                        Why::Failed
                    }
                };
                self.misses.push(Miss { ask, answered, why });
            }
            Event::Revived => self.revived += 1,
            Event::Untold => self.untold += 1,
            Event::Refused { at } => self.refused.push((who, at)),
        }
        Some(())
    }

    /// How many attempts it has, granted or not.
    pub(crate) fn operations(&self) -> u64 {
        u64::try_from(self.holds.len() + self.misses.len()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHO: Who = Who { worker: 3, task: 7 };

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        let journal = Journal::create(&path).unwrap();
        let ask = Ask { who: WHO, lock: 2, mode: Mode::Shared, asked: 10 };
        journal.granted(&ask, 20, 5);
        journal.still_held(WHO, 25);
        let hold = Hold {
            ask,
            token: 5,
            from: 20,
            until: 30,
            end: End::Taken,
            called: 31,
            answered: 40,
            told_late: 9,
        };
        journal.ended(&hold);
        journal.missed(&ask, 50, TIMED_OUT.to_owned());
        journal.missed(&ask, 60, "Unreachable".to_owned());
        journal.revived(WHO);
        journal.untold(WHO);
        journal.refused(WHO, 80);
        let mut history = History::default();
        history.read(3, &std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(history.holds, [hold]);
        let misses: Vec<_> = history.misses.iter().map(|miss| (miss.answered, miss.why)).collect();
        assert_eq!(misses, [(50, Why::TimedOut), (60, Why::Failed)]);
        assert_eq!(history.refused, [(WHO, 80)]);
        assert_eq!((history.errors["Unreachable"], history.revived, history.untold), (1, 1, 1));
        assert_eq!(history.operations(), 3);
    }

    #[test]
    fn a_worker_that_was_killed_was_the_holder_until_its_last_line() {
        let mut history = History::default();
        let granted = r#"{"task":0,"event":"granted","lock":2,"mode":0,"asked":10,"from":20,"token":5}"#;
        let held = r#"{"task":0,"event":"still_held","until":25}"#;
        history.read(1, &format!("{granted}\n{held}\n{{\"task\":0")).unwrap();
        let hold = history.holds[0];
        assert_eq!((hold.until, hold.end), (25, End::Unfinished));
        // What is not a history is refused.
        for bad in ["y\n".to_owned(), format!("{held}\n"), format!("{granted}\n{granted}\n")] {
            assert!(History::default().read(0, &bad).is_err(), "{bad:?}");
        }
    }
}
