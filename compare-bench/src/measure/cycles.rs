//! Cycles against the clock: one after the other, and many tasks at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::error::Result;
use crate::stats::Sample;

/// One cycle after the other for this time.
pub(crate) async fn cycles<F>(length: Duration, mut cycle: impl FnMut() -> F) -> Result<Sample>
where
    F: Future<Output = Result<()>>,
{
    let mut sample = Sample::new();
    let began = Instant::now();
    loop {
        let start = Instant::now();
        if start.duration_since(began) >= length {
            break;
        }
        cycle().await?;
        sample.note(start.elapsed(), 1);
        // A backend that never has to wait would keep the thread from the other tasks.
        tokio::task::consume_budget().await;
    }
    sample.close(began);
    Ok(sample)
}

/// So many tasks at once, each with work of its own. The clock runs from their common start to the end of the
/// last.
pub(crate) async fn together<F>(tasks: usize, work: impl Fn(usize) -> F) -> Result<Sample>
where
    F: Future<Output = Result<Sample>> + Send + 'static,
{
    let start = Arc::new(Barrier::new(tasks + 1));
    let mut set = JoinSet::new();
    for number in 0..tasks {
        let (work, start) = (work(number), Arc::clone(&start));
        set.spawn(async move {
            start.wait().await;
            work.await
        });
    }
    start.wait().await;
    let began = Instant::now();
    let mut sample = Sample::new();
    while let Some(done) = set.join_next().await {
        sample.absorb(&done??);
    }
    sample.close(began);
    Ok(sample)
}
