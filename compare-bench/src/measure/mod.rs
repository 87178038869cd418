//! Measuring: the workloads, what they are compared with, and what is computed from their rounds.

pub(crate) mod contend;
pub(crate) mod contrast;
pub(crate) mod counter;
pub(crate) mod cycles;
pub(crate) mod floor;
pub(crate) mod history;
pub(crate) mod peer;
pub(crate) mod progress;
pub(crate) mod repeat;
pub(crate) mod usage;
pub(crate) mod worker;
pub(crate) mod workload;
