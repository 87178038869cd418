//! What a scenario is: who works how, which faults happen, and what is to come of it.

use serde::{Deserialize, Serialize};

use super::kind::{Kind, Memory, Setup};
use super::schedule::{Draw, Fault, PlannedFault};
use crate::plan::Crew;

/// What a backend is expected to do in a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expected {
    /// No two hold the lock that must not, and it is granted again within the bound.
    Safe,
    /// No two hold the lock that must not. A holder may lose it before its lease ends, and is told.
    MayLose,
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
            Self::MayLose => "lost",
            Self::MayOverlap => "double",
            Self::Unavailable => "told",
        }
    }

    /// In words, as the documentation has it.
    pub fn words(self) -> &'static str {
        match self {
            Self::Safe => "safe",
            Self::MayLose => "no overlap, a holder may lose its lock",
            Self::MayOverlap => "may overlap, the guard holds",
            Self::Unavailable => "unavailable, holder told",
        }
    }
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
    /// Whether it is part of the quick set: what the conformance suite has no case for.
    pub(crate) is_quick: bool,
    /// Draws the faults.
    pub(crate) draw: fn(&mut Draw),
    /// `None`: it cannot be done with this backend.
    pub(crate) expected: fn(Kind) -> Option<Expected>,
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
