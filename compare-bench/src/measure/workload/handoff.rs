//! Several processes on one name: how a lock goes from one to the next, how fairly, and that only one has it.

use std::time::Duration;

use lockwell::backend::async_trait;

use super::contention::{Contenders, Contention};
use crate::error::Result;
use crate::measure::history::History;
use crate::measure::workload::bench::{About, Bench, Workload};
use crate::plan::case::{Case, Others, counted};
use crate::plan::{Plan, Rounds};
use crate::record::{Measurement, Quantity};
use crate::target::Choice;

pub(crate) struct Handoff;

/// With more processes, only light libraries are measured: a program of Java or Python for each of sixteen
/// processes keeps the machine busy by starting.
const MOST_OF_ALL: usize = 8;

/// With longer holds the library matters little.
const LONGEST_OF_OTHERS_MS: u64 = 1;

/// A hand-over of a slow lock, some times: in a shorter round not every process would have several turns, and
/// no lock would look fair.
const TURNS: Duration = Duration::from_millis(15);

#[async_trait]
impl Workload for Handoff {
    fn about(&self) -> About {
        About::always(
            "handoff",
            "several processes take turns on one name: release to next acquire, fairness, overlap check",
        )
    }

    fn cases(&self, plan: &Plan, choice: &Choice) -> Vec<Case> {
        let parties_are = if choice.is_shared() { "processes" } else { "tasks" };
        let case = |(parties, hold_ms): (usize, u64)| {
            let (hold, turns) = (Duration::from_millis(hold_ms), u32::try_from(parties).unwrap_or(u32::MAX));
            let rounds = Rounds { ours: plan.handoff.ours.max((TURNS + hold) * turns), ..plan.handoff };
            Case {
                name: format!("{}, hold {hold_ms} ms", counted(parties, parties_are)),
                parties_are,
                hold,
                others: if hold_ms > LONGEST_OF_OTHERS_MS { Others::None } else { others(parties) },
                ..Case::of_tasks(parties, rounds)
            }
        };
        let pairs =
            plan.handoffs.iter().flat_map(|(parties, holds)| holds.iter().map(|hold| (*parties, *hold)));
        pairs.map(case).collect()
    }

    async fn measure(&self, case: &Case, bench: &mut Bench) -> Result<Measurement> {
        let name = bench.lock_name(self.name(), case.parties);
        bench.warm_up(std::slice::from_ref(&name)).await?;
        let contenders = Contenders::new(bench, &name, case.parties).await?;
        let contention = Contention {
            workload: self.name(),
            quantity: Quantity::LatencyUs,
            latency_of: "release called to next acquire returned",
            ours: History::to_the_next,
            theirs: History::to_the_first,
            tasks: 1,
            counts: false,
        };
        contention.measure(case, bench, &name, contenders).await
    }
}

/// Which other libraries are measured with so many processes.
pub(super) fn others(processes: usize) -> Others {
    if processes <= MOST_OF_ALL { Others::All } else { Others::Light }
}
