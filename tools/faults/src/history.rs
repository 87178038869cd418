//! What workers note about the locks that they take, and the files in which they note it.
//!
//! One line for each event, written at once, so that the file of a process that is killed is good up to its
//! last line:
//!
//! ```text
//! + TASK LOCK MODE ASKED FROM TOKEN       granted: the validity begins
//! = TASK UNTIL                            still valid
//! - TASK UNTIL END CALLED ANSWERED LATE   the validity has ended, and the release has its answer
//! ? TASK LOCK MODE ASKED ANSWERED WHY     not granted
//! ! TASK AT                               the guard said that it was held after it had said that it was not
//! u TASK AT                               `lost()` says nothing long after the guard was not held any more
//! x TASK AT                               the guarded witness refused a stale read or write
//! ```
//!
//! Times are nanoseconds of the boot clock, which all processes of a host share.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use lockwell::backend::{FencingToken, Mode, Moment};
use lockwell_conformance::history::Held;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl End {
    const ALL: [(Self, &str); 5] = [
        (Self::Released, "released"),
        (Self::Dropped, "dropped"),
        (Self::Expired, "expired"),
        (Self::Taken, "taken"),
        (Self::Unknown, "unknown"),
    ];

    fn word(self) -> &'static str {
        Self::ALL.iter().find(|(end, _)| *end == self).map_or("unfinished", |(_, word)| word)
    }

    fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, other)| *other == word).map(|(end, _)| *end)
    }
}

/// A file that is being written. Its lines go to the operating system one by one.
#[derive(Debug)]
pub(crate) struct Journal(Mutex<File>);

impl Journal {
    pub(crate) fn create(path: &Path) -> Result<Self> {
        Ok(Self(Mutex::new(File::create_new(path)?)))
    }

    fn line(&self, line: &str) {
        let written = self.0.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes());
        // A history with gaps proves nothing.
        assert!(written.is_ok(), "the history cannot be written: {written:?}");
    }

    pub(crate) fn granted(&self, ask: &Ask, from: u64, token: u64) {
        let Ask { who, lock, mode, asked } = ask;
        self.line(&format!("+ {} {lock} {} {asked} {from} {token}\n", who.task, mode.code()));
    }

    pub(crate) fn still_held(&self, who: Who, until: u64) {
        self.line(&format!("= {} {until}\n", who.task));
    }

    pub(crate) fn ended(&self, hold: &Hold) {
        let Hold { ask, until, end, called, answered, told_late, .. } = hold;
        let end = end.word();
        self.line(&format!("- {} {until} {end} {called} {answered} {told_late}\n", ask.who.task));
    }

    /// `why` is the kind of the error, where it is one.
    pub(crate) fn missed(&self, ask: &Ask, answered: u64, why: &str) {
        let Ask { who, lock, mode, asked } = ask;
        self.line(&format!("? {} {lock} {} {asked} {answered} {why}\n", who.task, mode.code()));
    }

    pub(crate) fn revived(&self, who: Who, at: u64) {
        self.line(&format!("! {} {at}\n", who.task));
    }

    pub(crate) fn untold(&self, who: Who, at: u64) {
        self.line(&format!("u {} {at}\n", who.task));
    }

    pub(crate) fn refused(&self, who: Who, at: u64) {
        self.line(&format!("x {} {at}\n", who.task));
    }
}

/// How a wait that ended is written.
pub(crate) const TIMED_OUT: &str = "timed-out";

/// How an attempt without a wait is written for which the lock was not free.
pub(crate) const HELD: &str = "held";

/// How an attempt that was given up is written.
pub(crate) const CANCELLED: &str = "cancelled";

impl History {
    /// Adds the file of a worker. A line without an end was being written when the worker died.
    pub(crate) fn read(&mut self, worker: u32, text: &str) -> Result<()> {
        let mut open: HashMap<u32, Hold> = HashMap::new();
        for (number, line) in text.split_inclusive('\n').enumerate() {
            let Some(line) = line.strip_suffix('\n') else { break };
            self.line(worker, line, &mut open)
                .ok_or_else(|| Error::failed(format!("line {} of a history: {line:?}", number + 1)))?;
        }
        self.holds.extend(open.into_values());
        Ok(())
    }

    fn line(&mut self, worker: u32, line: &str, open: &mut HashMap<u32, Hold>) -> Option<()> {
        let mut words = line.split(' ');
        let (kind, task) = (words.next()?, next(&mut words)?);
        let ask = |words: &mut std::str::Split<'_, char>| {
            let (lock, mode, asked) = (next(words)?, Mode::from_code(next(words)?)?, next(words)?);
            Some(Ask { who: Who { worker, task }, lock, mode, asked })
        };
        match kind {
            "+" => {
                let (ask, from, token) = (ask(&mut words)?, next(&mut words)?, next(&mut words)?);
                let (until, end) = (from, End::Unfinished);
                let hold = Hold { ask, token, from, until, end, called: 0, answered: 0, told_late: 0 };
                // A task has one hold at a time.
                return open.insert(task, hold).is_none().then_some(());
            }
            "=" => open.get_mut(&task)?.until = next(&mut words)?,
            "-" => {
                let hold = open.remove(&task)?;
                let (until, end) = (next(&mut words)?, End::parse(words.next()?)?);
                let (called, answered) = (next(&mut words)?, next(&mut words)?);
                let told_late = next(&mut words)?;
                self.holds.push(Hold { until, end, called, answered, told_late, ..hold });
            }
            "?" => {
                let (ask, answered, why) = (ask(&mut words)?, next(&mut words)?, words.next()?);
                let why = match why {
                    TIMED_OUT => Why::TimedOut,
                    HELD => Why::Held,
                    CANCELLED => Why::Cancelled,
                    error => {
                        *self.errors.entry(error.to_owned()).or_default() += 1;
                        Why::Failed
                    }
                };
                self.misses.push(Miss { ask, answered, why });
            }
            "!" => self.revived += 1,
            "u" => self.untold += 1,
            "x" => self.refused.push((Who { worker, task }, next(&mut words)?)),
            _ => return None,
        }
        Some(())
    }

    /// How many attempts it has, granted or not.
    pub(crate) fn operations(&self) -> u64 {
        u64::try_from(self.holds.len() + self.misses.len()).unwrap_or(u64::MAX)
    }
}

fn next<T: FromStr>(words: &mut std::str::Split<'_, char>) -> Option<T> {
    words.next()?.parse().ok()
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
        journal.missed(&ask, 50, TIMED_OUT);
        journal.missed(&ask, 60, "Unreachable");
        journal.revived(WHO, 70);
        journal.untold(WHO, 75);
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
        history.read(1, "+ 0 2 0 10 20 5\n= 0 25\n= 0 2").unwrap();
        let hold = history.holds[0];
        assert_eq!((hold.until, hold.end), (25, End::Unfinished));
    }

    #[test]
    fn what_is_not_a_history_is_refused() {
        for bad in [
            "y 1\n",
            "x 1\n",
            "+ 1 2\n",
            "- 1 2 released 3 4 0\n",
            "= 1 1\n",
            "+ 0 2 0 1 2 3\n+ 0 2 0 1 2 4\n",
        ] {
            assert!(History::default().read(0, bad).is_err(), "{bad:?}");
        }
    }
}
