//! Giving claims up when nobody waits for the answer.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::client::Shared;
use crate::keeper::Ward;
use crate::local::Right;
use crate::{Claim, DistributedLock, Moment, Released};

/// What is known about a claim that is to be given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The acquire has been answered: "not held" is then the truth.
    Answered,
    /// A request of the acquire may still be on its way: "not held" may be true only for now.
    Unanswered,
}

/// A claim that must be given up unless somebody proves that it need not be.
///
/// It is armed before the first byte of an acquire or a release is sent. If the task that runs the operation is
/// dropped half-way, as the shutdown of a runtime does, dropping this hands the claim to the keeper.
#[derive(Debug)]
#[must_use]
pub(crate) struct Armed {
    claim: Option<(Arc<Shared>, Claim)>,
    /// Passed on when the claim has been given up, or need not be.
    then: Option<Arc<Right>>,
}

impl Armed {
    pub(crate) fn new(shared: Arc<Shared>, claim: Claim) -> Self {
        Self { claim: Some((shared, claim)), then: None }
    }

    /// Passes the right to claim on in the end.
    pub(crate) fn then(self, then: Option<Arc<Right>>) -> Self {
        let mut armed = self;
        armed.then = then;
        armed
    }

    fn parts(&self) -> (&Arc<Shared>, &Claim) {
        let (shared, claim) = self.claim.as_ref().expect("armed until it is consumed");
        (shared, claim)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        self.parts().0
    }

    pub(crate) fn claim(&self) -> &Claim {
        self.parts().1
    }

    /// There is proof that the claim holds nothing, or its guard has taken over.
    pub(crate) fn disarm(mut self) {
        self.claim = None;
    }

    /// Gives the claim of a lock up that was lost. With a lock delay that is treated like a crash, since requests of the
    /// holder may still be on their way: the lock rests before it is free.
    pub(crate) fn give_up_lost(mut self, outcome: Outcome) {
        let rest = self.claim().rest();
        if rest.is_zero() {
            return self.give_up(outcome);
        }
        let Some((shared, claim)) = self.claim.take() else { return };
        let end = Moment::now().after(rest);
        super::spawn(async move {
            end.sleep().await;
            clean_up(&shared.ward, &claim).await;
        });
    }

    /// Gives the claim up in the background: on the caller's runtime, where the connection of the acquire is, so that
    /// the order of requests is kept; by the keeper if that fails.
    pub(crate) fn give_up(self, outcome: Outcome) {
        let Ok(runtime) = Handle::try_current() else { return };
        drop(runtime.spawn(async move {
            let (shared, claim) = self.parts();
            let answer = shared.backend.release(claim).await;
            match answer {
                Ok(Released::Released) => self.disarm(),
                Ok(Released::NotHeld) if outcome == Outcome::Answered => self.disarm(),
                Ok(Released::NotHeld) => (),
                Err(error) => {
                    shared.counters.cleanup_failures.add();
                    let error = format!("{error:#}");
                    tracing::info!(lock = %claim.name(), error, "clean-up goes to the keeper");
                }
            }
        }));
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        if let Some((shared, claim)) = self.claim.take() {
            super::spawn(async move { clean_up(&shared.ward, &claim).await });
        }
        if let Some(right) = self.then.take() {
            right.leave();
        }
    }
}

/// Gives a claim up whose acquire may still be on its way to the server.
///
/// "Not held" is therefore no proof: the request may be executed later. So it is asked again, at growing distances.
/// After the ttl and a margin the lease has ended by itself in every case but a request that the network kept for
/// longer than that, and such a lease is never renewed.
pub(super) async fn clean_up(ward: &Ward, claim: &Claim) {
    let backend: &dyn DistributedLock = &**ward.backend();
    let end = Moment::now().after(claim.ttl() + Duration::from_secs(5));
    let mut pause = Duration::from_millis(20);
    let mut denials = 0;
    while !end.has_passed() {
        match tokio::time::timeout(Duration::from_secs(5), backend.release(claim)).await {
            Ok(Ok(Released::Released)) => return,
            Ok(Ok(Released::NotHeld)) => {
                denials += 1;
                if denials == 5 {
                    return;
                }
            }
            Ok(Err(error)) => {
                ward.counters().cleanup_failures.add();
                tracing::info!(lock = %claim.name(), error = format!("{error:#}"), "clean-up is tried again");
            }
            Err(_) => ward.counters().cleanup_failures.add(),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 4).min(Duration::from_secs(2));
    }
    tracing::warn!(lock = %claim.name(), "clean-up gave in; what the claim holds ends with its lease");
}
