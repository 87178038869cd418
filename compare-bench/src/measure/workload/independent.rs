//! Many tasks of one process, each on a name of its own: how much a process gets through.

use std::time::Duration;

use lockwell::Locks;
use lockwell::backend::async_trait;

use super::found::Found;
use super::measured::MeasuredPeers;
use crate::error::Result;
use crate::measure::cycles::{cycles, together};
use crate::measure::worker::Workers;
use crate::measure::workload::bench::{About, Bench, Workload, cycle, in_turns};
use crate::plan::Plan;
use crate::plan::case::{Case, Others, counted};
use crate::record::{Measurement, Quantity, Round};
use crate::stats::Sample;
use crate::target::Choice;

pub(crate) struct Independent;

/// Other libraries are not measured with more tasks.
const MOST_OF_OTHERS: usize = 64;

#[async_trait]
impl Workload for Independent {
    fn about(&self) -> About {
        About::always(
            "independent",
            "cycles per second of tasks, or of processes, on names of their own, against raw connections",
        )
    }

    fn cases(&self, plan: &Plan, choice: &Choice) -> Vec<Case> {
        let tasks = plan.tasks.iter().map(|tasks| Case {
            others: if *tasks <= MOST_OF_OTHERS { Others::All } else { Others::None },
            ..Case::of_tasks(*tasks, plan.independent)
        });
        let processes = plan.alone.iter().filter(|_| choice.is_shared()).map(|processes| Case {
            name: counted(*processes, "processes"),
            parties_are: "processes",
            // Theirs are measured as tasks of one process.
            others: Others::None,
            ..Case::of_tasks(*processes, plan.independent)
        });
        tasks.chain(processes).collect()
    }

    async fn measure(&self, case: &Case, bench: &mut Bench) -> Result<Measurement> {
        let (tasks, lengths) = (case.parties, case.rounds);
        let names: Vec<_> = (0..tasks).map(|number| bench.lock_name(self.name(), number)).collect();
        bench.warm_up(&names).await?;
        let mut clients = if case.parties_are == "tasks" {
            Clients::Tasks(bench.locks.clone())
        } else {
            Clients::Processes(Workers::start_each(&bench.target.url, &names).await?)
        };
        // Each process has a connection of its own. So as many processes do the raw cycles, on the servers
        // where tasks do them over one connection at once.
        let mut raw = match &clients {
            Clients::Processes(_) if bench.floor.shares() => {
                let mut raw = Workers::start_each(&bench.target.url, &names).await?;
                raw.raw(&bench.target.floor, Duration::ZERO).await?;
                Some(raw)
            }
            _ => None,
        };
        let mut peers = MeasuredPeers::start(bench, case, &names[0], 1, Quantity::PerSecond).await;
        let mut found = Found::new(Quantity::PerSecond, "acquire and release");
        let mut repeat = bench.repeat(case);
        while let Some(number) = repeat.next(&found.rounds, peers.wasted()) {
            let ours = clients.round(&names, lengths.ours);
            let floor = async {
                match &mut raw {
                    Some(raw) => raw.raw(&bench.target.floor, lengths.floor).await,
                    None => bench.floor.round(lengths.floor, tasks).await,
                }
            };
            let theirs = peers.cycles(tasks, lengths.ours);
            let (ours, floor, theirs) = in_turns(number, ours, floor, theirs).await;
            let (ours, floor) = (ours?, floor?);
            let round = Round { ours: ours.per_second(), floor: floor.per_second() };
            peers.note(theirs, round);
            found.add(round, &ours, &floor);
        }
        if let Clients::Processes(workers) = clients {
            workers.finish().await?;
        }
        if let Some(raw) = raw {
            raw.finish().await?;
        }
        Ok(found.measurement(self.name(), case, bench, None, peers.finish()))
    }
}

/// Who takes the locks.
enum Clients {
    Tasks(Locks),
    Processes(Workers),
}

impl Clients {
    async fn round(&mut self, names: &[String], length: Duration) -> Result<Sample> {
        match self {
            Self::Tasks(locks) => round(locks, names, length).await,
            Self::Processes(workers) => workers.alone(length).await,
        }
    }
}

/// All tasks at once.
pub(super) async fn round(locks: &Locks, names: &[String], length: Duration) -> Result<Sample> {
    together(names.len(), |number| {
        let (locks, name) = (locks.clone(), names[number].clone());
        async move { cycles(length, || cycle(&locks, &name)).await }
    })
    .await
}
