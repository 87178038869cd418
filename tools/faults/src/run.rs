//! One run: the scenario, the backend, and the faults that are drawn for it.

use std::path::Path;

use crate::kind::Kind;
use crate::scenario::Scenario;
use crate::schedule::PlannedFault;
use crate::time::millis;

/// One run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) kind: Kind,
    pub(crate) seed: u64,
    /// Where the histories go.
    pub(crate) folder: &'a Path,
}

impl Run<'_> {
    /// The faults that this run has.
    pub(crate) fn schedule(&self) -> Vec<PlannedFault> {
        self.scenario.schedule(self.seed, self.kind, millis(self.kind.ttl()))
    }
}
