//! A server that does a fixed number of requests in a second, on a clock that the test moves.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::{Clock, TestClock};

/// The length of a call.
const CALL: Duration = Duration::from_millis(20);

/// The most requests in one.
const BATCH: usize = 10;

/// How many requests the server can do in a second.
const MOST: f64 = 500.0;

/// For how long a caller waits for its answer.
const LIMIT: Duration = Duration::from_secs(5);

struct Paced(Clock);

impl Service for Paced {
    type Key = ();
    type Request = ();
    type Answer = ();

    fn shares(&self, (): &(), (): &()) -> bool {
        true
    }

    async fn call(&self, (): &(), batch: &[&()], _: Attempt) -> Vec<CallOutcome<()>> {
        self.0.sleep(CALL).await;
        batch.iter().map(|()| CallOutcome::Answered(())).collect()
    }
}

/// What became of a request.
struct Done {
    /// When it came, from the beginning.
    came: Duration,
    took: Duration,
    answer: std::result::Result<(), ErrorKind>,
}

/// What became of all of them.
struct Load(Vec<Done>);

impl Load {
    /// Requests come at random times, on average at this share of what the server can do.
    async fn of(share: f64, length: Duration) -> Self {
        let time = TestClock::new();
        let clock = time.clock();
        let batcher = Batcher::with_clock(Paced(clock.clone()), Bounds::new().batch(BATCH), clock.clone());
        let mut random = SmallRng::seed_from_u64(7);
        let (began, mut due) = (clock.now(), Duration::ZERO);
        let mut calls = tokio::task::JoinSet::new();
        let step = Duration::from_millis(2);
        let now = |clock: &Clock| clock.now().since(began);
        while now(&clock) < length + LIMIT + CALL {
            while due <= now(&clock) && due < length {
                let (call, clock, came) = (batcher.call((), (), LIMIT), clock.clone(), clock.now());
                calls.spawn(async move {
                    let answer = call.await.map(|_| ()).map_err(|error| error.kind());
                    Done { came: came.since(began), took: clock.now().since(came), answer }
                });
                let gap: f64 = random.random_range(f64::MIN_POSITIVE..1.0);
                due += Duration::from_secs_f64(-gap.ln() / (MOST * share));
            }
            let_others_run().await;
            time.advance(step);
        }
        Self(calls.join_all().await)
    }
}

#[tokio::test]
async fn a_server_with_a_fifth_to_spare_answers_soon() {
    let load = Load::of(0.8, Duration::from_secs(20)).await;
    assert!(load.0.iter().all(|one| one.answer.is_ok()));
    let mut times: Vec<_> = load.0.iter().map(|one| one.took).collect();
    times.sort_unstable();
    let late = times[times.len() * 99 / 100];
    // A request that finds the server idle takes a call.
    assert!(late < CALL * 20, "{late:?}");
}

#[tokio::test]
async fn more_than_a_server_can_do_is_refused_and_the_rest_is_answered() {
    let load = Load::of(2.0, Duration::from_secs(30)).await;
    let longest = load.0.iter().map(|one| one.took).max().unwrap();
    assert!(longest <= LIMIT + CALL, "{longest:?}");
    // The queue has filled up by now.
    let late: Vec<_> = load.0.iter().filter(|one| one.came >= LIMIT * 2).collect();
    let answered = late.iter().filter(|one| one.answer.is_ok()).count();
    let refused: Vec<_> = late.iter().filter(|one| one.answer == Err(ErrorKind::Overloaded)).collect();
    let at_once = refused.iter().filter(|one| one.took.is_zero()).count();
    // Nothing is sent in vain.
    let in_vain = late.len() - answered - refused.len();
    assert!(in_vain < answered / 100, "{in_vain} without an answer, {answered} answered");
    assert!(at_once > refused.len() / 2, "{at_once} at once of {}", refused.len());
}
