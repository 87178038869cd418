//! A writer becomes a reader.

use std::sync::Arc;

use super::LockGuard;
use crate::background::{AcquireStatus, Armed, Background, UnderWay};
use crate::lease::{Left, Limits};
use crate::{Error, ErrorKind, ErrorWith, Grant, Mode, Operation, Requirement, Result};

impl LockGuard {
    /// Turns a writer into a reader without a gap: no other writer gets the lock in between, and readers at
    /// the head of the queue are granted it. The token stays. Reports of progress and the longest hold begin
    /// anew.
    ///
    /// A reader stays a reader. There is no way from reader to writer: two readers that both wait for
    /// the other to leave would wait for ever. Release, take the lock as a writer, and read the data again.
    ///
    /// [Handles](Self::handle) of the writer's lock end; take new ones.
    ///
    /// # Errors
    /// A permit cannot become a reader ([`InvalidInput`](ErrorKind::InvalidInput)), and some backends cannot
    /// downgrade ([`Unsupported`](ErrorKind::Unsupported)). The error then [contains](ErrorWith::into_left)
    /// the guard, as it was. After any other error the lock is released.
    ///
    /// # Cancel safety
    /// When this future is dropped, the lock is released in the background.
    pub async fn downgrade(mut self) -> Result<Self, ErrorWith<Self>> {
        if self.mode() == Mode::Shared {
            return Ok(self);
        }
        let Some(background) = self.background().cloned() else {
            unreachable!("a guard that was not released has its client")
        };
        let (grant, limits) = (self.grant().clone(), self.limits());
        let decorate = |error| background.decorate(error, Operation::Downgrade, Some(grant.claim().name()));
        if let Err(error) = check(&self, &background) {
            return Err(ErrorWith::new(decorate(error), Some(self)));
        }
        let ended = self.end();
        let answer = match ended {
            Some((armed, Some(left))) => downgrade(armed, &grant, limits, left).await,
            ended => {
                if let Some((armed, left)) = ended {
                    armed.release_ended(left);
                }
                Err(Error::new(ErrorKind::Lost, "the lock was lost before the downgrade"))
            }
        };
        answer.map_err(|error| decorate(error).into())
    }
}

fn check(guard: &LockGuard, background: &Background) -> Result<()> {
    if guard.mode() != Mode::Exclusive {
        let text = "only a writer can become a reader, this is a permit";
        return Err(Error::new(ErrorKind::InvalidInput, text));
    }
    if !background.capabilities().promises(Requirement::Downgrade) {
        return Err(Error::new(ErrorKind::Unsupported, "this backend cannot turn a writer into a reader"));
    }
    Ok(())
}

/// The lease is not renewed meanwhile.
///
/// Until there is an answer, the server may have recorded either of the two. So both claims are armed.
async fn downgrade(writer: Armed, grant: &Grant, limits: Limits, left: Left) -> Result<LockGuard> {
    let background = Arc::clone(writer.background());
    let reader = Armed::new(Arc::clone(&background), grant.claim().downgraded());
    let (grant, claim) = (grant.clone(), grant.claim().clone());
    let has_passed = {
        let clock = background.clock.clone();
        move || clock.has_passed(left.until)
    };
    let work = async move {
        let error = match writer.background().backend.downgrade(&grant).await {
            Ok(grant) if !has_passed() => {
                let grant = grant.renewed(left.sent, left.until);
                let guard = LockGuard::new(reader.background(), grant, limits, None);
                writer.claim().turn().pass_on();
                writer.disarm();
                reader.disarm();
                return Ok(guard);
            }
            Ok(_) => Error::new(ErrorKind::Lost, "the lock was lost during the downgrade"),
            Err(error) => error,
        };
        let release = if has_passed() { Armed::release_lost } else { Armed::release_in_background };
        release(reader, AcquireStatus::Unanswered);
        release(writer, AcquireStatus::Unanswered);
        Err(error)
    };
    let claims = vec![claim.downgraded(), claim];
    UnderWay::new(&background, claims, work).await.map(LockGuard::with_span)
}
