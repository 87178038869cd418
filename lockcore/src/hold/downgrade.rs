//! A writer becomes a reader.

use std::sync::Arc;

use tracing::Span;

use super::LockGuard;
use crate::background::{Book, Stub, UnderWay};
use crate::contract::Class;
use crate::life::{Left, Limits};
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
        let Some(book) = self.book().cloned() else {
            unreachable!("a guard that was not released has its client")
        };
        let (grant, class, limits) = (self.grant().clone(), self.class(), self.limits());
        let decorate = |error| book.decorate(error, Operation::Downgrade, Some(grant.claim().name()));
        if let Err(error) = check(&self, &book) {
            return Err(ErrorWith::new(decorate(error), Some(self)));
        }
        let ended = self.end();
        let answer = match ended {
            Some((stub, Some(left))) => downgrade(stub, &grant, class, limits, left).await,
            ended => {
                if let Some((stub, left)) = ended {
                    stub.release_ended(left, Span::none());
                }
                Err(Error::new(ErrorKind::Lost, "the lock was lost before the downgrade"))
            }
        };
        answer.map_err(|error| decorate(error).into())
    }
}

fn check(guard: &LockGuard, book: &Book) -> Result<()> {
    if guard.mode() != Mode::Exclusive {
        let text = "only a writer can become a reader, this is a permit";
        return Err(Error::new(ErrorKind::InvalidInput, text));
    }
    if !book.capabilities().promises(Requirement::Downgrade) {
        return Err(Error::new(ErrorKind::Unsupported, "this backend cannot turn a writer into a reader"));
    }
    Ok(())
}

/// The lease is not renewed meanwhile.
///
/// Until there is an answer, the server may have recorded either of the two. So both claims have a stub.
async fn downgrade(
    writer: Stub,
    grant: &Grant,
    class: Class,
    limits: Limits,
    left: Left,
) -> Result<LockGuard> {
    let book = Arc::clone(writer.book());
    let reader = book.adopt(&grant.claim().downgraded());
    let claims = vec![reader.claim().clone(), writer.claim().clone()];
    let (grant, shared) = (grant.clone(), Arc::clone(&book));
    let work = async move {
        let has_passed = || shared.clock.has_passed(left.until);
        let error = match shared.backend.downgrade(&grant).await {
            Ok(grant) if !has_passed() => {
                let stub = shared.adopt(grant.claim());
                let guard = LockGuard::new(stub, grant.renewed(left.sent, left.until), class, limits, None);
                writer.claim().pass_on();
                writer.disarm();
                reader.disarm();
                return Ok(guard);
            }
            Ok(_) => Error::new(ErrorKind::Lost, "the lock was lost during the downgrade"),
            Err(error) => error,
        };
        let release = if has_passed() { Stub::release_lost } else { Stub::release_in_background };
        release(reader, false, Span::none());
        release(writer, false, Span::none());
        Err(error)
    };
    UnderWay::new(&book, claims, work).await.map(LockGuard::with_span)
}
