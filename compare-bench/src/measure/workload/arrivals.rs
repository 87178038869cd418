//! Requests that arrive at a given rate, whether or not earlier ones have their answers: the latency of a
//! service under load.
//!
//! The loop is open. A task that asks again only when it has its answer sends nothing while the server is
//! slow, and leaves the latencies out that others would have had meanwhile. Here the times of arrival are
//! drawn beforehand, as those of a Poisson process, and each latency is counted from the time of arrival,
//! even if the request was sent later.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lockwell::Locks;
use lockwell::backend::async_trait;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tokio::runtime::Handle;
use tokio::task::{JoinSet, spawn_blocking};

use super::found::Found;
use super::independent;
use crate::error::{Error, Result};
use crate::measure::contend::TIMEOUT;
use crate::measure::workload::bench::{About, Bench, Workload, in_turns};
use crate::plan::Plan;
use crate::plan::case::{Case, Others};
use crate::record::{Measurement, Quantity, Round};
use crate::stats::{Sample, as_float};
use crate::target::Choice;

/// As many as are held at once by most backends that keep up, and more.
const NAMES: usize = 256;

/// What the parties of a case with a given rate are.
pub(crate) const A_SECOND: &str = "arrivals a second";

/// Of the case whose rate depends on what so many tasks reach.
const TASKS: usize = 64;

/// A service is meant to run below what its locks could do at most.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rates are small and positive")]
fn rate_below(reached: f64) -> usize {
    (0.8 * reached).max(1.0) as usize
}

/// Names that no request is using. Clones share them.
#[derive(Clone)]
struct FreeNames(Arc<Mutex<Names>>);

struct Names {
    /// The one that has been free for the longest time comes first.
    free: VecDeque<String>,
    /// With which new ones begin.
    prefix: String,
    made: usize,
}

impl FreeNames {
    fn new(names: Vec<String>, prefix: String) -> Self {
        Self(Arc::new(Mutex::new(Names { made: 0, prefix, free: names.into() })))
    }

    /// A free name. While more requests are under way than there are names, it is a new one: none waits for
    /// the lock of another.
    fn take(&self) -> String {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.free.pop_front().unwrap_or_else(|| {
            names.made += 1;
            format!("{}/{}", names.prefix, names.made)
        })
    }

    fn give_back(&self, name: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).free.push_back(name);
    }
}

pub(crate) struct Arrivals;

#[async_trait]
impl Workload for Arrivals {
    fn about(&self) -> About {
        About::full(
            "arrivals",
            "acquire + release latency of requests that arrive at a given rate, on free names (open loop)",
        )
    }

    fn cases(&self, plan: &Plan, _: &Choice) -> Vec<Case> {
        let case = |rate: &usize| Case {
            name: format!("{rate} a second"),
            parties_are: A_SECOND,
            others: Others::None,
            ..Case::of_tasks(*rate, plan.arrivals)
        };
        let loaded = Case {
            name: "0.8 of what 64 tasks reach".to_owned(),
            others: Others::None,
            ..Case::of_tasks(TASKS, plan.arrivals)
        };
        plan.rates.iter().map(case).chain([loaded]).collect()
    }

    async fn measure(&self, case: &Case, bench: &mut Bench) -> Result<Measurement> {
        let names: Vec<_> = (0..NAMES).map(|number| bench.lock_name(self.name(), number)).collect();
        bench.warm_up(&names).await?;
        let rate = if case.parties_are == A_SECOND {
            case.parties
        } else {
            let reached =
                independent::round(&bench.locks, &names[..case.parties], 2 * case.rounds.ours).await?;
            rate_below(reached.per_second())
        };
        let names = FreeNames::new(names, bench.lock_name(self.name(), NAMES));
        let mut found = Found::new(Quantity::LatencyUs, "from the arrival to the end of the release");
        let mut repeat = bench.repeat(case);
        while let Some(number) = repeat.next(&found.rounds, Duration::ZERO) {
            let due = times(rate, case.rounds.ours, u64::from(number));
            let ours = round(&bench.locks, &names, due);
            let floor = bench.floor.round(case.rounds.floor, 1);
            let (ours, floor, ()) = in_turns(number, ours, floor, async {}).await;
            let (ours, floor) = (ours?, floor?);
            found.add(Round { ours: ours.median_us(), floor: floor.median_us() }, &ours, &floor);
        }
        let measurement = found.measurement(self.name(), case, bench, None, Vec::new());
        Ok(Measurement { rate: Some(as_float(u64::try_from(rate).unwrap_or(u64::MAX))), ..measurement })
    }
}

/// When requests arrive within a round, from its beginning: the same for each backend.
fn times(rate: usize, length: Duration, seed: u64) -> Vec<Duration> {
    let mut random = SmallRng::seed_from_u64(seed);
    let mean = Duration::from_secs(1) / u32::try_from(rate).unwrap_or(u32::MAX);
    let mut now = Duration::ZERO;
    std::iter::from_fn(|| {
        let share: f64 = random.random_range(f64::MIN_POSITIVE..1.0);
        now += mean.mul_f64(-share.ln());
        (now < length).then_some(now)
    })
    .collect()
}

/// Sends each request when it is due, and waits for all answers.
async fn round(locks: &Locks, names: &FreeNames, due: Vec<Duration>) -> Result<Sample> {
    let (locks, names, runtime) = (locks.clone(), names.clone(), Handle::current());
    let began = Instant::now();
    // On a thread of its own: timers of the runtime count in milliseconds.
    let mut requests = spawn_blocking(move || {
        let mut requests = JoinSet::new();
        for due in due {
            thread::sleep(due.saturating_sub(began.elapsed()));
            let (locks, names) = (locks.clone(), names.clone());
            let request = async move {
                let name = names.take();
                locks.lock(name.as_str()).wait(TIMEOUT).await?.release().await?;
                let done = began.elapsed();
                names.give_back(name);
                Ok::<_, Error>((done, done.saturating_sub(due)))
            };
            requests.spawn_on(request, &runtime);
        }
        requests
    })
    .await?;
    // From the first answer to the last one: the rate is that of the answers.
    let (mut sample, mut first, mut last) = (Sample::new(), Duration::MAX, Duration::ZERO);
    while let Some(done) = requests.join_next().await {
        let (done, latency) = done??;
        (first, last) = (first.min(done), last.max(done));
        sample.note(latency, 1);
    }
    sample.took(last.saturating_sub(first));
    Ok(sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_used_by_one_request_at_a_time() {
        let names = FreeNames::new(vec!["a".to_owned(), "b".to_owned()], "more".to_owned());
        let used = [names.take(), names.take(), names.take(), names.take()];
        assert_eq!(used.iter().collect::<std::collections::HashSet<_>>().len(), 4, "{used:?}");
        let [first, second, ..] = used;
        names.give_back(second.clone());
        names.give_back(first);
        assert_eq!(names.take(), second);
    }

    #[test]
    fn requests_arrive_at_the_rate_and_not_evenly() {
        let length = Duration::from_secs(10);
        let due = times(1000, length, 7);
        assert!((9_500..10_500).contains(&due.len()), "{}", due.len());
        assert!(due.is_sorted() && due.last() < Some(&length));
        // Of a Poisson process, a share of 1/e of the gaps is longer than the mean.
        let long =
            due.windows(2).filter(|pair| pair[1].saturating_sub(pair[0]) > Duration::from_millis(1)).count();
        assert!((3_300..4_100).contains(&long), "{long}");
        assert_eq!(due, times(1000, length, 7), "each backend gets the same");
        assert_ne!(due, times(1000, length, 8), "and each round others");
    }

    #[test]
    fn the_rate_is_below_what_is_reached() {
        assert_eq!([rate_below(1000.0), rate_below(0.4)], [800, 1]);
    }
}
