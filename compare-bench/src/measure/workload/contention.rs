//! What contention is compared with.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::measure::contend::{ContendedLock, among_tasks};
use crate::measure::workload::bench::Bench;
use crate::plan::TRIPS;
use crate::stats::Sample;

/// The floor of contention: one raw cycle after the other on one connection, since a hand-over takes a
/// statement that clears and one that takes. In this process, a mutex and as many tasks.
#[derive(Debug)]
pub(crate) struct FloorRound {
    /// Latencies of hand-overs, or of raw cycles.
    pub(crate) sample: Sample,
    pub(crate) per_second: f64,
    /// How long a request takes that writes nothing, where there is a server and it is far away.
    pub(crate) trip_us: Option<f64>,
}

impl FloorRound {
    pub(crate) async fn take(
        bench: &mut Bench,
        tasks: usize,
        hold: Duration,
        length: Duration,
    ) -> Result<Self> {
        if bench.target.is_shared() {
            let sample = bench.floor.round(length, 1).await?;
            // On the loopback device, a trip is so short that it says nothing.
            let trips = if bench.is_far { bench.floor.trips(TRIPS, hold).await? } else { None };
            let trip_us = trips.map(|trips| trips.median_us());
            return Ok(Self { per_second: sample.per_second(), sample, trip_us });
        }
        let history = among_tasks(&ContendedLock::Mutex(Arc::default()), tasks, hold, length).await?;
        Ok(Self { sample: history.handovers(), per_second: history.per_second(), trip_us: None })
    }
}
