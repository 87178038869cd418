//! The requests of a client.

use std::any::Any;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use lockwell_core::backend::{CallOutcome, Waiters};
use lockwell_core::{Claim, Error, ErrorKind, Grant, Moment};
use uuid::Uuid;

use crate::client::places::{HandOverPlaces, PolledQueue};
use crate::dialect::Dialect;
use crate::words::{Entered, Extension, Freed, Hold, LoneRequest, QueuedClaim, TakeRequest, TryAcquire};

/// One request.
pub(crate) enum Request<D: Dialect> {
    /// Takes a lock if it is free.
    Take(TakeRequest),
    /// The same for a claim with a place in the queue, on databases where a release grants the lock to a
    /// waiter.
    Claim(QueuedClaim),
    /// Gives a heartbeat for all waiters of the client, and asks whose turn it is.
    PollWaiters(Arc<HandOverPlaces>),
    /// Leaves the queue.
    Leave(Claim),
    /// Frees a lock that is held exclusively.
    Release(Claim),
    /// Leaves a group. It does not share a statement with releases, since a batch that is repeated must not
    /// have been applied in part.
    LeaveGroup(Claim),
    /// Extends leases. It shares no statement with other requests.
    Renew(Vec<Grant>),
    /// Keeps a place in the queue, by its ticket and owner. The answer says whether it still exists.
    KeepPlace(i64, Uuid),
    /// Deletes the place of a waiter that has its lock.
    ForgetPlace(i64),
    /// Takes a place at the end of the queue, and says whether a release may grant the lock to the claim.
    Enter(Claim, bool),
    /// Any rare request, which is not batched. It may be carried out several times.
    Job(Work<D>),
}

impl<D: Dialect> Clone for Request<D> {
    fn clone(&self) -> Self {
        match self {
            Self::Take(request) => Self::Take(request.clone()),
            Self::Claim(entry) => Self::Claim(entry.clone()),
            Self::PollWaiters(places) => Self::PollWaiters(Arc::clone(places)),
            Self::Leave(claim) => Self::Leave(claim.clone()),
            Self::Release(claim) => Self::Release(claim.clone()),
            Self::LeaveGroup(claim) => Self::LeaveGroup(claim.clone()),
            Self::Renew(grants) => Self::Renew(grants.clone()),
            Self::KeepPlace(ticket, owner) => Self::KeepPlace(*ticket, *owner),
            Self::ForgetPlace(ticket) => Self::ForgetPlace(*ticket),
            Self::Enter(claim, receives) => Self::Enter(claim.clone(), *receives),
            Self::Job(work) => Self::Job(Arc::clone(work)),
        }
    }
}

/// What work on a connection gets.
pub(crate) struct JobContext<'c, D: Dialect> {
    pub(crate) dialect: &'c D,
    pub(crate) waiters: &'c Waiters,
    pub(crate) conn: &'c mut D::Conn,
}

/// The result of work.
pub(crate) type Done<'c, T> = BoxFuture<'c, sqlx::Result<T>>;

pub(crate) type Work<D> =
    Arc<dyn for<'c> Fn(JobContext<'c, D>) -> Done<'c, Box<dyn Any + Send>> + Send + Sync>;

/// The answer to a request.
pub(crate) enum RequestReply {
    TryAcquire(TryAcquire),
    Freed(Freed),
    Extended(Vec<Extension>),
    Kept(bool),
    Entered(Entered),
    Polled(Arc<PolledQueue>),
    Forgotten,
    Done(Box<dyn Any + Send>),
}

/// Which connection a request is sent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Route {
    /// The one for all usual requests.
    Main,
    /// The one for requests that wait for a row which a transaction has locked: they must not delay the
    /// others. It is opened when it is first needed, which is rare.
    BlockedRows,
    /// The one of the purge. It is closed after each purge.
    Purge,
}

impl<D: Dialect> Request<D> {
    /// Whether the request alone is a single statement, which the database carries out even if this process
    /// stops.
    pub(crate) fn is_one_statement(&self) -> bool {
        match self {
            Self::Take(request) => Hold::of(&request.claim) == Hold::Alone,
            // The second one only reads.
            Self::Release(_) | Self::Enter(..) => true,
            _ => false,
        }
    }

    /// The request, if it is about one lock that is held alone.
    pub(crate) fn lone(&self) -> Option<LoneRequest<'_>> {
        let (request, claim) = match self {
            Self::Take(TakeRequest { claim, .. }) => (LoneRequest::Take, claim),
            Self::Claim(entry) => (LoneRequest::Claim(entry), &entry.claim),
            Self::Enter(claim, _) => (LoneRequest::Enter, claim),
            Self::Release(claim) => (LoneRequest::Release(claim), claim),
            _ => return None,
        };
        (Hold::of(claim) == Hold::Alone).then_some(request)
    }

    /// Whether several requests of this kind share a statement.
    pub(crate) fn is_shared(&self) -> bool {
        !matches!(self, Self::Renew(_) | Self::Job(_))
    }

    /// The claim for which the request takes a lock.
    pub(crate) fn taker(&self) -> Option<&Claim> {
        match self {
            Self::Take(TakeRequest { claim, .. }) | Self::Claim(QueuedClaim { claim, .. }) => Some(claim),
            _ => None,
        }
    }

    /// Whether to repeat the request for a while when a row is locked, instead of answering `Blocked`. Claims
    /// that join or leave a group lock its row for a moment, and that must not refuse others.
    pub(crate) fn retries_while_blocked(&self) -> bool {
        self.taker().is_some_and(|claim| Hold::of(claim) == Hold::Together)
    }

    /// The answer when a transaction has locked a row.
    pub(crate) fn blocked(&self, cause: &sqlx::Error) -> CallOutcome<(RequestReply, Moment)> {
        let answer = match self {
            Self::Take(_) | Self::Claim(_) => RequestReply::TryAcquire(TryAcquire::Blocked),
            // No error: that would not say whether an earlier try, whose answer was lost, may have freed the
            // lock.
            Self::Release(_) | Self::LeaveGroup(_) => {
                tracing::debug!(error = %cause, "the row of a lock that is released is locked");
                RequestReply::Freed(Freed { blocked: true, ..Freed::default() })
            }
            _ => return CallOutcome::Failed(blocked(Some(cause))),
        };
        CallOutcome::Answered((answer, Moment::now()))
    }
}

/// The row of a lock was locked: it was skipped, or the database did not get it in time. Who had locked it is
/// not known.
pub(crate) fn blocked(cause: Option<&sqlx::Error>) -> Error {
    let text = "the row of this lock, or its table, stayed locked: a transaction that has verified the lock is still open, an \
                administrator has locked the table, or the database is slow";
    let error = Error::new(ErrorKind::Held, text);
    match cause {
        Some(cause) => error.with_source(cause.to_string()),
        None => error,
    }
}

pub(crate) fn is_about_one<D: Dialect>(first: &Request<D>, other: &Request<D>) -> bool {
    match (first.taker(), other.taker()) {
        (Some(one), Some(other)) => one.name() == other.name(),
        _ => false,
    }
}

pub(crate) fn unexpected() -> Error {
    Error::new(ErrorKind::Internal, "an answer to another request")
}
