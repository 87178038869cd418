//! How long everything takes: the full run, the quick one, and the one of the tests.

use std::time::Duration;

/// Rounds in which ours and the floor take turns, so that a machine that grows slower or faster does it to both.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rounds {
    pub(crate) count: u32,
    pub(crate) ours: Duration,
    pub(crate) floor: Duration,
}

impl Rounds {
    const fn new(count: u32, ours_ms: u64, floor_ms: u64) -> Self {
        Self { count, ours: Duration::from_millis(ours_ms), floor: Duration::from_millis(floor_ms) }
    }

    pub(crate) fn time(self) -> Duration {
        (self.ours + self.floor) * self.count
    }
}

/// The length of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// As `results.json` calls it.
    pub(crate) mode: &'static str,
    pub(crate) uncontended: Rounds,
    pub(crate) independent: Rounds,
    pub(crate) handoff: Rounds,
    pub(crate) crowd: Rounds,
    /// Workloads that only the full run has are in it.
    pub(crate) everything: bool,
    /// Numbers of tasks on names of their own.
    pub(crate) tasks: &'static [usize],
    /// Numbers of processes on one name.
    pub(crate) processes: &'static [usize],
    /// How long each of them holds the lock.
    pub(crate) holds: &'static [Duration],
    /// Numbers of tasks of one process on one name.
    pub(crate) crowds: &'static [usize],
}

impl Plan {
    /// About eighteen minutes with all backends.
    pub(crate) const FULL: Self = Self {
        mode: "full",
        uncontended: Rounds::new(40, 250, 250),
        independent: Rounds::new(8, 600, 300),
        handoff: Rounds::new(8, 1250, 200),
        crowd: Rounds::new(6, 1350, 200),
        everything: true,
        tasks: &[1, 16, 64],
        processes: &[2, 4],
        holds: &[Duration::ZERO, Duration::from_millis(1)],
        crowds: &[64, 500],
    };

    /// Within three minutes with all backends.
    pub(crate) const QUICK: Self = Self {
        mode: "quick",
        uncontended: Rounds::new(10, 150, 150),
        independent: Rounds::new(6, 140, 60),
        handoff: Rounds::new(6, 250, 50),
        everything: false,
        ..Self::FULL
    };

    /// Just enough for every part of the program to run once. Its figures mean nothing.
    pub(crate) const SMOKE: Self = Self {
        mode: "smoke",
        uncontended: Rounds::new(4, 30, 30),
        // Too few for a ratio, so that the tests see what is said then.
        independent: Rounds::new(1, 50, 30),
        handoff: Rounds::new(4, 100, 30),
        crowd: Rounds::new(1, 200, 30),
        tasks: &[1, 4],
        processes: &[2],
        holds: &[Duration::ZERO],
        crowds: &[8],
        ..Self::FULL
    };
}
