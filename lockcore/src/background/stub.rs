//! What owns the row of a claim.

use std::sync::Arc;
use std::task::Poll;

use tokio::runtime::Handle;
use tracing::{Instrument, Span};

use super::book::Book;
use super::held_lock::HeldLock;
use crate::life::{Act, Left, Life};
use crate::system::poll_once;
use crate::telemetry::released;
use crate::{Claim, Released, Result};

/// A claim of a client. Dropping it releases the claim, unless nothing was sent, or the server has said that it holds
/// nothing: the keeper does so.
///
/// It is made before the first byte of an acquire is sent, and belongs to the future of the operation, to the guard,
/// or to the slot of its name. If the task that runs the operation is dropped half-way, for example when its
/// runtime shuts down, this is dropped with it.
#[derive(Debug)]
#[must_use]
pub(crate) struct Stub {
    book: Arc<Book>,
    claim: Claim,
}

impl Book {
    /// An acquire begins. [`close`](Self::close) cancels it. It is refused after a close.
    pub(crate) fn open(self: &Arc<Self>, claim: &Claim) -> Result<Stub> {
        let mut rows = self.rows();
        // With the rows locked: a close comes either before this, or finds the claim.
        self.check_open()?;
        claim.life(Life::begin_acquire);
        Self::enter(&mut rows, claim);
        drop(rows);
        Ok(Stub { book: Arc::clone(self), claim: claim.clone() })
    }

    /// A claim whose lock the server has granted, or is about to.
    pub(crate) fn adopt(self: &Arc<Self>, claim: &Claim) -> Stub {
        Self::enter(&mut self.rows(), claim);
        self.step(claim, Act::Passed);
        Stub { book: Arc::clone(self), claim: claim.clone() }
    }
}

impl Stub {
    pub(crate) fn book(&self) -> &Arc<Book> {
        &self.book
    }

    pub(crate) fn claim(&self) -> &Claim {
        &self.claim
    }

    fn on(&self, act: Act) {
        self.claim.life(|life| life.on(&|| self.book.clock.now(), act));
    }

    /// The server is asked for the lock from now on.
    pub(crate) fn ask(&self) {
        self.on(Act::Asked);
    }

    /// The server has granted the lock. False if the keeper has given the claim up: then it is to be released.
    pub(crate) fn granted(&self) -> bool {
        self.claim.life(|life| {
            life.on(&|| self.book.clock.now(), Act::Granted);
            life.is_held()
        })
    }

    /// The lock is on its way to the next task.
    pub(crate) fn pass(&self) {
        self.book.step(&self.claim, Act::Passed);
    }

    /// Begins to renew the lease of a hold of this claim.
    pub(crate) fn keep(&self, held: &Arc<HeldLock>) {
        self.book.keep(held);
    }

    /// There is proof that the claim holds nothing, or another claim of its owner has its lock.
    pub(crate) fn disarm(self) {
        self.on(Act::HoldsNothing);
    }

    /// Releases the claim in the background: on the caller's runtime, where requests on the connection of the acquire
    /// keep their order, and by the keeper if that fails. `known`: the acquire has its answer, so "not held" is the
    /// truth.
    pub(crate) fn release_in_background(self, known: bool, span: Span) {
        let Ok(runtime) = Handle::try_current() else { return self.on(Act::Leave { known }) };
        // In one step: a close waits for the acquire before it, and for the release after it.
        self.book.step(&self.claim, Act::Depart { known });
        let recorded = span.clone();
        let work = async move {
            self.on(Act::Unattended { begun: true });
            let answer = self.book.backend.release(&self.claim).await;
            released(&recorded, &answer);
            match answer {
                Ok(Released::NotHeld) if !known => (),
                Ok(_) => self.done(),
                Err(error) => self.book.failed(&self.claim, &error),
            }
        };
        drop(runtime.spawn(work.instrument(span)));
    }

    /// Releases the claim of a hold that has ended. `left`: the rest of its lease; `None` if the lock was
    /// lost.
    pub(crate) fn release_ended(self, left: Option<Left>, span: Span) {
        match left {
            Some(_) => self.release_in_background(true, span),
            None => self.release_lost(true, span),
        }
    }

    /// Releases the claim of a lost lock. With a lock delay, a loss is treated like a crash, since requests
    /// of the holder may still be on their way: the lock is free only after the delay.
    pub(crate) fn release_lost(self, known: bool, span: Span) {
        let lock_delay = self.claim.lock_delay();
        if lock_delay.is_zero() {
            return self.release_in_background(known, span);
        }
        // The next task waits for the end of the delay at the server.
        self.claim.pass_on();
        let from = self.book.clock.now().after(lock_delay);
        self.on(Act::TakeOver { known, from });
    }

    /// Releases the claim and waits for the answer. On an error the keeper repeats the release.
    ///
    /// `was_held`: the claim held the lock when the release began. If the keeper has sent the release as
    /// well, "not held" is a loss only if the keeper was told so, too.
    pub(crate) async fn release(self, was_held: bool, span: Span) -> Result<Released> {
        self.on(Act::Leave { known: true });
        let recorded = span.clone();
        self.ask_server(was_held, recorded).instrument(span).await
    }

    async fn ask_server(self, was_held: bool, span: Span) -> Result<Released> {
        let mut asking = self.book.backend.release(&self.claim);
        let answer = match poll_once(&mut asking).await {
            Poll::Ready(answer) => answer,
            Poll::Pending => {
                self.book.step(&self.claim, Act::Unattended { begun: true });
                match asking.await {
                    // If the keeper has sent the release as well, one of the two has found the claim. One of
                    // the keeper's whose answer was lost may have been it.
                    Ok(Released::NotHeld) if was_held && self.claim.life(|life| life.is_taken()) => {
                        Ok(self.freed().await)
                    }
                    answer => answer,
                }
            }
        };
        released(&span, &answer);
        match &answer {
            Ok(_) => self.done(),
            Err(error) => self.book.failed(&self.claim, error),
        }
        match answer {
            // The lock was held until the release began. A lock that was lost before must not be called
            // released.
            Ok(Released::InDoubt) if was_held => Ok(Released::Released),
            Ok(Released::InDoubt) => Ok(Released::NotHeld),
            answer => answer,
        }
    }

    /// What the server answers to the keeper.
    async fn freed(&self) -> Released {
        loop {
            let rung = self.claim.rung();
            if let Some(answer) = self.claim.life(|life| life.freed()) {
                return answer;
            }
            rung.await;
        }
    }

    /// The server has confirmed the release.
    fn done(&self) {
        self.on(Act::Released);
        self.claim.pass_on();
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.book.leave(&self.claim);
    }
}
