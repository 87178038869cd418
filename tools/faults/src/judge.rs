//! What a run was allowed to do, what it did, and the verdict.

use std::collections::BTreeMap;
use std::mem::discriminant;
use std::time::Duration;

use lockwell::Mode;

use super::history::{End, History, Hold};
use super::inject::Happened;
use super::kind::Kind;
use super::result::{Counts, Verdict};
use super::scenario::Expected;
use super::schedule::{Fault, FaultTarget};
use super::witness::Testimony;
use crate::checker::rules::{Deprived, Findings, Outage, Rules, Span};
use crate::error::Result;
use crate::plan::in_order;
use crate::run::Run;
use crate::time::nanos_of;

/// How long a free lock may be withheld from those who wait. Behind each notification stands a look, at the
/// latest after 1.3 s on most backends; the rest is for a busy machine.
pub(super) const BOUND: Duration = Duration::from_secs(4);

/// How many operations a run has at least to say anything.
const LEAST: u64 = 50;

/// So long after a fault a time without grants is put down to it, in nanoseconds.
const AFTERWARDS: u64 = 10_000_000_000;

/// What the checker judges this run by.
pub(super) fn rules(run: &Run<'_>, happened: &[Happened], deprived: Vec<Deprived>, until: u64) -> Rules {
    // Nothing is granted in a grace period, and after it those who wait begin anew.
    let grace = nanos_of(run.scenario.setup.grace());
    let span = |one: &Happened| Span { from: one.from, until: one.until + grace };
    let mut faults: Vec<Span> = happened.iter().map(span).collect();
    // At the end everybody leaves, at a different moment each.
    faults.push(Span { from: until, until: u64::MAX });
    if run.scenario.crew.pauses {
        faults.push(Span { from: 0, until: u64::MAX });
    }
    // In the first moments, with readers who come in together, order says nothing.
    let in_order = run.kind.order().filter(|_| in_order(run.seed)).map(nanos_of);
    Rules {
        ttl: nanos_of(run.kind.ttl()),
        bound: nanos_of(BOUND),
        in_order,
        outages: outages(run.kind, happened),
        faults,
        deprived,
    }
}

/// When clients could not reach what they need.
fn outages(kind: Kind, happened: &[Happened]) -> Vec<Outage> {
    let inner = |one: &Happened| Span { from: one.inner_from, until: one.inner_until };
    let alone = happened.iter().filter_map(|one| {
        let worker = match one.planned.fault {
            Fault::Blackhole { worker, .. } | Fault::Cut { worker, .. } | Fault::Hold { worker, .. } => {
                Some(worker)
            }
            Fault::KillAll { .. } => None,
            _ if is_down(one).is_some() && kind.is_alone() => None,
            _ => return None,
        };
        Some(Outage { span: inner(one), worker })
    });
    let mut all: Vec<Outage> = alone.collect();
    // Of three servers one can be missed, and not two.
    if kind.nodes() == 3 {
        for (number, one) in happened.iter().enumerate() {
            for other in &happened[..number] {
                let (Some(first), Some(second)) = (is_down(one), is_down(other)) else { continue };
                let from = one.inner_from.max(other.inner_from);
                let until = one.inner_until.min(other.inner_until);
                if first != second && from < until {
                    all.push(Outage { span: Span { from, until }, worker: None });
                }
            }
        }
    }
    all
}

/// The server that nobody can use while the fault lasts.
fn is_down(one: &Happened) -> Option<u32> {
    match one.planned.fault {
        Fault::PauseServer { node, .. }
        | Fault::KillServer { node, .. }
        | Fault::LoseNode { node, .. }
        | Fault::ExpireCertificate { node, .. } => Some(node),
        _ => None,
    }
}

/// What was done.
pub(super) fn counts(
    pauses: bool,
    history: &History,
    testimony: &Testimony,
    happened: &[Happened],
    killed: &[u32],
) -> Counts {
    let ended = |end| {
        let number = history.holds.iter().filter(|hold| hold.end == end).count();
        u64::try_from(number).unwrap_or(u64::MAX)
    };
    let mut late: Vec<u64> =
        history.holds.iter().map(|hold| hold.told_late).filter(|late| *late > 0).collect();
    late.sort_unstable();
    Counts {
        operations: history.operations(),
        grants: u64::try_from(history.holds.len()).unwrap_or(u64::MAX),
        expired: ended(End::Expired),
        taken: ended(End::Taken),
        unknown: ended(End::Unknown),
        unfinished: ended(End::Unfinished),
        errors: history.errors.clone(),
        unguarded_writes: testimony.plain_writes,
        unguarded_lost: testimony.plain_lost,
        guarded_writes: testimony.guarded_writes,
        guarded_lost: testimony.guarded_lost,
        refused: testimony.refused,
        recovery_ms: recovery(history, happened, killed),
        without_grant_ms: without_grant(history, happened),
        told_late_us: late.last().map(|nanos| nanos / 1000),
        told: u64::try_from(late.len()).unwrap_or(u64::MAX),
        lateness: lateness(pauses, history, happened),
    }
}

/// From the death of a holder to the next grant of what it held.
fn recovery(history: &History, happened: &[Happened], killed: &[u32]) -> Option<u64> {
    let deaths = happened.iter().filter_map(|one| match one.planned.fault {
        Fault::KillWorker { worker } if killed.contains(&worker) => Some((worker, one.from)),
        _ => None,
    });
    let mut recovery = Vec::new();
    for (worker, at) in deaths {
        let held = |hold: &&Hold| {
            hold.end == End::Unfinished && hold.ask.who.worker == worker && hold.ask.mode == Mode::Exclusive
        };
        for dead in history.holds.iter().filter(held) {
            let later = history.holds.iter().filter(|hold| hold.ask.lock == dead.ask.lock && hold.from > at);
            recovery.extend(later.map(|hold| hold.from - at).min());
        }
    }
    recovery.into_iter().max().map(|nanos| nanos / 1_000_000)
}

/// The longest time without a grant of any lock that a fault of servers may have caused.
fn without_grant(history: &History, happened: &[Happened]) -> Option<u64> {
    let mut grants: Vec<u64> = history.holds.iter().map(|hold| hold.from).collect();
    grants.sort_unstable();
    let of_servers = happened
        .iter()
        .filter(|one| matches!(one.planned.fault.target(), FaultTarget::Server(_) | FaultTarget::Servers));
    let gaps = of_servers.filter_map(|one| {
        let is_near = |pair: &&[u64]| pair[1] > one.from && pair[0] < one.until.saturating_add(AFTERWARDS);
        grants.windows(2).filter(is_near).map(|pair| pair[1] - pair[0]).max()
    });
    gaps.max().map(|nanos| nanos / 1_000_000)
}

/// How late holders were told of the end of their lease, from when they could run again: microseconds at
/// most, and how often.
fn lateness(pauses: bool, history: &History, happened: &[Happened]) -> Vec<(u64, u64)> {
    // Nobody knows when those processes could run.
    if pauses {
        return Vec::new();
    }
    let mut numbers: BTreeMap<u64, u64> = BTreeMap::new();
    for hold in history.holds.iter().filter(|hold| hold.told_late > 0) {
        let (told, deadline) = (hold.called, hold.called.saturating_sub(hold.told_late));
        let stops = happened.iter().filter(|one| {
            matches!(one.planned.fault, Fault::StopWorker { worker, .. } if worker == hold.ask.who.worker)
                && one.from <= told
                && one.until > deadline
        });
        let since = stops.map(|one| one.inner_until).max().unwrap_or(0).max(deadline);
        *numbers.entry(rounded(told.saturating_sub(since) / 1000)).or_default() += 1;
    }
    numbers.into_iter().collect()
}

/// Up to two digits that count.
fn rounded(micros: u64) -> u64 {
    let mut step = 1;
    while micros / step >= 100 {
        step *= 10;
    }
    micros.div_ceil(step) * step
}

/// Whether it came as expected.
pub(super) fn verdict(
    expected: Expected,
    findings: &Findings,
    testimony: &Testimony,
    counts: &Counts,
    happened: &[Happened],
) -> Verdict {
    let mut reasons: Vec<String> =
        findings.wrong().into_iter().map(|(number, what)| format!("{number} {what}")).collect();
    let unsafe_ones = match expected {
        Expected::MayOverlap if findings.overlaps_before > 0 => {
            vec![(findings.overlaps_before, "overlaps before the first fault")]
        }
        Expected::MayOverlap => Vec::new(),
        Expected::MayLose => findings.overlapping(),
        Expected::Safe | Expected::Unavailable => findings.unsafe_ones(),
    };
    reasons.extend(unsafe_ones.into_iter().map(|(number, what)| format!("{number} {what}")));
    if findings.ran_out > 0 && matches!(expected, Expected::Safe | Expected::Unavailable) {
        reasons.push(format!("{} leases that nobody renewed", findings.ran_out));
    }
    if testimony.guarded_lost > 0 {
        reasons.push(format!("{} writes lost at the guarded witness", testimony.guarded_lost));
    }
    if !reasons.is_empty() {
        Verdict::Otherwise { reasons }
    } else if counts.operations < LEAST {
        Verdict::NotRun { why: format!("only {} operations, which says nothing", counts.operations) }
    } else if let Some(fault) = without_effect(happened) {
        Verdict::NotRun { why: format!("no fault like {fault:?} had an effect, which says nothing") }
    } else {
        Verdict::AsExpected
    }
}

/// What could not be looked at says nothing about the lock, unless what could be seen is wrong already.
pub(super) fn unless_unseen(verdict: Verdict, looked: Result<()>) -> Result<Verdict> {
    match verdict {
        Verdict::Otherwise { .. } => Ok(verdict),
        _ => looked.map(|()| verdict),
    }
}

/// A fault whose effect is counted, and of whose kind none had any.
fn without_effect(happened: &[Happened]) -> Option<Fault> {
    let counted = || happened.iter().filter_map(|one| Some((one.planned.fault, one.effect?)));
    let like = |fault: Fault| move |(other, _): &(Fault, u64)| discriminant(other) == discriminant(&fault);
    let in_vain = |fault| counted().filter(like(fault)).all(|(_, effect)| effect == 0);
    counted().map(|(fault, _)| fault).find(|fault| in_vain(*fault))
}

#[cfg(test)]
mod tests {
    use super::super::history::{Ask, Who};
    use super::super::schedule::PlannedFault;
    use super::*;
    use crate::error::Error;

    fn happened(fault: Fault, from: u64, until: u64) -> Happened {
        let planned = PlannedFault { at: 0, fault };
        Happened { planned, from, until, inner_from: from, inner_until: until, effect: None }
    }

    #[test]
    fn a_kind_of_faults_without_an_effect_says_nothing() {
        let with = |fault, effect| Happened { effect: Some(effect), ..happened(fault, 10, 20) };
        let drop_reply = |effect| with(Fault::DropReply { worker: 1, request: 2, millis: 3 }, effect);
        let killed = |effect| with(Fault::KillSessions { node: 0 }, effect);
        assert!(without_effect(&[]).is_none(), "no fault, nothing to have an effect");
        assert!(without_effect(&[happened(Fault::KillWorker { worker: 0 }, 1, 2)]).is_none());
        assert!(without_effect(&[drop_reply(0), drop_reply(1), killed(3)]).is_none());
        let in_vain = [drop_reply(4), killed(0), killed(0)];
        assert!(matches!(without_effect(&in_vain), Some(Fault::KillSessions { .. })));
    }

    #[test]
    fn a_worker_that_ends_badly_is_a_finding_whatever_else_is_known() {
        let findings = Findings { ended_badly: 2, ..Findings::default() };
        for expected in [Expected::Safe, Expected::MayLose, Expected::MayOverlap, Expected::Unavailable] {
            // Nearly nothing was done.
            let counts = Counts::default();
            let verdict = verdict(expected, &findings, &Testimony::default(), &counts, &[]);
            let Verdict::Otherwise { reasons } = &verdict else { panic!("{verdict:?}") };
            assert_eq!(*reasons, ["2 workers that did not end, panicked or crashed"]);
            let unreachable = Err(Error::failed("the server is gone"));
            assert_eq!(unless_unseen(verdict.clone(), unreachable).unwrap(), verdict);
        }
    }

    #[test]
    fn what_nobody_could_look_at_says_nothing() {
        let not_run = || Verdict::NotRun { why: "only 3 operations".to_owned() };
        for verdict in [Verdict::AsExpected, not_run()] {
            assert_eq!(unless_unseen(verdict.clone(), Ok(())).unwrap(), verdict);
            assert!(unless_unseen(verdict, Err(Error::failed("the server is gone"))).is_err());
        }
    }

    #[test]
    fn two_of_three_servers_are_an_outage_while_both_are_down() {
        let down = |node, from, until| happened(Fault::PauseServer { node, millis: 0 }, from, until);
        let both = [down(0, 10, 50), down(2, 30, 90)];
        let spans = |kind| outages(kind, &both).iter().map(|one| one.span).collect::<Vec<_>>();
        assert_eq!(spans(Kind::Redlock3), [Span { from: 30, until: 50 }]);
        assert_eq!(spans(Kind::Redis).len(), 2);
        // Another takes over.
        assert!(spans(Kind::Sentinel).is_empty());
        // The same server twice is one server.
        assert!(outages(Kind::Zookeeper3, &[down(1, 10, 50), down(1, 30, 90)]).is_empty());
    }

    #[test]
    fn one_who_is_stopped_is_late_from_when_it_goes_on() {
        let ask = Ask { who: Who { worker: 1, task: 0 }, lock: 0, mode: Mode::Exclusive, asked: 0 };
        let hold = Hold {
            ask,
            token: 1,
            from: 0,
            until: 0,
            end: End::Expired,
            called: 9_000_000,
            answered: 9_000_000,
            told_late: 8_000_000,
        };
        let history = History { holds: vec![hold], ..History::default() };
        let stop = |worker| [happened(Fault::StopWorker { worker, millis: 0 }, 500_000, 8_766_000)];
        assert_eq!(lateness(false, &history, &stop(1)), [(240, 1)]);
        assert_eq!(lateness(false, &history, &stop(0)), [(8_000, 1)]);
        assert!(lateness(true, &history, &[]).is_empty());
    }
}
