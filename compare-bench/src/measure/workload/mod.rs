//! The workloads: one file each, and one line in the table.

pub(crate) mod arrivals;
pub(crate) mod bench;
mod contention;
mod crowd;
mod found;
mod handoff;
mod herd;
mod holding;
mod hot;
mod independent;
mod kill;
mod measured;
mod modes;
mod recovery;
mod uncontended;

use crate::measure::workload::bench::Workload;

/// Every workload.
pub(crate) const ALL: [&dyn Workload; 11] = [
    &uncontended::Uncontended,
    &independent::Independent,
    &arrivals::Arrivals,
    &handoff::Handoff,
    &hot::Hot,
    &crowd::Crowd,
    &modes::Modes::Readers,
    &modes::Modes::Semaphore,
    &herd::Herd,
    &holding::Holding,
    &recovery::Recovery,
];
