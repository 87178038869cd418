//! Waits for many answers, but not for the slowest ones.

use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use lockwell_core::Result;
use tokio::time::Instant;

/// Waits until all have answered, or `enough` without an error and the others have had `grace` to follow. In
/// order; `None` for those that were not waited for.
pub(crate) async fn gather<T>(
    asked: impl IntoIterator<Item = impl Future<Output = Result<T>>>,
    enough: usize,
    grace: Duration,
) -> Vec<Option<Result<T>>> {
    let numbered = asked.into_iter().enumerate().map(|(index, one)| async move { (index, one.await) });
    let mut open: FuturesUnordered<_> = numbered.collect();
    let mut answers: Vec<_> = (0..open.len()).map(|_| None).collect();
    let mut well = 0;
    let mut end = None;
    loop {
        let Some((index, answer)) = next_until(&mut open, end).await else { return answers };
        well += usize::from(answer.is_ok());
        answers[index] = Some(answer);
        if well >= enough && end.is_none() {
            end = Some(Instant::now() + grace);
        }
    }
}

/// The next answer. `None` when there are no more, or none has come by then.
pub(crate) async fn next_until<F: Future>(
    open: &mut FuturesUnordered<F>,
    end: Option<Instant>,
) -> Option<F::Output> {
    match end {
        None => open.next().await,
        Some(end) => tokio::time::timeout_at(end, open.next()).await.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_slow_minority_is_not_waited_for() {
        let asked = [1, 1, 5000].map(|pause| async move {
            tokio::time::sleep(Duration::from_millis(pause)).await;
            Ok(pause)
        });
        let began = Instant::now();
        let answers = gather(asked, 2, Duration::from_millis(100)).await;
        assert!(began.elapsed() < Duration::from_millis(200));
        assert!(answers[0].is_some() && answers[1].is_some() && answers[2].is_none());
    }
}
