//! Whether what the workers noted can have happened with a lock that keeps its promises: the rules of
//! `lockwell_conformance::history`, and those about faults. Every rule is sound: what it finds is wrong with
//! the lock, however late an answer or a thread was.

mod liveness;
pub(crate) mod rules;
mod validity;

use std::collections::BTreeMap;
use std::time::Duration;

use lockwell::Mode;
use lockwell_conformance::history;

use super::history::{End, History, Hold};
use crate::checker::rules::{Findings, Found, OfLock, Rules, Span, words};

/// Checks a history.
pub(crate) fn check(history: &History, rules: &Rules) -> Findings {
    let mut locks: BTreeMap<u32, OfLock> = BTreeMap::new();
    for hold in &history.holds {
        locks.entry(hold.ask.lock).or_default().holds.push(*hold);
    }
    for miss in &history.misses {
        locks.entry(miss.ask.lock).or_default().misses.push(*miss);
    }
    let mut findings = Findings { revived: history.revived, ..Findings::default() };
    let calm = liveness::Disturbed::new(rules);
    let [mut falls, mut twice, mut foreign, mut late, mut order, mut untold, mut ran_out]: [Found; 7] =
        Default::default();
    let mut overlaps = validity::Overlaps::default();
    for lock in locks.values_mut() {
        rules.mark_passed_on(&mut lock.holds);
        lock.holds.sort_by_key(|hold| (hold.from, hold.until));
        validity::overlaps(&lock.holds, rules, &mut overlaps);
        validity::foreign_releases(&lock.holds, &mut foreign);
        validity::outages(&lock.holds, rules, &mut untold);
        validity::ran_out(&lock.holds, &calm, &mut ran_out);
        history::tokens_twice(&lock.holds, |other, next| {
            twice.add(|| format!("one token twice: {}; {}", words(other), words(next)));
        });
        // The news of a grant to somebody who was deprived of the lock at once may come later than that of
        // the next one's.
        let was_valid = |hold: &&Hold| hold.until > hold.from && !rules.may_be_deprived(hold);
        let valid: Vec<&Hold> = lock.holds.iter().filter(was_valid).collect();
        history::tokens_fallen(&valid, |before, next| {
            falls.add(|| format!("the later token is not higher: {}; {}", words(before), words(next)));
        });
        let longest = liveness::withheld(lock, rules, &calm, &mut late);
        findings.longest_withheld_us = findings.longest_withheld_us.max(longest / 1000);
        if let Some(grace) = rules.in_order {
            // Readers come in together, and who waited while a fault was at work may have lost the place.
            let is_judged = |hold: &&Hold| {
                let waited = Span { from: hold.ask.asked, until: hold.from };
                hold.ask.mode == Mode::Exclusive && !calm.touches(waited)
            };
            let judged: Vec<&Hold> = lock.holds.iter().filter(is_judged).collect();
            history::out_of_order(&judged, Duration::from_nanos(grace), |late, first| {
                let (lock, waited) = (late.ask.lock, (late.from - first.ask.asked) / 1000);
                let (late, first) = (late.ask.who, first.ask.who);
                order.add(|| {
                    format!(
                        "lock {lock} was granted to {late} before {first}, who had waited for {waited} us"
                    )
                });
            });
        }
    }
    let mut cut_off = Found::default();
    liveness::cut_off(history, rules, &calm, &mut cut_off);
    let (mut taken, mut deprived) = (Found::default(), 0);
    let freed: u64 = rules.deprived.iter().map(|one| one.holders).sum();
    for hold in history.holds.iter().filter(|hold| hold.end == End::Taken) {
        deprived += u64::from(rules.may_be_deprived(hold));
        if !rules.may_be_deprived(hold) || deprived > freed {
            taken.add(|| format!("taken from its holder: {}", words(hold)));
        }
    }
    let examples = &mut findings.examples;
    findings.overlaps = overlaps.found.into(examples);
    findings.overlaps_before = overlaps.before;
    findings.overlaps_after_force = overlaps.after_force;
    findings.longest_overlap_us = overlaps.longest / 1000;
    findings.tokens_fallen = falls.into(examples);
    findings.tokens_twice = twice.into(examples);
    findings.foreign_releases = foreign.into(examples);
    findings.late_grants = late.into(examples);
    findings.cut_off = cut_off.into(examples);
    findings.out_of_order = order.into(examples);
    findings.not_told = untold.into(examples) + history.untold;
    findings.ran_out = ran_out.into(examples);
    findings.taken = taken.into(examples);
    findings
}

#[cfg(test)]
mod tests;
