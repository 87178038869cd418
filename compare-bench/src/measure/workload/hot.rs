//! Several names at once, each wanted by two processes: what a server grants in all, and whether the queue of
//! one name slows down those of others.

use lockwell::backend::async_trait;

use super::contention::{Contenders, Contention};
use super::handoff::others;
use crate::error::Result;
use crate::measure::history::History;
use crate::measure::worker::Workers;
use crate::measure::workload::bench::{About, Bench, Workload};
use crate::plan::case::{Case, counted};
use crate::plan::{ON_EACH_NAME, Plan};
use crate::record::{Measurement, Quantity};
use crate::target::Choice;

pub(crate) struct Hot;

#[async_trait]
impl Workload for Hot {
    fn about(&self) -> About {
        About::full(
            "hot",
            "two processes for each of several names: grants per second of all, hand-over, fairness, overlap check",
        )
    }

    fn cases(&self, plan: &Plan, choice: &Choice) -> Vec<Case> {
        if !choice.is_shared() {
            return Vec::new();
        }
        let case = |names: &usize| {
            let parties = names * ON_EACH_NAME;
            Case {
                name: format!("{}, {ON_EACH_NAME} processes each", counted(*names, "names")),
                parties_are: "processes",
                names: *names,
                others: others(parties),
                ..Case::of_tasks(parties, plan.hot)
            }
        };
        plan.hot_names.iter().map(case).collect()
    }

    async fn measure(&self, case: &Case, bench: &mut Bench) -> Result<Measurement> {
        let name = bench.lock_name(self.name(), case.names);
        let names: Vec<String> = (0..case.names).map(|number| case.name_of(&name, number)).collect();
        bench.warm_up(&names).await?;
        let of_each: Vec<String> = names.iter().flat_map(|name| vec![name.clone(); ON_EACH_NAME]).collect();
        let workers = Workers::start_each(&bench.target.url, &of_each).await?;
        // Of two processes on a name, the one that waits has waited longest: ours and theirs have the same
        // figure.
        let contention = Contention {
            workload: self.name(),
            quantity: Quantity::PerSecond,
            latency_of: "release called to acquire of the waiting process returned",
            ours: History::to_the_first,
            theirs: History::to_the_first,
            tasks: 1,
            counts: false,
        };
        contention.measure(case, bench, &name, Contenders::Processes(workers)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::case::Others;

    #[test]
    fn each_name_has_two_processes() {
        let choices = crate::target::given(&["redis://h".to_owned(), "memory://".to_owned()]).unwrap();
        let cases = Hot.cases(&Plan { hot_names: &[1, 8], ..Plan::FULL }, &choices[0]);
        let told: Vec<_> = cases.iter().map(|case| (&*case.name, case.parties, case.others)).collect();
        let expected =
            [("1 name, 2 processes each", 2, Others::All), ("8 names, 2 processes each", 16, Others::Light)];
        assert_eq!(told, expected);
        assert!(Hot.cases(&Plan::FULL, &choices[1]).is_empty(), "it has no processes");
    }
}
