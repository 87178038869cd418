//! Whether what hosts noted can have happened with jobs that keep their promises: each key succeeds unless
//! its attempts are used up, has no more attempts than that, and rests once its success is known.
//!
//! Every rule is sound: what it finds is wrong, however late a host was.

use std::collections::BTreeMap;

use lockwell::{JobState, Locks};

use super::notes::{Attempt, AttemptEnd, Notes, OfKey, Told};
use super::{ATTEMPTS, Firing};
use crate::checker::rules::{Findings, Found};
use crate::error::Result;
use crate::inject::Happened;
use crate::result::Counts;
use crate::schedule::Fault;

/// What the server has stored of a job and a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    attempts: u32,
    is_done: bool,
}

impl Stored {
    /// Whether nobody begins it again.
    pub(super) fn is_over(self) -> bool {
        self.is_done || self.attempts >= ATTEMPTS
    }
}

/// What is stored of the jobs with these names.
pub(crate) async fn stored(locks: &Locks, names: &[String]) -> Result<BTreeMap<Firing, Stored>> {
    let mut all = BTreeMap::new();
    for (job, name) in (0..).zip(names) {
        for stored in locks.job(name.as_str()).await? {
            let firing = Firing::of(job, &stored.key)?;
            let is_done = stored.state == JobState::Done;
            all.insert(firing, Stored { attempts: stored.attempts, is_done });
        }
    }
    Ok(all)
}

/// Adds what is wrong. `stored` is what is stored in the end.
pub(crate) fn check(notes: &Notes, stored: &BTreeMap<Firing, Stored>, findings: &mut Findings) {
    let (mut repeated, mut undone, mut overlaps) = <(Found, Found, Found)>::default();
    let mut of_jobs: BTreeMap<u32, Vec<Attempt>> = BTreeMap::new();
    for (firing, of) in &notes.firings {
        of_jobs.entry(firing.job).or_default().extend(&of.attempts);
        let stored = stored.get(firing).copied();
        too_often(*firing, of, stored, &mut repeated);
        not_done(*firing, of, stored, &mut undone);
    }
    for (job, attempts) in &mut of_jobs {
        two_at_once(*job, attempts, &mut overlaps);
    }
    let examples = &mut findings.examples;
    findings.overlaps += overlaps.into(examples);
    findings.jobs_repeated = repeated.into(examples);
    findings.jobs_not_done = undone.into(examples);
}

/// Adds what was done.
pub(crate) fn count(notes: &Notes, counts: &mut Counts) {
    let attempts = || notes.firings.values().flat_map(|of| &of.attempts);
    let number = |end: Option<AttemptEnd>| {
        let those = attempts().filter(|attempt| end.is_none_or(|end| attempt.end == end));
        u64::try_from(those.count()).unwrap_or(u64::MAX)
    };
    counts.operations += notes.asked;
    counts.grants += number(None);
    counts.taken += number(Some(AttemptEnd::Lost));
    counts.unfinished += number(Some(AttemptEnd::Died));
    for (kind, times) in &notes.errors {
        *counts.errors.entry(kind.clone()).or_default() += times;
    }
}

/// Notes how many attempts each kill of a host took along.
pub(crate) fn effects(notes: &Notes, happened: &mut [Happened]) {
    happened.sort_by_key(|one| one.from);
    let mut process: BTreeMap<u32, usize> = BTreeMap::new();
    for one in happened {
        if let Fault::CrashWorker { worker, .. } = one.planned.fault {
            let process = process.entry(worker).or_default();
            let died = notes.died.get(&worker).and_then(|died| died.get(*process));
            one.effect = Some(died.copied().unwrap_or(0));
            *process += 1;
        }
    }
}

fn is_success(told: &Told) -> bool {
    matches!(told, Told::Ran | Told::Done)
}

fn too_often(firing: Firing, of: &OfKey, stored: Option<Stored>, found: &mut Found) {
    let Firing { job, key } = firing;
    let mut numbers: Vec<u32> = of.attempts.iter().map(|attempt| attempt.number).collect();
    numbers.sort_unstable();
    let is_within = numbers.last().is_none_or(|last| *last <= ATTEMPTS);
    if !is_within || numbers.windows(2).any(|pair| pair[0] == pair[1]) {
        found.add(|| format!("job {job} key {key} had the attempts {numbers:?} of {ATTEMPTS}"));
    }
    let recorded = stored.map_or(0, |stored| stored.attempts);
    if numbers.last().is_some_and(|last| *last > recorded) {
        found.add(|| format!("job {job} key {key} had the attempts {numbers:?}, recorded are {recorded}"));
    }
    let ran = of.told.iter().filter(|(_, told)| *told == Told::Ran).count();
    if ran > 1 {
        found.add(|| format!("job {job} key {key} was recorded as done {ran} times"));
    }
    let known = of.told.iter().filter(|(_, told)| is_success(told)).map(|(at, _)| *at).min();
    let again = |attempt: &&Attempt| attempt.held && known.is_some_and(|known| attempt.began > known);
    if let Some(again) = of.attempts.iter().find(again) {
        let (worker, number) = (again.worker, again.number);
        found.add(|| format!("job {job} key {key} was done, and worker {worker} began attempt {number}"));
    }
}

fn not_done(firing: Firing, of: &OfKey, stored: Option<Stored>, found: &mut Found) {
    let Firing { job, key } = firing;
    let worked = of.attempts.iter().filter(|attempt| attempt.end == AttemptEnd::Worked);
    let first = worked.map(|attempt| attempt.ended).min();
    for (at, told) in of.told.iter().filter(|(_, told)| is_success(told)) {
        if first.is_none_or(|first| first > *at) {
            found
                .add(|| format!("job {job} key {key} is said to be done ({told:?}), and nobody has done it"));
        }
    }
    let is_done = stored.is_some_and(|stored| stored.is_done);
    let was_done = of.told.iter().any(|(_, told)| is_success(told));
    if is_done && first.is_none() {
        found.add(|| format!("job {job} key {key} is recorded as done, and nobody has done it"));
    }
    if !is_done && (was_done || !stored.is_some_and(Stored::is_over)) {
        found.add(|| format!("job {job} key {key} is not done in the end: {stored:?}, {of:?}"));
    }
    if of.attempts.iter().any(|attempt| attempt.end == AttemptEnd::Open) {
        found.add(|| format!("job {job} key {key} has an attempt that did not end: {of:?}"));
    }
}

/// The attempts at a job exclude each other, whatever their keys are.
fn two_at_once(job: u32, attempts: &mut Vec<Attempt>, found: &mut Found) {
    attempts.retain(|attempt| attempt.held);
    attempts.sort_by_key(|attempt| attempt.began);
    let mut until = 0;
    for attempt in attempts {
        if attempt.began < until {
            let Attempt { worker, number, began, .. } = *attempt;
            found.add(|| {
                format!("job {job}: worker {worker} began attempt {number} at {began}, and another was under way until {until}")
            });
        }
        until = until.max(attempt.until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRING: Firing = Firing { job: 0, key: 0 };

    fn attempt(worker: u32, number: u32, began: u64, end: AttemptEnd, ended: u64) -> Attempt {
        let until = if end == AttemptEnd::Worked { ended } else { began };
        Attempt { worker, number, began, held: true, end, ended, until }
    }

    /// What is found of a key: jobs that ran too often, that were not done, and that overlap.
    fn found(attempts: &[Attempt], told: &[(u64, Told)], stored: Option<(u32, bool)>) -> [u64; 3] {
        let of = OfKey { attempts: attempts.to_vec(), told: told.to_vec() };
        let notes = Notes { firings: [(FIRING, of)].into(), ..Notes::default() };
        let stored = stored.map(|(attempts, is_done)| (FIRING, Stored { attempts, is_done }));
        let mut findings = Findings::default();
        check(&notes, &stored.into_iter().collect(), &mut findings);
        [findings.jobs_repeated, findings.jobs_not_done, findings.overlaps]
    }

    #[test]
    fn what_may_happen_is_clean() {
        use AttemptEnd::{Died, Failed, Lost, Worked};
        let one = attempt(0, 1, 10, Worked, 20);
        assert_eq!(found(&[one], &[(30, Told::Ran), (31, Told::Done)], Some((1, true))), [0; 3]);
        // The first did all of it, and died before that was recorded; or lost the lock, and wrote it later.
        let two = [one, attempt(1, 2, 40, Worked, 50)];
        assert_eq!(found(&two, &[(60, Told::Ran)], Some((2, true))), [0; 3]);
        let three = [attempt(0, 1, 10, Died, 10), attempt(1, 2, 40, Lost, 50), attempt(0, 3, 60, Failed, 70)];
        assert_eq!(found(&three, &[(80, Told::GivenUp)], Some((3, false))), [0; 3]);
        // An attempt that was killed before it noted anything.
        assert_eq!(found(&[attempt(1, 2, 40, Worked, 50)], &[(60, Told::Ran)], Some((2, true))), [0; 3]);
    }

    #[test]
    fn jobs_that_run_too_often_are_found() {
        use AttemptEnd::{Died, Failed, Worked};
        let done = attempt(0, 1, 10, Worked, 20);
        let told = [(30, Told::Ran)];
        let again = [done, attempt(1, 2, 40, Worked, 50)];
        assert_eq!(found(&again, &told, Some((2, true))), [1, 0, 0], "its success was known");
        let twice = [attempt(0, 1, 10, Died, 10), attempt(1, 1, 40, Worked, 50)];
        assert_eq!(found(&twice, &[(60, Told::Ran)], Some((1, true))), [1, 0, 0], "the same number twice");
        let four: Vec<_> =
            (1..=4).map(|number| attempt(0, number, 10 * u64::from(number), Failed, 0)).collect();
        assert_eq!(found(&four, &[], Some((4, false))), [1, 0, 0], "more attempts than there are");
        assert_eq!(found(&again[1..], &[], Some((1, true))), [1, 0, 0], "more than are recorded");
        assert_eq!(found(&[done], &[(30, Told::Ran), (40, Told::Ran)], Some((1, true))), [1, 0, 0]);
        let at_once = [attempt(0, 1, 10, Worked, 50), attempt(1, 2, 40, Worked, 60)];
        assert_eq!(found(&at_once, &[(70, Told::Ran)], Some((2, true))), [0, 0, 1]);
    }

    #[test]
    fn jobs_that_are_not_done_are_found() {
        use AttemptEnd::{Died, Open, Worked};
        let died = attempt(0, 1, 10, Died, 10);
        assert_eq!(found(&[died], &[], Some((1, false))), [0, 1, 0], "it has attempts left");
        assert_eq!(found(&[], &[], None), [0, 1, 0], "nobody knows it");
        // Told and recorded.
        assert_eq!(found(&[died], &[(30, Told::Done)], Some((1, true))), [0, 2, 0], "nobody has done it");
        let done = attempt(0, 1, 10, Worked, 20);
        assert_eq!(found(&[done], &[(15, Told::Done)], Some((1, true))), [0, 1, 0], "not yet");
        assert_eq!(found(&[done], &[(30, Told::Ran)], Some((3, false))), [0, 1, 0], "it is forgotten");
        assert_eq!(found(&[attempt(0, 1, 10, Open, 10)], &[], Some((3, false))), [0, 1, 0]);
    }

    #[test]
    fn a_kill_has_the_effect_that_attempts_died() {
        let mut notes = Notes::default();
        notes.died.insert(1, vec![0, 2, 0]);
        let crash = |at, worker| Happened {
            planned: crate::schedule::PlannedFault { at, fault: Fault::CrashWorker { worker, millis: 0 } },
            from: at,
            until: at,
            inner_from: at,
            inner_until: at,
            effect: None,
        };
        let mut happened = [crash(30, 1), crash(10, 1), crash(20, 0)];
        effects(&notes, &mut happened);
        assert_eq!(happened.map(|one| (one.from, one.effect)), [(10, Some(0)), (20, Some(0)), (30, Some(2))]);
    }
}
