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
    /// Of the faults that are drawn, only these happen, by number.
    pub(crate) only: Option<&'a [usize]>,
    /// Where the histories go.
    pub(crate) folder: &'a Path,
}

impl Run<'_> {
    /// The faults that this run has.
    pub(crate) fn schedule(&self) -> Vec<PlannedFault> {
        let all = self.scenario.schedule(self.seed, self.kind, millis(self.kind.ttl()));
        let is_wanted = |number: usize| self.only.is_none_or(|only| only.contains(&number));
        let wanted = all.into_iter().enumerate().filter(|(number, _)| is_wanted(*number));
        wanted.map(|(_, planned)| planned).collect()
    }
}
