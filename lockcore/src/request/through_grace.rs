//! Tries that wait for the end of a grace period.

use std::future::Future;
use std::time::Duration;

use super::Choices;
use crate::backend::Backoff;
use crate::{Clock, ErrorKind, Result};

/// The pauses between two tries. Nothing says that a period is over.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// Tries once or, if the request says so, again until the server grants locks.
///
/// # Cancel safety
/// That of a try.
pub(super) async fn through_grace<T, F>(
    clock: &Clock,
    choices: &Choices,
    mut once: impl FnMut() -> F,
) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let mut backoff = Backoff::new(PAUSES.0, PAUSES.1);
    loop {
        match once().await {
            Err(error) if choices.through_grace && error.kind() == ErrorKind::GracePeriod => {
                tracing::debug!(error = format!("{error:#}"), "trying again after the grace period");
                backoff.pause_by(clock).await;
            }
            answer => return answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestServer;
    use crate::{Locks, Operation};

    /// The outcome of each kind of try, while the server is closed for three tries and somebody moves its
    /// clock.
    async fn outcomes(is_patient: bool) -> Vec<Result<bool>> {
        let server = TestServer::new();
        let locks: Locks = server.locks().unwrap();
        let mut outcomes = Vec::new();
        for kind in 0..4 {
            server.heal();
            server.fail_times(Operation::Acquire, ErrorKind::GracePeriod, 3);
            let trying = async {
                macro_rules! is_granted {
                    ($request:expr) => {{
                        let request = $request;
                        let request = if is_patient { request.through_grace() } else { request };
                        request.try_now().await.map(|guard| guard.is_some())
                    }};
                }
                match kind {
                    0 => is_granted!(locks.lock("a")),
                    1 => is_granted!(locks.lock_all(["b"])),
                    2 => is_granted!(locks.owner().lock("c")),
                    _ => is_granted!(locks.campaign("d")),
                }
            };
            let moving = async {
                loop {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    server.advance(Duration::from_millis(20));
                }
            };
            outcomes.push(tokio::select! {
                outcome = trying => outcome,
                () = moving => unreachable!(),
            });
        }
        outcomes
    }

    #[tokio::test]
    async fn a_try_waits_for_the_end_of_a_grace_period_if_it_is_told_to() {
        for outcome in outcomes(true).await {
            assert!(outcome.unwrap());
        }
        for outcome in outcomes(false).await {
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::GracePeriod);
        }
    }
}
