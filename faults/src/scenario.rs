//! What a scenario is: who works how, which faults happen, and what is to come of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::kind::{Kind, Memory, Setup};
use super::schedule::{Draw, Fault, PlannedFault};
use crate::plan::Misuse;

/// What a backend is expected to do in a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Expected {
    /// No two hold the lock that must not, and it is granted again within the bound.
    Safe,
    /// Two may consider themselves the holder for a while. The guarded witness loses nothing.
    MayOverlap,
    /// As safe; and while the server cannot be reached, nobody considers itself the holder for more than a
    /// lease.
    Unavailable,
}

impl Expected {
    /// In one word, as tables have it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Safe => "safe",
            Self::MayOverlap => "guard",
            Self::Unavailable => "told",
        }
    }

    /// In words, as the documentation has it.
    pub fn words(self) -> &'static str {
        match self {
            Self::Safe => "safe",
            Self::MayOverlap => "may overlap, the guard holds",
            Self::Unavailable => "unavailable, holder told",
        }
    }
}

/// Who works, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crew {
    pub(crate) workers: u32,
    /// Of each worker.
    pub(crate) tasks: u32,
    /// That go quickly from hand to hand; as many more are held for long.
    pub(crate) locks: u32,
    /// The names of the locks look like each other.
    pub(crate) look_alike: bool,
    /// Mutexes only, or also a reader-writer lock and a semaphore.
    pub(crate) all_modes: bool,
    /// Microseconds.
    pub(crate) hold: u64,
    /// So many of a hundred holds of the others are long: so many hundredths of a lease.
    pub(crate) long: (u32, u64),
    pub(crate) cancelled: u32,
    pub(crate) impatient: u32,
    pub(crate) dropped: u32,
    pub(crate) misuse: Misuse,
    /// How long it goes on if no fault makes it longer, in milliseconds.
    pub(crate) least: u64,
}

impl Crew {
    pub(crate) const USUAL: Self = Self {
        workers: 3,
        tasks: 12,
        locks: 9,
        look_alike: false,
        all_modes: true,
        hold: 1_000,
        long: (40, 60),
        cancelled: 6,
        impatient: 6,
        dropped: 15,
        misuse: Misuse::None,
        least: 5_000,
    };
}

/// A scenario.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// What happens, in one sentence.
    pub(crate) about: &'static str,
    pub(crate) crew: Crew,
    pub(crate) memory: Memory,
    pub(crate) setup: Setup,
    /// Whether it is part of the quick set.
    pub(crate) is_quick: bool,
    /// Draws the faults.
    pub(crate) draw: fn(&mut Draw),
    /// `Err`: why it cannot be done with this backend.
    pub(crate) expected: fn(Kind) -> Result<Expected, &'static str>,
}

impl Scenario {
    /// The faults for this seed.
    pub(crate) fn schedule(&self, seed: u64, kind: Kind, ttl: u64) -> Vec<PlannedFault> {
        let mut draw = Draw::new(seed, self.name, kind, ttl, self.crew.workers, 2 * self.crew.locks);
        (self.draw)(&mut draw);
        draw.finish()
    }

    /// Whether an operator is needed.
    pub(crate) fn has_operator(schedule: &[PlannedFault]) -> bool {
        schedule.iter().any(|planned| matches!(planned.fault, Fault::ForceRelease { .. }))
    }
}
