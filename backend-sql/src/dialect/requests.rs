//! What a client asks a database, and the answers.

use std::fmt;
use std::mem::discriminant;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use lockwell_core::{Claim, Error, ErrorKind, Grant};

use crate::dialect::database::Database;
use crate::dialect::error::caused_by;
use crate::dialect::places::{HandOverPlaces, PolledQueue};
use crate::words::{Extension, Freed, Hold, QueuedClaim, TakeRequest, TryAcquire};

/// A request. Those of one kind can share a statement.
#[cfg_attr(
    not(all(feature = "sqlite-unbundled", any(feature = "postgres", feature = "mysql"))),
    allow(dead_code)
)]
#[derive(Debug)]
pub enum Request<D: Database> {
    /// Takes a lock if it is free.
    Take(TakeRequest),
    /// Takes a lock if it is free, or a place in its queue.
    Claim(QueuedClaim),
    /// Gives a heartbeat for all waiters of the client, and asks whose turn it is.
    Poll(Arc<HandOverPlaces>),
    /// Takes a place at the end of the queue. It says whether a release may grant the lock to the claim.
    Enter(Claim, bool),
    /// Keeps the place with this ticket. The answer says whether it still exists.
    Keep(i64),
    /// Deletes the place of a waiter that has its lock.
    Forget(i64),
    /// Leaves the queue.
    Leave(Claim),
    /// Frees a lock that is held exclusively.
    Release(Claim),
    /// Leaves a group. It does not share a statement with releases, since a batch that is repeated must not
    /// have been applied in part.
    LeaveGroup(Claim),
    /// Extends leases. It shares no statement with other requests.
    Renew(Vec<Grant>),
    Job(Job<D>),
}

/// Any rare request, which is not batched. It may be carried out several times, and may take all of the time
/// that there is in one try.
pub struct Job<D: Database>(pub(crate) Box<Work<D>>);

type Work<D> = dyn for<'c> Fn(&'c D, &'c mut <D as Database>::Conn) -> Done<'c, ()> + Send + Sync;

/// The result of work.
pub(crate) type Done<'c, T> = BoxFuture<'c, sqlx_core::Result<T>>;

impl<D: Database> fmt::Debug for Job<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Job")
    }
}

/// An answer.
#[cfg_attr(
    not(all(feature = "sqlite-unbundled", any(feature = "postgres", feature = "mysql"))),
    allow(dead_code)
)]
#[derive(Debug)]
pub enum Answer {
    Took(TryAcquire),
    Polled(Arc<PolledQueue>),
    /// The ticket, which is `NO_TICKET` if a release has granted the lock to the claim already; and the answer
    /// to a request for the lock with this place, if that is refused.
    Entered(i64, Option<TryAcquire>),
    Kept(bool),
    Freed(Freed),
    Renewed(Vec<Extension>),
    Done,
}

impl<D: Database> Request<D> {
    /// The claim whose request it is.
    pub(crate) fn claim(&self) -> Option<&Claim> {
        match self {
            Self::Take(TakeRequest { claim, .. }) | Self::Claim(QueuedClaim { claim, .. }) => Some(claim),
            Self::Enter(claim, _) | Self::Leave(claim) | Self::Release(claim) | Self::LeaveGroup(claim) => {
                Some(claim)
            }
            Self::Poll(_) | Self::Keep(_) | Self::Forget(_) | Self::Renew(_) | Self::Job(_) => None,
        }
    }

    /// The claim for which the request takes a lock.
    pub(crate) fn taker(&self) -> Option<&Claim> {
        self.claim().filter(|_| matches!(self, Self::Take(_) | Self::Claim(_)))
    }

    /// Whether it should still be sent.
    pub(crate) fn is_wanted(&self) -> bool {
        let takes = matches!(self, Self::Take(_) | Self::Claim(_) | Self::Enter(..));
        !takes || self.claim().is_none_or(|claim| !claim.is_cancelled())
    }

    /// Whether it concerns one lock that its claim wants, or has, alone.
    pub(crate) fn is_about_one_lock(&self) -> bool {
        let is_of_lock = matches!(self, Self::Take(_) | Self::Claim(_) | Self::Enter(..) | Self::Release(_));
        is_of_lock && self.claim().is_some_and(|claim| Hold::of(claim) == Hold::Alone)
    }

    /// Whether the request alone is a single statement, which the database carries out even if this process
    /// stops.
    pub(crate) fn is_one_statement(&self) -> bool {
        match self {
            Self::Take(request) => Hold::of(&request.claim) == Hold::Alone,
            // The second one only reads.
            Self::Enter(..) | Self::Release(_) => true,
            _ => false,
        }
    }

    /// Whether another request can share a statement with it.
    pub(crate) fn shares(&self, other: &Self) -> bool {
        !matches!(self, Self::Job(_) | Self::Renew(_)) && discriminant(self) == discriminant(other)
    }

    /// Of several waiting requests, those with the lowest number are sent first.
    ///
    /// Requests of different kinds may overtake each other, since a claim has only one request at a time.
    /// Renewals go first, because their leases are running out; then the requests that free locks; then all
    /// others, in the order in which they came, so that none of them waits for ever.
    pub(crate) fn urgency(&self) -> u8 {
        match self {
            Self::Renew(_) => 0,
            Self::Forget(_) => 1,
            Self::Release(_) => 2,
            Self::LeaveGroup(_) => 3,
            _ => 4,
        }
    }

    /// The answer when a transaction has locked a row. `None`: that is an error.
    pub(crate) fn blocked(&self, cause: &sqlx_core::Error) -> Option<Answer> {
        match self {
            Self::Take(_) | Self::Claim(_) => Some(Answer::Took(TryAcquire::Blocked)),
            // It is no error: that would not say whether an earlier try, whose answer was lost, may have freed
            // the lock.
            Self::Release(_) | Self::LeaveGroup(_) => {
                tracing::debug!(error = %cause, "the row of a lock that is released is locked");
                Some(Answer::Freed(Freed { blocked: true, ..Freed::default() }))
            }
            _ => None,
        }
    }
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

/// The row of a lock was locked: it was skipped, or the database did not get it in time. Who had locked it is
/// not known.
pub(crate) fn blocked(cause: Option<&sqlx_core::Error>) -> Error {
    let text = "the row of this lock, or its table, stayed locked: a transaction that has verified the lock is still open, somebody \
                has locked the table (LOCK TABLES, a dump that does, a change of the table), or the database is slow";
    caused_by(Error::new(ErrorKind::Held, text), cause)
}

/// The error of an answer to another request.
pub(crate) fn other_answer() -> Error {
    Error::new(ErrorKind::Internal, "an answer to another request")
}
