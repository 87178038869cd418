//! A piece of the history of one lock around the faults, small enough for the file of the results: what a
//! timeline is drawn from.

use serde::{Deserialize, Serialize};

use lockwell_conformance::history::overlaps as overlaps_of_one;

use super::history::{End, History, Hold};
use super::inject::Happened;
use super::schedule::FaultTarget;

/// So many holds are kept at most.
const MOST: usize = 60;

/// A hold may have been noted so long before its end, in nanoseconds.
const NEAR: u64 = 50_000_000;

/// What happened to one lock. Times are microseconds since the workers began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Excerpt {
    /// Its number.
    pub lock: u32,
    /// The beginning of the excerpt.
    pub from: u64,
    /// Its end.
    pub until: u64,
    /// Who held the lock.
    pub holds: Vec<HeldSpan>,
    /// When two held it that must not.
    pub overlaps: Vec<(u64, u64)>,
    /// When the guarded witness refused something of a worker: it, and when.
    pub refused: Vec<(u32, u64)>,
}

/// One hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldSpan {
    /// The worker that held the lock.
    pub worker: u32,
    /// The task of the worker.
    pub task: u32,
    /// The mode in which it was held.
    pub mode: String,
    /// The fencing token.
    pub token: u64,
    /// When it was granted.
    pub from: u64,
    /// Until when the holder counted as such.
    pub until: u64,
    /// How the hold ended.
    pub end: String,
}

/// That of the lock which says most about the faults, or nothing where there were none.
pub(crate) fn of(history: &History, happened: &[Happened], began: u64, ttl: u64) -> Option<Excerpt> {
    let first = happened.iter().min_by_key(|one| one.from)?;
    let first_until = first.until.max(first.from);
    // Some holds before the fault, and the leases that end after it.
    let (mut from, mut until) = (first.from.saturating_sub(ttl / 2), first_until.saturating_add(2 * ttl));
    let overlaps = overlaps(history);
    if let Some((_, begin, end)) = overlaps.first()
        && !(from..until).contains(begin)
    {
        (from, until) = (begin.saturating_sub(ttl), end.saturating_add(ttl));
    }
    let meets = |hold: &&Hold| hold.from < until && hold.until.max(hold.from) >= from;
    let lock = match overlaps.first() {
        Some((lock, ..)) => *lock,
        None => best(history, happened, (from, until))?,
    };
    let mut holds: Vec<&Hold> =
        history.holds.iter().filter(|hold| hold.ask.lock == lock).filter(meets).collect();
    holds.sort_by_key(|hold| hold.from);
    if holds.len() > MOST {
        // The longest tell most; the short ones would be one line beside the other.
        holds.sort_by_key(|hold| std::cmp::Reverse(hold.until.saturating_sub(hold.from)));
        holds.truncate(MOST);
        holds.sort_by_key(|hold| hold.from);
    }
    let micros = |at: u64| at.saturating_sub(began) / 1000;
    let of_lock: Vec<_> = holds.iter().map(|hold| (hold.ask.who, hold.from, hold.answered)).collect();
    let is_of_lock = |who, at: u64| {
        of_lock.iter().any(|(owner, from, end)| *owner == who && (*from..=(*end).max(*from)).contains(&at))
    };
    Some(Excerpt {
        lock,
        from: micros(from),
        until: micros(until),
        overlaps: overlaps
            .iter()
            .filter(|(other, begin, end)| *other == lock && *begin < until && *end > from)
            .map(|(_, begin, end)| (micros(*begin), micros(*end)))
            .collect(),
        refused: history
            .refused
            .iter()
            .filter(|(who, at)| (from..until).contains(at) && is_of_lock(*who, *at))
            .map(|(who, at)| (who.worker, micros(*at)))
            .collect(),
        holds: holds.into_iter().map(|hold| held(hold, micros)).collect(),
    })
}

fn held(hold: &Hold, micros: impl Fn(u64) -> u64) -> HeldSpan {
    HeldSpan {
        worker: hold.ask.who.worker,
        task: hold.ask.who.task,
        mode: hold.ask.mode.to_string(),
        token: hold.token,
        from: micros(hold.from),
        until: micros(hold.until.max(hold.from)),
        end: format!("{:?}", hold.end).to_lowercase(),
    }
}

/// Times at which two held a lock that must not: the lock, from and until.
fn overlaps(history: &History) -> Vec<(u32, u64, u64)> {
    let mut holds: Vec<&Hold> = history.holds.iter().collect();
    holds.sort_by_key(|hold| (hold.ask.lock, hold.from));
    let mut found = Vec::new();
    for of_lock in holds.chunk_by(|one, next| one.ask.lock == next.ask.lock) {
        overlaps_of_one(of_lock, |before, next| {
            found.push((next.ask.lock, next.from, before.until.min(next.until)));
        });
    }
    found
}

/// The lock that was held when the first fault began and whose holders noticed it; that was held for long;
/// and by few.
fn best(history: &History, happened: &[Happened], (from, until): (u64, u64)) -> Option<u32> {
    let target = |hold: &Hold| {
        happened.iter().any(|one| {
            let is_it = match one.planned.fault.target() {
                FaultTarget::Worker(worker) => worker == hold.ask.who.worker,
                _ => true,
            };
            let is_near =
                hold.from < one.until.saturating_add(NEAR) && hold.until.saturating_add(NEAR) > one.from;
            is_it && is_near
        })
    };
    let weight = |hold: &Hold| {
        let is_odd = matches!(hold.end, End::Expired | End::Taken | End::Unknown | End::Unfinished);
        let length = hold.until.saturating_sub(hold.from) / 1_000_000;
        let is_struck = target(hold);
        length + if is_struck { length } else { 0 } + if is_struck && is_odd { 10_000 } else { 0 }
    };
    let mut weights: std::collections::BTreeMap<u32, u64> = std::collections::BTreeMap::new();
    let within = history.holds.iter().filter(|hold| hold.from < until && hold.until > from);
    for hold in within {
        *weights.entry(hold.ask.lock).or_default() += weight(hold);
    }
    weights.into_iter().max_by_key(|(_, weight)| *weight).map(|(lock, _)| lock)
}

#[cfg(test)]
mod tests {
    use lockwell::Mode;

    use super::super::history::{Ask, Who};
    use super::super::schedule::{Fault, PlannedFault};
    use super::*;

    fn hold(worker: u32, lock: u32, span: (u64, u64), end: End) -> Hold {
        let ask = Ask { who: Who { worker, task: 0 }, lock, mode: Mode::Exclusive, asked: span.0 };
        Hold {
            ask,
            token: 7,
            from: span.0,
            until: span.1,
            end,
            called: span.1,
            answered: span.1,
            told_late: 0,
        }
    }

    fn kill(worker: u32, at: u64) -> Happened {
        let planned = PlannedFault { at: 0, fault: Fault::KillWorker { worker } };
        Happened { planned, from: at, until: at, inner_from: at, inner_until: at, effect: None }
    }

    const MS: u64 = 1_000_000;

    #[test]
    fn it_shows_the_lock_that_was_struck() {
        let history = History {
            holds: vec![
                hold(0, 1, (1000 * MS, 1400 * MS), End::Released),
                hold(1, 2, (1000 * MS, 1200 * MS), End::Unfinished),
                hold(0, 2, (2600 * MS, 2700 * MS), End::Released),
                hold(0, 2, (9000 * MS, 9900 * MS), End::Released),
            ],
            ..History::default()
        };
        let seen = of(&history, &[kill(1, 1200 * MS)], 1000 * MS, 1500 * MS).unwrap();
        assert_eq!((seen.lock, seen.holds.len(), seen.overlaps.len()), (2, 2, 0));
        assert_eq!((seen.holds[0].end.as_str(), seen.holds[1].from), ("unfinished", 1_600_000));
        assert!(of(&history, &[], 0, 1500 * MS).is_none());
    }

    #[test]
    fn it_shows_two_at_once_and_what_was_refused() {
        let history = History {
            holds: vec![
                hold(0, 1, (1000 * MS, 5000 * MS), End::Released),
                hold(1, 3, (8000 * MS, 8500 * MS), End::Expired),
                hold(0, 3, (8400 * MS, 8600 * MS), End::Released),
            ],
            refused: vec![(Who { worker: 1, task: 0 }, 8450 * MS), (Who { worker: 0, task: 0 }, 1200 * MS)],
            ..History::default()
        };
        let seen = of(&history, &[kill(2, 1200 * MS)], 0, 1500 * MS).unwrap();
        assert_eq!((seen.lock, &*seen.overlaps), (3, &[(8_400_000, 8_500_000)][..]));
        assert_eq!(seen.refused, [(1, 8_450_000)]);
    }
}
