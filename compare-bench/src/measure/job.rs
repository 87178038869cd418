//! The list of what a run will do, made before it begins: from it come the progress bar, the estimate, and
//! what is left to do when a run goes on.

use std::time::Duration;

use crate::measure::workload::bench::Workload;
use crate::plan::Plan;
use crate::plan::case::{Case, Others, START};
use crate::target::Choice;

/// What is done on one backend.
pub(crate) struct Job {
    pub(crate) choice: Choice,
    /// Indices into the libraries that were built.
    pub(crate) peers: Vec<usize>,
    /// How many of these are light.
    light: usize,
    pub(crate) cases: Vec<(&'static dyn Workload, Case)>,
}

impl Job {
    /// All cases of these workloads on a backend.
    pub(crate) fn new(
        choice: Choice,
        peers: Vec<usize>,
        light: usize,
        workloads: &[&'static dyn Workload],
        plan: &Plan,
    ) -> Self {
        let cases = workloads
            .iter()
            .flat_map(|workload| workload.cases(plan, &choice).into_iter().map(|case| (*workload, case)));
        Self { cases: cases.collect(), choice, peers, light }
    }

    /// The longest that its cases should take. A case that is sure sooner ends sooner.
    pub(crate) fn time(&self) -> Duration {
        let cases = self.cases.iter().map(|(_, case)| self.time_of(case)).sum::<Duration>();
        if self.cases.is_empty() { Duration::ZERO } else { START + cases }
    }

    pub(crate) fn time_of(&self, case: &Case) -> Duration {
        case.setup() + case.rounds.time(self.peers_of(case))
    }

    /// How many other libraries do a case.
    fn peers_of(&self, case: &Case) -> usize {
        match case.others {
            Others::None => 0,
            Others::Light => self.light,
            Others::All => self.peers.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::workload::ALL;
    use crate::target::kind::Kind;
    use crate::target::server::{Durability, Site};

    fn job(kind: Kind, plan: &Plan, peers: usize) -> Job {
        let site = Site {
            folder: "/".into(),
            durability: Durability::default(),
            delay: Duration::ZERO,
            sync_delay: Duration::ZERO,
        };
        let workloads: Vec<_> =
            ALL.into_iter().filter(|workload| plan.everything || !workload.about().only_in_full).collect();
        Job::new(Choice::Own(kind, site), (0..peers).collect(), peers / 2, &workloads, plan)
    }

    fn total(kinds: impl IntoIterator<Item = Kind>, plan: &Plan) -> Duration {
        kinds.into_iter().map(|kind| job(kind, plan, 0).time()).sum()
    }

    #[test]
    fn the_runs_are_as_short_as_promised() {
        let (quick, usual) = (total(Kind::USUAL, &Plan::QUICK), total(Kind::USUAL, &Plan::USUAL));
        let full = total(Kind::ALL, &Plan::FULL);
        let all = format!("{quick:?}, {usual:?}, {full:?}");
        assert!(quick < Duration::from_mins(3), "{all}");
        assert!(usual < Duration::from_mins(30), "{all}");
        assert!(full < Duration::from_mins(100), "{all}");
    }

    #[test]
    fn variants_and_peers_are_in_the_list() {
        let redis = job(Kind::Redis, &Plan::USUAL, 0);
        let names: Vec<_> = redis.cases.iter().map(|(_, case)| &*case.name).collect();
        assert!(names.contains(&"64 tasks, one name, server_order=true"), "{names:?}");
        let zookeeper = job(Kind::ZooKeeper, &Plan::USUAL, 0);
        let mut others = zookeeper.cases.iter().map(|(_, case)| &*case.name);
        assert!(others.all(|name| name != "64 tasks, one name, server_order=true"));
        let with_peers = job(Kind::Redis, &Plan::USUAL, 2);
        let of_others = |(_, case): &(&'static dyn Workload, Case)| {
            let others = u32::try_from(with_peers.peers_of(case)).unwrap();
            case.rounds.ours * case.rounds.most * others
        };
        let more: Duration = redis.cases.iter().map(of_others).sum();
        assert!(
            redis.cases.iter().any(|(_, case)| with_peers.peers_of(case) == 1),
            "one of the two is light"
        );
        assert_eq!(with_peers.time(), redis.time() + more);
        let nothing = Job { cases: Vec::new(), ..redis };
        assert!(nothing.time().is_zero());
    }

    #[test]
    fn no_two_cases_have_one_name() {
        for kind in Kind::ALL {
            for plan in [Plan::QUICK, Plan::USUAL, Plan::FULL, Plan::SMOKE] {
                let job = job(kind, &plan, 0);
                let mut names: Vec<_> =
                    job.cases.iter().map(|(workload, case)| (workload.name(), &case.name)).collect();
                names.sort_unstable();
                names.dedup();
                assert_eq!(names.len(), job.cases.len(), "{kind:?} {}", plan.mode);
            }
        }
    }
}
