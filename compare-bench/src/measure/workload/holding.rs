//! A process that holds locks and does nothing else: what that costs client and server.

use std::time::{Duration, Instant};

use lockwell::backend::async_trait;

use super::found::Found;
use crate::error::{Error, Result};
use crate::measure::counter::Counter;
use crate::measure::usage::{Usage, connections};
use crate::measure::worker::Worker;
use crate::measure::workload::bench::{About, Bench, Workload};
use crate::plan::Plan;
use crate::plan::case::{Case, Others};
use crate::record::{self, Cost, Measurement, Quantity, Round};
use crate::stats::{as_float, median, round3};
use crate::target::Choice;

pub(crate) struct Holding;

/// What the rounds found, a second.
#[derive(Default)]
struct Rates {
    requests: Vec<f64>,
    client: Vec<f64>,
    server: Vec<f64>,
    seconds: f64,
}

#[async_trait]
impl Workload for Holding {
    fn about(&self) -> About {
        About::full(
            "holding",
            "a process holds 10 locks and more: requests a second, processors and memory of client and server, connections",
        )
    }

    fn cases(&self, plan: &Plan, _: &Choice) -> Vec<Case> {
        let case = |locks: &usize| Case {
            name: format!("{locks} locks held"),
            parties_are: "locks",
            others: Others::None,
            ..Case::of_tasks(*locks, plan.holding)
        };
        plan.held.iter().map(case).collect()
    }

    async fn measure(&self, case: &Case, bench: &mut Bench) -> Result<Measurement> {
        let (locks, lease) = (case.parties, bench.lease());
        let mut worker = Worker::ready(&bench.target.url, &bench.lock_name(self.name(), locks)).await?;
        let client = [worker.pid().ok_or_else(|| Error::failed("the worker process has ended"))?];
        let servers: Vec<u32> =
            bench.target.running.servers().iter().filter_map(testbed::Server::pid).collect();
        let before = (Usage::of(&client), Usage::of(&servers));
        worker.hold(locks, lease).await?;
        // What taking them has left to be done is not holding. Locks that were taken together are renewed
        // together: a round has whole periods, and no renewal at its ends.
        let period = lease / 3;
        tokio::time::sleep(period + period / 2).await;
        let grown = |after: &Usage, before: &Usage| {
            let kib = |usage: &Usage| i64::try_from(usage.memory_kib).unwrap_or(i64::MAX);
            kib(after) - kib(before)
        };
        let counter = bench.counter().await?;
        let (mut found, mut rates) = (Found::new(Quantity::CpuUs, "nothing"), Rates::default());
        let mut repeat = bench.repeat(case);
        while repeat.next(&found.rounds, Duration::ZERO).is_some() {
            let total =
                rates.round(counter.as_ref(), periods(case.rounds.ours, period), (&client, &servers)).await?;
            found.rounds.push(Round { ours: total, floor: 0.0 });
        }
        let after = (Usage::of(&client), Usage::of(&servers));
        let cost = |cpu: &[f64], after: &Usage, before: &Usage| Cost {
            cpu_us: round3(median(cpu.iter().copied())),
            memory_kib: after.memory_kib,
            grown_kib: grown(after, before),
        };
        let holding = record::Holding {
            locks,
            lease_us: u64::try_from(lease.as_micros()).unwrap_or(u64::MAX),
            seconds: round3(rates.seconds),
            requests_per_second: (!rates.requests.is_empty())
                .then(|| round3(median(rates.requests.iter().copied()))),
            client: cost(&rates.client, &after.0, &before.0),
            server: (!servers.is_empty()).then(|| cost(&rates.server, &after.1, &before.1)),
            connections: connections(client[0]),
        };
        worker.finish().await?;
        let measurement = found.measurement(self.name(), case, bench, Some((0.0, 0.0)), Vec::new());
        Ok(Measurement { holding: Some(holding), noisy: false, ..measurement })
    }
}

/// The multiple of the period that is nearest to this time, and not zero.
fn periods(length: Duration, period: Duration) -> Duration {
    let times = length.div_duration_f64(period).round().max(1.0);
    period.mul_f64(times)
}

impl Rates {
    /// Measures for this time. Returns the processor time of all, in microseconds per second.
    async fn round(
        &mut self,
        counter: Option<&Counter>,
        length: Duration,
        (client, servers): (&[u32], &[u32]),
    ) -> Result<f64> {
        // Without what it costs to read the counter.
        let work = async {
            let (before, began) = ((Usage::of(client), Usage::of(servers)), Instant::now());
            tokio::time::sleep(length).await;
            (before, (Usage::of(client), Usage::of(servers)), began.elapsed().as_secs_f64())
        };
        let ((before, after, seconds), count) = Counter::over(counter, work).await?;
        let each = |nanos: u64| as_float(nanos) / 1000.0 / seconds;
        let (client, server) = (each(after.0.nanos_since(&before.0)), each(after.1.nanos_since(&before.1)));
        self.client.push(client);
        self.server.push(server);
        self.requests.extend(count.map(|count| as_float(count.requests) / seconds));
        self.seconds += seconds;
        Ok(client + server)
    }
}
