//! How long an acquire waits for the servers.

use std::sync::Arc;
use std::time::Duration;

use lockcore::{Claim, Result, Wait};

use crate::error::no_answer;
use crate::session::Session;
use crate::shared::Shared;

/// Waits for an answer, but not for longer than the claim is worth waiting for. The request goes on without us.
pub(crate) async fn within<T>(shared: &Shared, claim: &Claim, answer: impl Future<Output = T>) -> Result<T> {
    if claim.wait() == Wait::No {
        return tokio::time::timeout(shared.options.timeout, answer).await.map_err(|_| no_answer());
    }
    claim.within_wait(async { Ok(answer.await) }).await
}

/// The session for a claim. While no server can be reached it is tried again, for as long as the claim waits.
pub(crate) async fn session(shared: &Shared, claim: &Claim) -> Result<Arc<Session>> {
    let opening = async {
        let mut pause = Duration::from_millis(20);
        loop {
            match shared.pool.session(claim.ttl()).await {
                Err(error) if error.is_retryable() && claim.wait() != Wait::No => {
                    tracing::info!(error = format!("{error:#}"), "no session; it is tried again");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(1));
                }
                answer => return answer,
            }
        }
    };
    within(shared, claim, opening).await?
}
