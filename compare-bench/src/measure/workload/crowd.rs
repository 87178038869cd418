//! Many tasks of one process on one name: what a crowd at one door gets through, and how long it waits.

use std::time::Duration;

use lockwell::Locks;
use lockwell::backend::async_trait;

use super::contention::Contenders;
use super::herd::waits;
use crate::error::{Error, Result};
use crate::measure::contend::ContendedLock;
use crate::measure::workload::bench::{About, Bench, Workload, cycle};
use crate::plan::case::{Case, Others, counted};
use crate::plan::{Plan, Rounds};
use crate::record::Measurement;
use crate::target::{Choice, connect};

pub(crate) struct Crowd;

/// A client of ours with one more option in its address, which gets rows of its own.
#[derive(Debug)]
struct Variant {
    option: &'static str,
    value: &'static str,
    /// The backends that have it.
    schemes: &'static [&'static str],
}

/// Where each task of a hand-over has a token of its own, which the history is checked for.
const TOKEN_BLOCKS: &[&str] =
    &["memory", "sqlite", "postgres", "postgresql", "mysql", "mariadb", "redis", "redis+sentinel"];

const VARIANTS: [Variant; 2] = [
    // Each task has a place at the server; and the lock is passed on for longer than by default.
    Variant { option: "server_order", value: "true", schemes: TOKEN_BLOCKS },
    Variant { option: "hand_off", value: "1000/20ms", schemes: TOKEN_BLOCKS },
];

/// By how much a round is longer for each task: until all tasks are in the queue, a round measures how the
/// queue forms.
const FOR_EACH_TASK: Duration = Duration::from_millis(2);

/// With fewer tasks, an option for a crowd makes no difference worth a case.
const FEWEST_FOR_OPTIONS: usize = 8;

fn rounds(plan: &Plan, tasks: usize) -> Rounds {
    let more = FOR_EACH_TASK * u32::try_from(tasks).unwrap_or(u32::MAX);
    Rounds { ours: plan.crowd.ours + more, ..plan.crowd }
}

#[async_trait]
impl Workload for Crowd {
    fn about(&self) -> About {
        About::full(
            "crowd",
            "many tasks of one process on one name: acquisitions per second, and how long each waits",
        )
    }

    fn cases(&self, plan: &Plan, choice: &Choice) -> Vec<Case> {
        let usual = |tasks| Case {
            name: format!("{}, one name", counted(tasks, "tasks")),
            ..Case::of_tasks(tasks, rounds(plan, tasks))
        };
        let mut cases = Vec::new();
        for tasks in plan.crowds {
            cases.push(usual(*tasks));
            for Variant { option, value, schemes } in &VARIANTS {
                // One that is in the address already is in force in all cases.
                if *tasks >= FEWEST_FOR_OPTIONS && schemes.contains(&choice.scheme()) && !choice.has(option) {
                    let name = format!("{}, one name, {option}={value}", counted(*tasks, "tasks"));
                    let option = Some((*option, *value));
                    cases.push(Case { name, option, others: Others::None, ..usual(*tasks) });
                }
            }
        }
        cases
    }

    async fn measure(&self, case: &Case, bench: &mut Bench) -> Result<Measurement> {
        let name = bench.lock_name(self.name(), case.parties);
        let Some((option, value)) = case.option else {
            return with(case, bench.locks.clone(), name, bench).await;
        };
        let url = bench.target.url_with(option, value);
        let url = url.ok_or_else(|| Error::failed(format!("{option} is in the address")))?;
        let (locks, name) = (connect(&url).await?, format!("{name}/{option}={value}"));
        let measurement = with(case, locks.clone(), name, bench).await;
        locks.close().await?;
        measurement
    }
}

async fn with(case: &Case, locks: Locks, name: String, bench: &mut Bench) -> Result<Measurement> {
    cycle(&locks, &name).await?;
    bench.floor.warm_up(1).await?;
    let contenders = Contenders::Tasks(ContendedLock::Lock(locks, name.clone()), case.parties);
    waits("crowd", case.parties).measure(case, bench, &name, contenders).await
}
