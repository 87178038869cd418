//! A holder or a server dies, or is cut off: the time until a lock is granted again.

mod holders;
mod outages;
mod outcome;

use std::time::Duration;

use lockwell::backend::async_trait;

use self::outages::how_often;
use super::found::Found;
use crate::error::{Error, Result};
use crate::measure::stats::{micros, round3};
use crate::measure::workload::bench::{About, Bench, Workload};
use crate::plan::case::{Case, Others, START};
use crate::plan::{Plan, Rounds};
use crate::record::{self, Measurement, Quantity, Round};
use crate::target::Choice;
use crate::target::broken::{Lines, Victim};
use crate::target::kind::Kind;

pub(crate) struct Recovery;

/// The fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    HolderKilled,
    CutOff,
    Frozen,
    Killed,
}

const FAULTS: [Fault; 4] = [Fault::HolderKilled, Fault::CutOff, Fault::Frozen, Fault::Killed];

impl Fault {
    /// As the case is called. Groups of figures are made by it.
    fn name(self) -> &'static str {
        match self {
            Self::HolderKilled => "the holder is killed",
            Self::CutOff => "the holder is cut off",
            Self::Frozen => "a server is frozen",
            Self::Killed => "a server is killed",
        }
    }

    fn is_possible(self, choice: &Choice) -> bool {
        let near = choice.near();
        match self {
            Self::HolderKilled => choice.is_shared(),
            Self::CutOff => near.is_some_and(Lines::can_be_before),
            Self::Frozen | Self::Killed => {
                near.is_some_and(|kind| !matches!(kind, Kind::Memory | Kind::Sqlite))
            }
        }
    }

    /// What it takes with such a plan: as long as it should take, and what lies around it.
    fn time(self, plan: &Plan, choice: &Choice) -> Duration {
        let faults = plan.faults;
        let around = Duration::from_millis(1300);
        match self {
            // The holders come one after the other within a third of a lease, and as much passes before the
            // fault.
            Self::HolderKilled | Self::CutOff => faults.lease * 2 + around,
            Self::Frozen => (faults.freeze + around / 2) * faults.outages,
            Self::Killed => {
                let kind = choice.near();
                let slow = kind.is_some_and(|kind| matches!(kind, Kind::Sentinel | Kind::Cluster));
                let each = if slow { Duration::from_secs(8) } else { Duration::from_secs(2) };
                let grace = kind.map_or(Duration::ZERO, Victim::grace);
                // The restart before the first that counts is followed by a grace period as well.
                START + grace + (each + grace + around) * how_often(plan, kind)
            }
        }
    }
}

#[async_trait]
impl Workload for Recovery {
    fn about(&self) -> About {
        About::full(
            "recovery",
            "a holder is killed or cut off, a server is frozen or killed: the time to the next grant",
        )
    }

    fn cases(&self, plan: &Plan, choice: &Choice) -> Vec<Case> {
        let case = |fault: Fault| Case {
            name: fault.name().to_owned(),
            parties: if matches!(fault, Fault::HolderKilled | Fault::CutOff) {
                plan.faults.holders
            } else {
                1
            },
            parties_are: "processes",
            others: Others::None,
            ..Case::of_tasks(
                1,
                Rounds { least: 1, most: 1, ours: fault.time(plan, choice), floor: Duration::ZERO },
            )
        };
        FAULTS.into_iter().filter(|fault| fault.is_possible(choice)).map(case).collect()
    }

    async fn measure(&self, case: &Case, bench: &mut Bench) -> Result<Measurement> {
        let fault = FAULTS.into_iter().find(|fault| fault.name() == case.name);
        let fault = fault.ok_or_else(|| Error::failed("there is no such fault"))?;
        // The progress bar moves when it ends.
        let mut repeat = bench.repeat(case);
        repeat.next(&[], Duration::ZERO);
        let outcome = match fault {
            Fault::HolderKilled => holders::killed(case.parties, bench).await?,
            Fault::CutOff => holders::cut_off(case.parties, bench).await?,
            Fault::Frozen => outages::frozen(bench).await?,
            Fault::Killed => outages::killed(bench).await?,
        };
        drop(repeat);
        let mut found = Found::new(Quantity::LatencyUs, "from the fault to the next grant");
        for time in &outcome.times {
            found.rounds.push(Round { ours: micros(*time), floor: 0.0 });
            found.latency.note(Duration::from_nanos(*time), 1);
        }
        let recovery = record::Recovery {
            fault: outcome.fault,
            role: outcome.role,
            times_us: outcome.times.iter().copied().map(micros).collect(),
            bound_us: outcome.bound.as_ref().map(|bound| round3(bound.time.as_secs_f64() * 1e6)),
            bound_of: outcome.bound.map_or_else(String::new, |bound| bound.of),
            told_us: outcome.known_lost.into_iter().map(micros).collect(),
        };
        let measurement = found.measurement(self.name(), case, bench, Some((0.0, 0.0)), Vec::new());
        Ok(Measurement { recovery: Some(recovery), noisy: false, ..measurement })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::server::{Durability, Site};

    /// How long the death of a server is planned to take.
    fn killed(kind: Kind, plan: &Plan) -> Duration {
        let site = Site {
            folder: "/".into(),
            durability: Durability::default(),
            delay: Duration::ZERO,
            sync_delay: Duration::ZERO,
        };
        Fault::Killed.time(plan, &Choice::Own(kind, site))
    }

    #[test]
    fn grace_periods_are_planned() {
        let grace = Victim::grace(Kind::PostgresGrace);
        assert!(killed(Kind::Postgres, &Plan::USUAL) < grace, "a restart takes a moment");
        for plan in [Plan::USUAL, Plan::FULL] {
            let often = how_often(&plan, Some(Kind::PostgresGrace));
            assert!(often > 2 && often <= plan.faults.outages, "{often}: an interval takes three");
            // One more after the restart that is not counted.
            let planned = killed(Kind::PostgresGrace, &plan);
            assert!(planned > grace * (often + 1), "{planned:?}");
        }
        let once = Plan { faults: crate::plan::Faults { outages: 1, ..Plan::FULL.faults }, ..Plan::FULL };
        assert_eq!(how_often(&once, Some(Kind::PostgresGrace)), 1, "no more often than others");
        assert_eq!(how_often(&Plan::FULL, Some(Kind::Postgres)), Plan::FULL.faults.outages);
    }
}
