//! Many processes that wait for one name: what that costs the server.

use std::time::Duration;

use lockwell::backend::async_trait;

use super::contention::FloorRound;
use super::found::Found;
use super::handoff::Contenders;
use super::measured::MeasuredPeers;
use crate::error::{Error, Result};
use crate::measure::counter::Counter;
use crate::measure::history::History;
use crate::measure::workload::bench::{About, Bench, Workload, in_turns};
use crate::plan::Plan;
use crate::plan::case::{Case, Others};
use crate::record::{Measurement, Quantity, Round};
use crate::target::Choice;

pub(crate) struct Herd;

/// More processes of a library of Java or Python would need much memory.
const MOST_OF_ALL: usize = 16;

/// After this time, a server that counts late includes all earlier requests when the next one comes.
const LATE: Duration = Duration::from_millis(1100);

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
        let (parties, lengths) = (case.parties, case.rounds);
        let name = bench.lock_name(self.name(), parties);
        bench.warm_up(std::slice::from_ref(&name)).await?;
        let mut contenders = Contenders::new(bench, &name, parties).await?;
        let mut peers = MeasuredPeers::start(bench, case, &name, parties, Quantity::PerSecond).await;
        let counter = bench.counter().await?;
        let mut found = Found::new(Quantity::PerSecond, "wait for the lock");
        let mut repeat = bench.repeat(case);
        while let Some(number) = repeat.next(&found.rounds, peers.wasted()) {
            let floor = FloorRound::take(bench, parties, Duration::ZERO, lengths.floor);
            let is_late = counter.as_ref().is_some_and(|counter| !counter.is_prompt());
            let work = async {
                let history = contenders.round(Duration::ZERO, lengths.ours).await?;
                if is_late {
                    tokio::time::sleep(LATE).await;
                    contenders.ask_server().await?;
                }
                Ok::<History, Error>(history)
            };
            let ours = Counter::over(counter.as_ref(), work);
            let theirs = peers.contend(
                1,
                Duration::ZERO,
                lengths.ours,
                History::waits,
                counter.as_ref().filter(|counter| counter.is_prompt()),
            );
            let (ours, floor, theirs) = in_turns(number, ours, floor, theirs).await;
            let ((history, count), floor) = (ours?, floor?);
            let history = history?;
            let questions = if is_late { u64::try_from(parties).unwrap_or(0) } else { 0 };
            found.count(&history, count.map(|count| count.without(questions)));
            let round = Round { ours: history.per_second(), floor: floor.per_second };
            peers.note(theirs, round);
            found.add(round, &history.waits(), &floor.sample);
            history.join(&mut found.histories)?;
        }
        contenders.finish().await?;
        let rates = Some(found.medians());
        Ok(found.measurement(self.name(), case, bench, rates, peers.finish()))
    }
}
