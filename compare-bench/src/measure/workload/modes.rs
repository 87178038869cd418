//! Locks that several may hold at once: readers and writers, and a semaphore.

use std::time::Duration;

use lockwell::backend::async_trait;
use lockwell::{Locks, Requirement};

use super::contention::raw;
use super::found::Found;
use crate::error::Result;
use crate::measure::contend::TIMEOUT;
use crate::measure::cycles::{cycles, together};
use crate::measure::workload::bench::{About, Bench, Workload, in_turns};
use crate::plan::Plan;
use crate::plan::case::{Case, Others};
use crate::record::{Measurement, Quantity, Round};
use crate::stats::Sample;
use crate::target::Choice;

/// One of this number of acquisitions of a task writes.
const READS: u64 = 10;

/// How many may hold the semaphore at once.
const PERMITS: u32 = 4;

/// What the lock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Modes {
    Readers,
    Semaphore,
}

#[async_trait]
impl Workload for Modes {
    fn about(&self) -> About {
        let (name, text, needs) = match self {
            Self::Readers => (
                "readers",
                "tasks of one process on one name, nine reads to a write: acquisitions per second",
                Requirement::Shared,
            ),
            Self::Semaphore => (
                "semaphore",
                "tasks of one process, a semaphore of four: acquisitions per second",
                Requirement::Permits,
            ),
        };
        About { needs: Some(needs), ..About::full(name, text) }
    }

    fn cases(&self, plan: &Plan, _: &Choice) -> Vec<Case> {
        let case = |tasks: &usize| Case { others: Others::None, ..Case::of_tasks(*tasks, plan.modes) };
        plan.sharing.iter().map(case).collect()
    }

    async fn measure(&self, case: &Case, bench: &mut Bench) -> Result<Measurement> {
        let (locks, name) = (bench.locks.clone(), bench.lock_name(self.name(), case.parties));
        // Connections and statements are warm, and the name is of its kind.
        once(*self, &locks, &name, true).await?;
        bench.floor.warm_up(1).await?;
        let mut found = Found::new(Quantity::PerSecond, "acquire and release");
        let mut repeat = bench.repeat(case);
        while let Some(number) = repeat.next(&found.rounds, Duration::ZERO) {
            let ours = round(*self, &locks, &name, case);
            let floor = raw(bench, case.parties, Duration::ZERO, case.rounds.floor);
            let (ours, floor, ()) = in_turns(number, ours, floor, async {}).await;
            let (ours, (floor, floor_rate)) = (ours?, floor?);
            let round = Round { ours: ours.per_second(), floor: floor_rate };
            found.add(round, &ours, &floor);
        }
        let rates = Some(found.medians());
        Ok(found.measurement(self.name(), case, bench, rates, Vec::new()))
    }
}

/// All tasks at once. Who writes when is the same in each round, and another for each task.
async fn round(mode: Modes, locks: &Locks, name: &str, case: &Case) -> Result<Sample> {
    let length = case.rounds.ours;
    together(case.parties, |task| {
        let (locks, name) = (locks.clone(), name.to_owned());
        let mut turn = u64::try_from(task).unwrap_or(0);
        async move {
            cycles(length, || {
                turn += 1;
                once(mode, &locks, &name, turn.is_multiple_of(READS))
            })
            .await
        }
    })
    .await
}

async fn once(mode: Modes, locks: &Locks, name: &str, writes: bool) -> Result<()> {
    let request = match (mode, writes) {
        (Modes::Semaphore, _) => locks.permit(name, PERMITS),
        (Modes::Readers, true) => locks.write(name),
        (Modes::Readers, false) => locks.read(name),
    };
    Ok(request.wait(TIMEOUT).await?.release().await?)
}
