//! How long everything takes: the usual run, the quick one, the full one, and that of the tests.

pub(crate) mod case;

use std::time::Duration;

/// Rounds in which ours and the floor take turns, so that a machine that grows slower or faster does it to
/// both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rounds {
    /// Fewer say nothing about how far they lie apart.
    pub(crate) least: u32,
    /// So many fit into the time of the case. They end earlier when the interval is narrow.
    pub(crate) most: u32,
    /// So many times its time, and a case ends although its interval is wide.
    pub(crate) longest: u32,
    pub(crate) ours: Duration,
    pub(crate) floor: Duration,
}

/// How many processes want each of several names.
pub(crate) const ON_EACH_NAME: usize = 2;

impl Rounds {
    const fn new(least: u32, most: u32, ours_ms: u64, floor_ms: u64) -> Self {
        let (ours, floor) = (Duration::from_millis(ours_ms), Duration::from_millis(floor_ms));
        Self { least, most, longest: 3, ours, floor }
    }

    /// Of a run that is to end soon.
    const fn short(least: u32, most: u32, ours_ms: u64, floor_ms: u64) -> Self {
        Self::new(least, most, ours_ms, floor_ms).once()
    }

    /// The same, and a case takes its time once.
    const fn once(self) -> Self {
        Self { longest: 1, ..self }
    }

    /// The time of the case with this number of other libraries.
    pub(crate) fn time(self, peers: usize) -> Duration {
        let parties = u32::try_from(1 + peers).unwrap_or(u32::MAX);
        (self.ours * parties + self.floor) * self.most
    }
}

/// The length of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// As the result file calls it.
    pub(crate) mode: &'static str,
    pub(crate) uncontended: Rounds,
    pub(crate) independent: Rounds,
    pub(crate) arrivals: Rounds,
    pub(crate) handoff: Rounds,
    pub(crate) hot: Rounds,
    pub(crate) crowd: Rounds,
    pub(crate) modes: Rounds,
    pub(crate) herd: Rounds,
    pub(crate) holding: Rounds,
    pub(crate) recovery: Rounds,
    /// Workloads that the quick run leaves out are in it.
    pub(crate) everything: bool,
    /// Numbers of tasks on names of their own.
    pub(crate) tasks: &'static [usize],
    /// How many requests arrive in a second.
    pub(crate) rates: &'static [usize],
    /// Numbers of processes on names of their own.
    pub(crate) alone: &'static [usize],
    /// Numbers of processes on one name, and how long each of them holds the lock, in milliseconds.
    pub(crate) handoffs: &'static [(usize, &'static [u64])],
    /// Numbers of names that [`ON_EACH_NAME`] processes each want. No more processes than on one name: the
    /// connections of twice as many, and of other libraries beside them, are more than the databases take.
    pub(crate) hot_names: &'static [usize],
    /// Numbers of tasks of one process on one name.
    pub(crate) crowds: &'static [usize],
    /// Numbers of tasks on a lock that several may hold at once.
    pub(crate) sharing: &'static [usize],
    /// Numbers of processes that wait for one name, while the server counts.
    pub(crate) herds: &'static [usize],
    /// Numbers of locks that a process holds.
    pub(crate) held: &'static [usize],
    /// How often the disk is synced to learn how long that takes.
    pub(crate) syncs: u32,
}

impl Plan {
    /// Within half an hour with the backends that it has by default, or three times as long on a machine that is
    /// not steady.
    pub(crate) const USUAL: Self = Self {
        mode: "usual",
        uncontended: Rounds::new(10, 24, 250, 250),
        independent: Rounds::new(6, 8, 400, 150),
        arrivals: Rounds::new(4, 6, 500, 100),
        handoff: Rounds::new(6, 6, 750, 150),
        hot: Rounds::new(6, 6, 750, 150),
        crowd: Rounds::new(4, 4, 1000, 150),
        modes: Rounds::new(4, 4, 500, 100),
        herd: Rounds::new(4, 4, 1000, 150),
        holding: Rounds::new(4, 4, 1500, 0),
        recovery: Rounds::short(4, 4, 5000, 0),
        everything: true,
        tasks: &[1, 16, 64, 1024],
        rates: &[100, 1000],
        alone: &[16],
        handoffs: &[(1, &[0]), (4, &[0, 1]), (16, &[0, 1]), (64, &[0])],
        hot_names: &[8],
        crowds: &[64, 500],
        sharing: &[16],
        herds: &[8],
        held: &[10, 1000],
        syncs: 200,
    };

    /// Within three minutes with all backends.
    pub(crate) const QUICK: Self = Self {
        mode: "quick",
        uncontended: Rounds::short(6, 10, 150, 150),
        independent: Rounds::short(6, 6, 140, 60),
        arrivals: Self::USUAL.arrivals.once(),
        handoff: Rounds::short(6, 6, 250, 50),
        hot: Self::USUAL.hot.once(),
        crowd: Self::USUAL.crowd.once(),
        modes: Self::USUAL.modes.once(),
        herd: Self::USUAL.herd.once(),
        holding: Self::USUAL.holding.once(),
        everything: false,
        tasks: &[1, 16, 64],
        alone: &[],
        handoffs: &[(1, &[0]), (4, &[0, 1]), (16, &[0])],
        syncs: 50,
        ..Self::USUAL
    };

    /// Within an hour and a half with all backends, or three times as long.
    pub(crate) const FULL: Self = Self {
        mode: "full",
        uncontended: Rounds::new(12, 30, 250, 250),
        independent: Rounds::new(6, 6, 400, 200),
        arrivals: Rounds::new(4, 5, 800, 100),
        handoff: Rounds::new(5, 5, 500, 100),
        hot: Rounds::new(4, 4, 500, 100),
        crowd: Rounds::new(4, 5, 800, 120),
        modes: Rounds::new(4, 5, 600, 120),
        herd: Rounds::new(4, 5, 1000, 150),
        holding: Rounds::new(3, 3, 2500, 0),
        tasks: &[1, 16, 64, 256, 1024],
        rates: &[100, 1000, 3000, 10_000],
        alone: &[1, 4, 16],
        // With long holds, the number of processes matters little.
        handoffs: &[
            (1, &[0, 1]),
            (2, &[0, 1, 10, 100]),
            (4, &[0, 1, 10, 100]),
            (16, &[0, 1, 10]),
            (64, &[0, 1]),
        ],
        hot_names: &[1, 8, 32],
        crowds: &[1, 64, 500],
        sharing: &[4, 16, 64],
        herds: &[4, 16, 64],
        held: &[10, 1000, 10_000],
        syncs: 1000,
        ..Self::USUAL
    };

    /// Just enough for every part of the program to run once. Its figures mean nothing.
    pub(crate) const SMOKE: Self = Self {
        mode: "smoke",
        uncontended: Rounds::short(4, 4, 30, 30),
        // Too few for a ratio, so that the tests see what is said then.
        independent: Rounds::short(1, 1, 50, 30),
        arrivals: Rounds::short(3, 3, 100, 30),
        handoff: Rounds::short(4, 4, 100, 30),
        hot: Rounds::short(3, 3, 150, 30),
        crowd: Rounds::short(1, 1, 200, 30),
        modes: Rounds::short(3, 3, 60, 30),
        herd: Rounds::short(3, 3, 150, 30),
        holding: Rounds::short(3, 3, 300, 0),
        recovery: Rounds::short(1, 1, 5000, 0),
        tasks: &[1, 4],
        rates: &[100],
        alone: &[2],
        handoffs: &[(2, &[0, 1])],
        hot_names: &[2],
        crowds: &[4, 8],
        sharing: &[8],
        herds: &[3],
        held: &[5],
        syncs: 3,
        ..Self::USUAL
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::workload::ALL;
    use crate::target::Choice;
    use crate::target::kind::Kind;
    use crate::target::server::{Durability, Site};

    /// The names of all cases, and how long their rounds take.
    fn cases(kind: Kind, plan: &Plan) -> (Vec<(&'static str, String)>, Duration) {
        let (delay, sync_delay) = (Duration::ZERO, Duration::ZERO);
        let site = Site { folder: "/".into(), durability: Durability::default(), delay, sync_delay };
        let choice = Choice::Own(kind, site);
        let workloads = ALL.into_iter().filter(|it| plan.everything || !it.about().only_in_full);
        let cases = workloads.flat_map(|it| it.cases(plan, &choice).into_iter().map(move |case| (it, case)));
        let (names, times): (Vec<_>, Vec<_>) =
            cases.map(|(it, case)| ((it.name(), case.name), case.rounds.time(0))).unzip();
        (names, times.iter().sum())
    }

    #[test]
    fn the_runs_are_as_short_as_promised() {
        let total =
            |kinds: &[Kind], plan: &Plan| kinds.iter().map(|kind| cases(*kind, plan).1).sum::<Duration>();
        let (quick, usual) = (total(&Kind::USUAL, &Plan::QUICK), total(&Kind::USUAL, &Plan::USUAL));
        let full = total(Kind::all(), &Plan::FULL);
        let all = format!("{quick:?}, {usual:?}, {full:?}");
        assert!(quick < Duration::from_mins(3), "{all}");
        assert!(usual < Duration::from_mins(28), "{all}");
        assert!(full < Duration::from_mins(95), "{all}");
    }

    #[test]
    fn no_case_of_a_quick_run_takes_more_than_its_time() {
        let site = Site {
            folder: "/".into(),
            durability: Durability::default(),
            delay: Duration::ZERO,
            sync_delay: Duration::ZERO,
        };
        let choice = Choice::Own(Kind::Redis, site);
        for workload in ALL {
            for case in workload.cases(&Plan::QUICK, &choice) {
                assert_eq!(case.rounds.longest, 1, "{}: {}", workload.name(), case.name);
            }
        }
    }

    #[test]
    fn no_two_cases_have_one_name() {
        for kind in Kind::all() {
            for plan in [Plan::QUICK, Plan::USUAL, Plan::FULL, Plan::SMOKE] {
                let (mut names, _) = cases(*kind, &plan);
                let count = names.len();
                names.sort_unstable();
                names.dedup();
                assert_eq!(names.len(), count, "{kind:?} {}", plan.mode);
            }
        }
        let option = ("crowd", "64 tasks, one name, server_order=true".to_owned());
        assert!(cases(Kind::Redis, &Plan::USUAL).0.contains(&option));
        assert!(!cases(Kind::ZooKeeper, &Plan::USUAL).0.contains(&option));
    }
}
