//! Measuring: the run, its workloads, what they are compared with, and what is computed from their rounds.

pub(crate) mod buckets;
pub(crate) mod counter;
pub(crate) mod cycles;
pub(crate) mod floor;
pub(crate) mod history;
pub(crate) mod hold;
pub(crate) mod interval;
pub(crate) mod peer;
pub(crate) mod progress;
pub(crate) mod repeat;
pub(crate) mod run;
pub(crate) mod stats;
pub(crate) mod usage;
pub(crate) mod worker;
pub(crate) mod workload;
