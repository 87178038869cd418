//! Many tasks of one process on one name: what a crowd at one door gets through, and how long it waits.

use std::time::Duration;

use lockwell::backend::async_trait;

use super::contention::FloorRound;
use super::found::Found;
use super::measured::MeasuredPeers;
use crate::error::{Error, Result};
use crate::measure::contend::{ContendedLock, among_tasks};
use crate::measure::counter::Counter;
use crate::measure::history::History;
use crate::measure::workload::bench::{About, Bench, Workload, cycle, in_turns};
use crate::plan::case::{Case, Others, counted};
use crate::plan::{Plan, Rounds};
use crate::record::{Measurement, Quantity, Round};
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
    Variant { option: "hand_over", value: "1000/20ms", schemes: TOKEN_BLOCKS },
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
            let peers = MeasuredPeers::start(bench, case, &name, 1, Quantity::PerSecond).await;
            return self.with(case, ContendedLock::Lock(bench.locks.clone(), name), peers, bench).await;
        };
        let url = bench.target.url_with(option, value);
        let url = url.ok_or_else(|| Error::failed(format!("{option} is in the address")))?;
        let (locks, name) = (connect(&url).await?, format!("{name}/{option}={value}"));
        let measurement =
            self.with(case, ContendedLock::Lock(locks.clone(), name), MeasuredPeers::default(), bench).await;
        locks.close().await?;
        measurement
    }
}

impl Crowd {
    async fn with(
        &self,
        case: &Case,
        lock: ContendedLock,
        mut peers: MeasuredPeers,
        bench: &mut Bench,
    ) -> Result<Measurement> {
        let (tasks, lengths) = (case.parties, case.rounds);
        if let ContendedLock::Lock(locks, name) = &lock {
            cycle(locks, name).await?;
        }
        bench.floor.warm_up(1).await?;
        let counter = bench.counter().await?.filter(Counter::is_prompt);
        let mut found = Found::new(Quantity::PerSecond, "wait for the lock");
        let mut repeat = bench.repeat(case);
        while let Some(number) = repeat.next(&found.rounds, peers.wasted()) {
            let floor = FloorRound::take(bench, tasks, Duration::ZERO, lengths.floor);
            let contend = among_tasks(&lock, tasks, Duration::ZERO, lengths.ours);
            let ours = Counter::over(counter.as_ref(), contend);
            let theirs = peers.contend(tasks, Duration::ZERO, lengths.ours, History::waits, counter.as_ref());
            let (ours, floor, theirs) = in_turns(number, ours, floor, theirs).await;
            let ((history, count), floor) = (ours?, floor?);
            let history = history?;
            found.count(&history, count);
            let round = Round { ours: history.per_second(), floor: floor.per_second };
            peers.note(theirs, round);
            found.add(round, &history.waits(), &floor.sample);
            history.join(&mut found.histories)?;
        }
        let rates = Some(found.medians());
        Ok(found.measurement(self.name(), case, bench, rates, peers.finish()))
    }
}
