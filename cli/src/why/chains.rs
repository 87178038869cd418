//! Who waits for whom, over several locks: a pure function of what the server says about them.

use std::collections::HashSet;

use lockwell::{Holder, LockName, LockStatus, Mode, TraceParent, WaitingClaim};

use crate::trace;

/// How it is known that a holder waits for the end of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// It made the claim itself, or runs the command that did.
    Surely,
    /// Both are parts of one trace, which may do several things at a time.
    ByTrace,
}

/// A holder of one lock that waits for another one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step<'a> {
    pub(super) holds: &'a LockName,
    pub(super) holder: &'a Holder,
    pub(super) waits: &'a LockStatus,
    pub(super) claim: &'a WaitingClaim,
}

/// Holders each of which waits for a lock of the next one, and the last one for a lock of the first.
#[derive(Debug)]
pub(super) struct Cycle<'a> {
    pub(super) known: Known,
    pub(super) steps: Vec<Step<'a>>,
}

/// What the locks say about each other.
#[derive(Clone, Copy)]
pub(super) struct Chains<'a> {
    pub(super) statuses: &'a [LockStatus],
}

/// A holder: which lock it is, and which of its holders.
type Node = (usize, usize);

impl<'a> Chains<'a> {
    /// The waits of this holder.
    pub(super) fn steps(self, of: &'a LockStatus, holder: &'a Holder, known: Known) -> Vec<Step<'a>> {
        let Some(trace) = &holder.traceparent else { return Vec::new() };
        let is_its = |claim: &TraceParent| match known {
            Known::Surely => trace::is_below(claim, trace),
            Known::ByTrace => claim.trace_id() == trace.trace_id(),
        };
        let claims =
            self.statuses.iter().flat_map(|waits| waits.waiting.iter().map(move |claim| (waits, claim)));
        let its = claims.filter(|(_, claim)| claim.traceparent.as_ref().is_some_and(is_its));
        its.map(|(waits, claim)| Step { holds: &of.name, holder, waits, claim }).collect()
    }

    /// All cycles: those that are known surely, and of the others those of several traces.
    pub(super) fn cycles(self) -> Vec<Cycle<'a>> {
        let mut found = self.cycles_of(Known::Surely);
        let sure: HashSet<_> =
            found.iter().flat_map(|cycle| &cycle.steps).map(|step| (step.holds, step.holder.token)).collect();
        found.extend(self.cycles_of(Known::ByTrace).into_iter().filter(|cycle| {
            let traces: HashSet<_> = cycle
                .steps
                .iter()
                .filter_map(|step| Some(step.holder.traceparent.as_ref()?.trace_id()))
                .collect();
            traces.len() > 1
                && !cycle.steps.iter().any(|step| sure.contains(&(step.holds, step.holder.token)))
        }));
        found
    }

    fn cycles_of(self, known: Known) -> Vec<Cycle<'a>> {
        let stuck = self.stuck(known);
        let mut seen = HashSet::new();
        let mut cycles = Vec::new();
        for &start in &stuck {
            let mut way: Vec<(Node, Step<'a>)> = Vec::new();
            let mut at = start;
            while seen.insert(at) {
                let Some((step, next)) = self.next(at, &stuck, known) else { break };
                way.push((at, step));
                at = next;
            }
            if let Some(first) = way.iter().position(|(node, _)| *node == at) {
                let mut steps: Vec<_> = way.drain(first..).map(|(_, step)| step).collect();
                let least = (0..steps.len()).min_by_key(|&at| steps[at].holds).unwrap_or_default();
                steps.rotate_left(least);
                cycles.push(Cycle { known, steps });
            }
        }
        cycles
    }

    /// The holders that wait for others of them: all of their waits are for locks that these do not free.
    fn stuck(self, known: Known) -> Vec<Node> {
        let each = |at: usize| (0..self.statuses[at].holders.len()).map(move |holder| (at, holder));
        let mut stuck: Vec<Node> = (0..self.statuses.len()).flat_map(each).collect();
        loop {
            let before = stuck.len();
            let others = stuck.clone();
            stuck.retain(|&node| {
                let steps = self.steps_of(node, known);
                !steps.is_empty() && steps.iter().all(|step| self.is_kept(step.waits, &others))
            });
            if stuck.len() == before {
                return stuck;
            }
        }
    }

    /// Whether those who are stuck keep the others from this lock. A permit is free as soon as one holder ends.
    fn is_kept(self, lock: &LockStatus, stuck: &[Node]) -> bool {
        let is_stuck = |holder: usize| stuck.iter().any(|&node| node.1 == holder && self.is(node, lock));
        let mut holders = 0..lock.holders.len();
        match lock.holders.first().map(|one| one.mode) {
            None => false,
            Some(Mode::Permit { limit }) => {
                u32::try_from(lock.holders.len()).is_ok_and(|many| many >= limit.get())
                    && holders.all(is_stuck)
            }
            Some(_) => holders.any(is_stuck),
        }
    }

    fn is(self, node: Node, lock: &LockStatus) -> bool {
        self.statuses[node.0].name == lock.name
    }

    fn steps_of(self, (lock, holder): Node, known: Known) -> Vec<Step<'a>> {
        let status = &self.statuses[lock];
        self.steps(status, &status.holders[holder], known)
    }

    fn next(self, at: Node, stuck: &[Node], known: Known) -> Option<(Step<'a>, Node)> {
        let steps = self.steps_of(at, known);
        steps.into_iter().find_map(|step| {
            let holder = stuck.iter().find(|&&node| self.is(node, step.waits))?;
            Some((step, *holder))
        })
    }
}

impl Cycle<'_> {
    /// Whether a later look has found the same: each holder has its lock still, and each claim has waited on. Then
    /// all of them held and waited at the moment between the two looks.
    pub(super) fn lasts(&self, later: &Self) -> bool {
        let key = |step: &Step<'_>| {
            let Step { holds, holder, waits, claim } = *step;
            (holds.clone(), holder.token, waits.name.clone(), claim.label.clone(), claim.traceparent.clone())
        };
        let waited_on = |step: &Step<'_>| {
            let now = later.steps.iter().find(|one| key(one) == key(step));
            now.is_some_and(|now| now.claim.waited >= step.claim.waited)
        };
        self.steps.len() == later.steps.len() && self.steps.iter().all(waited_on)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use lockwell::FencingToken;

    use super::*;

    /// A path, or a span, of a trace.
    fn trace(id: u32, path: &str) -> String {
        format!("a\u{1f}00-{id:032x}-{path:0<16}-00")
    }

    fn lock(name: &str, mode: Mode, holders: &[String], waiters: &[String]) -> LockStatus {
        let token = u64::from(name.as_bytes()[0]) * 10;
        let holders = (token..)
            .zip(holders)
            .map(|(token, trace)| Holder::new(FencingToken::new(token), trace, mode, Duration::from_secs(9)));
        let waiting =
            waiters.iter().map(|trace| WaitingClaim::new(trace, mode, Some(Duration::from_secs(1))));
        LockStatus::new(LockName::new(name).unwrap(), holders.collect(), waiters.len()).waiting(waiting)
    }

    fn found(statuses: &[LockStatus]) -> Vec<(Known, String)> {
        let cycles = Chains { statuses }.cycles();
        let names = |cycle: &Cycle<'_>| cycle.steps.iter().map(|step| step.holds.as_str()).collect();
        cycles.iter().map(|cycle| (cycle.known, names(cycle))).collect()
    }

    #[test]
    fn opposite_orders_are_a_cycle() {
        let one = |name, holder, waiter| lock(name, Mode::Exclusive, &[holder], &[waiter]);
        let opposite = |below: &str| {
            [one("a", trace(1, "1111"), trace(2, below)), one("b", trace(2, "1111"), trace(1, "11112222"))]
        };
        assert_eq!(found(&opposite("11112222")), [(Known::Surely, "ab".to_owned())]);
        // A command beside the holder: the holder does not wait for it, as far as is known.
        assert_eq!(found(&opposite("2222")), [(Known::ByTrace, "ab".to_owned())]);
        let three = [
            one("c", trace(3, "1111"), trace(2, "1111")),
            one("a", trace(1, "1111"), trace(3, "11112222")),
            one("b", trace(2, "1111"), trace(1, "1111")),
            one("d", trace(4, "1111"), trace(3, "1111")),
        ];
        // The third also waits for one who waits for nobody, so it may get on.
        assert_eq!(found(&three), []);
        assert_eq!(found(&three[..3]), [(Known::Surely, "abc".to_owned())]);
    }

    #[test]
    fn what_is_no_cycle() {
        let one = |name, holder, waiter| lock(name, Mode::Exclusive, &[holder], &[waiter]);
        let chain =
            [one("a", trace(1, "1111"), trace(2, "1111")), one("b", trace(2, "1111"), trace(3, "1111"))];
        assert_eq!(found(&chain), []);
        // Many workers of one trace want one lock.
        assert_eq!(found(&[one("a", trace(1, "1111"), trace(1, "2222"))]), []);
        // The same caller wants one lock on two hosts, or twice.
        let caller = || trace(1, "00f067aa0ba902b7");
        assert_eq!(found(&[one("a", caller(), caller())]), []);
        let permits = Mode::Permit { limit: NonZeroU32::new(2).unwrap() };
        assert_eq!(found(&[lock("p", permits, &[caller(), caller()], &[caller()])]), []);
        let unknown = [one("a", "x".to_owned(), "y".to_owned()), one("b", "y".to_owned(), "x".to_owned())];
        assert_eq!(found(&unknown), []);
        // What waits for a cycle is not a part of it.
        let tail = [
            one("z", trace(9, "1111"), trace(8, "1111")),
            one("a", trace(1, "1111"), trace(2, "1111")),
            lock("b", Mode::Exclusive, &[trace(2, "1111")], &[trace(1, "1111"), trace(9, "1111")]),
        ];
        assert_eq!(found(&tail), [(Known::Surely, "ab".to_owned())]);
    }

    #[test]
    fn one_free_permit_is_enough() {
        let permits = |last: String| {
            let mode = Mode::Permit { limit: NonZeroU32::new(2).unwrap() };
            [
                lock("p", mode, &[trace(1, "1111"), last], &[trace(2, "11112222")]),
                lock("a", Mode::Exclusive, &[trace(2, "1111")], &[trace(1, "1111"), trace(3, "1111")]),
            ]
        };
        assert_eq!(found(&permits("the one that ends".to_owned())), []);
        assert_eq!(found(&permits(trace(3, "1111"))).len(), 1);
    }

    #[test]
    fn a_cycle_lasts_if_both_looks_show_it() {
        let look = |token: &str, waited: u64| {
            let mut locks = [
                lock(token, Mode::Exclusive, &[trace(1, "1111")], &[trace(2, "1111")]),
                lock("b", Mode::Exclusive, &[trace(2, "1111")], &[trace(1, "1111")]),
            ];
            locks[1].waiting[0].waited = Some(Duration::from_secs(waited));
            locks
        };
        let lasts = |later: [LockStatus; 2]| {
            let before = look("a", 5);
            let (before, later) = (Chains { statuses: &before }, Chains { statuses: &later });
            before.cycles()[0].lasts(&later.cycles()[0])
        };
        assert!(lasts(look("a", 6)));
        assert!(!lasts(look("a", 4)), "it has left, and come again");
        assert!(!lasts(look("c", 6)), "it holds another lock by now");
    }
}
