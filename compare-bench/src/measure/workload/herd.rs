//! Many processes that wait for one name: what that costs the server.

use lockwell::backend::async_trait;

use super::contention::{Contenders, Contention};
use crate::error::Result;
use crate::measure::history::History;
use crate::measure::workload::bench::{About, Bench, Workload};
use crate::plan::Plan;
use crate::plan::case::{Case, Others};
use crate::record::{Measurement, Quantity};
use crate::target::Choice;

pub(crate) struct Herd;

/// More processes of a library of Java or Python would need much memory.
const MOST_OF_ALL: usize = 16;

#[async_trait]
impl Workload for Herd {
    fn about(&self) -> About {
        About::full(
            "herd",
            "8 processes and more wait for one name: requests and wake-ups for each grant, by the server's own count",
        )
    }

    fn cases(&self, plan: &Plan, choice: &Choice) -> Vec<Case> {
        if !choice.is_shared() {
            return Vec::new();
        }
        let case = |parties: &usize| Case {
            name: format!("{parties} processes, one name"),
            parties_are: "processes",
            others: if *parties <= MOST_OF_ALL { Others::All } else { Others::Light },
            ..Case::of_tasks(*parties, plan.herd)
        };
        plan.herds.iter().map(case).collect()
    }

    async fn measure(&self, case: &Case, bench: &mut Bench) -> Result<Measurement> {
        let name = bench.lock_name(self.name(), case.parties);
        bench.warm_up(std::slice::from_ref(&name)).await?;
        let contenders = Contenders::new(bench, &name, case.parties).await?;
        waits(self.name(), 1).measure(case, bench, &name, contenders).await
    }
}

/// Who waits for how long, and what the server counts meanwhile.
pub(super) fn waits(workload: &'static str, tasks: usize) -> Contention {
    Contention {
        workload,
        quantity: Quantity::PerSecond,
        latency_of: "wait for the lock",
        ours: History::waits,
        theirs: History::waits,
        tasks,
        counts: true,
    }
}
