//! What `lockwell why` says, for people and for programs.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::time::Duration;

use lockwell::{Holder, LockName, LockStatus, TraceParent};
use serde::Serialize;

use super::chains::{Chains, Cycle, Known, Step};
use super::grants::Seen;
use crate::json::{LockReport, SCHEMA_VERSION, millis};
use crate::say::{printable, rounded};
use crate::status::human;

impl<'a> Chains<'a> {
    /// What the holders of this lock wait for, and what those wait for that hold that, each wait once.
    fn from(self, lock: &'a LockStatus) -> Vec<(usize, Step<'a>)> {
        let (mut way, mut seen) = (Vec::new(), HashSet::new());
        self.follow(lock, 1, &mut seen, &mut way);
        way
    }

    fn follow(
        self,
        lock: &'a LockStatus,
        depth: usize,
        seen: &mut HashSet<&'a LockName>,
        way: &mut Vec<(usize, Step<'a>)>,
    ) {
        if !seen.insert(&lock.name) {
            return;
        }
        for step in lock.holders.iter().flat_map(|holder| self.steps(lock, holder, Known::Surely)) {
            way.push((depth, step));
            self.follow(step.waits, depth + 1, seen, way);
        }
    }

    /// Whether this lock is a part of the cycle, or its holders wait for one that is.
    pub(super) fn leads(self, lock: &'a LockStatus, cycle: &Cycle<'_>) -> bool {
        let is_part = |name: &LockName| cycle.steps.iter().any(|step| step.holds == name);
        is_part(&lock.name) || self.from(lock).iter().any(|(_, step)| is_part(&step.waits.name))
    }
}

/// All of it, for people.
pub(super) fn words(chains: Chains<'_>, shown: &[LockStatus], cycles: &[Cycle<'_>]) -> String {
    let mut text = String::new();
    for lock in shown {
        text += &human(lock);
        for (depth, step) in chains.from(lock) {
            let (indent, label) = ("  ".repeat(depth), printable(&step.claim.label));
            let held = held_by(&step.waits.holders);
            writeln!(
                text,
                "{indent}{label} waits for {:?}{}, {held}",
                step.waits.name,
                since(step.claim.waited)
            )
            .unwrap_or_default();
        }
    }
    if shown.is_empty() {
        text += "no lock is held\n";
    }
    for cycle in cycles {
        let one = |step: &Step<'_>| {
            let (holder, claim) = (printable(&step.holder.label), printable(&step.claim.label));
            let who = if holder == claim { String::new() } else { format!(" as {claim}") };
            let since = since(step.claim.waited);
            format!("{holder} holds {:?} and waits for {:?}{who}{since}", step.holds, step.waits.name)
        };
        let steps: Vec<_> = cycle.steps.iter().map(one).collect();
        let (what, why) = match cycle.known {
            Known::Surely => ("deadlock", "it ends when one of them gives up (--wait) or is ended"),
            Known::ByTrace => ("possible deadlock", "of these it is known only that they are of one trace"),
        };
        writeln!(text, "{what}: {}; {why}", steps.join("; ")).unwrap_or_default();
    }
    text
}

fn held_by(holders: &[Holder]) -> String {
    match holders {
        [] => "which is free now".to_owned(),
        [first, rest @ ..] => {
            let others = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
            format!("held by {} for {}{others}", printable(&first.label), rounded(first.held_for))
        }
    }
}

fn since(waited: Option<Duration>) -> String {
    waited.map_or_else(String::new, |waited| format!(", for {}", rounded(waited)))
}

/// The report for programs.
#[derive(Serialize)]
pub(super) struct WhyReport<'a> {
    schema_version: u32,
    locks: Vec<LockReport<'a>>,
    /// What the holders wait for.
    waits: Vec<WaitReport<'a>>,
    deadlocks: Vec<CycleReport<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    grants: Option<Vec<GrantReport<'a>>>,
}

#[derive(Serialize)]
struct WaitReport<'a> {
    name: &'a str,
    holder: &'a str,
    token: u64,
    #[serde(rename = "for")]
    awaited: &'a str,
    label: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    waited_ms: Option<u64>,
}

#[derive(Serialize)]
struct CycleReport<'a> {
    sure: bool,
    waits: Vec<WaitReport<'a>>,
}

#[derive(Serialize)]
struct GrantReport<'a> {
    name: &'a str,
    token: u64,
    label: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
    after_ms: u64,
}

impl<'a> WaitReport<'a> {
    fn new(step: &Step<'a>) -> Self {
        Self {
            name: step.holds.as_str(),
            holder: &step.holder.label,
            token: step.holder.token.get(),
            awaited: step.waits.name.as_str(),
            label: &step.claim.label,
            waited_ms: step.claim.waited.map(millis),
        }
    }
}

impl<'a> WhyReport<'a> {
    pub(super) fn new(
        chains: Chains<'a>,
        shown: &'a [LockStatus],
        cycles: &[Cycle<'a>],
        grants: Option<&'a [Seen]>,
    ) -> Self {
        let (mut waits, mut seen) = (Vec::new(), HashSet::new());
        for (_, step) in shown.iter().flat_map(|lock| chains.from(lock)) {
            if seen.insert((step.holds, step.holder.token, &step.waits.name)) {
                waits.push(WaitReport::new(&step));
            }
        }
        let cycle = |cycle: &Cycle<'a>| CycleReport {
            sure: cycle.known == Known::Surely,
            waits: cycle.steps.iter().map(WaitReport::new).collect(),
        };
        let grant = |seen: &'a Seen| GrantReport {
            name: seen.name.as_str(),
            token: seen.holder.token.get(),
            label: &seen.holder.label,
            traceparent: seen.holder.traceparent.as_ref().map(TraceParent::as_str),
            after_ms: millis(seen.after),
        };
        Self {
            schema_version: SCHEMA_VERSION,
            locks: shown.iter().map(LockReport::new).collect(),
            waits,
            deadlocks: cycles.iter().map(cycle).collect(),
            grants: grants.map(|grants| grants.iter().map(grant).collect()),
        }
    }
}
