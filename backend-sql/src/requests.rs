//! The requests of a client.

use std::any::Any;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use lockcore::backend::{Outcome, Waiters};
use lockcore::{Claim, Error, ErrorKind, Grant, Moment};
use uuid::Uuid;

use crate::dialect::{Ask, Dialect, Entry, Extension, Freed, Hold, Took};
use crate::places::{Looked, Places};

/// One request.
pub(crate) enum Request<D: Dialect> {
    /// Takes a lock if it is free.
    Take(Ask),
    /// The same for a claim with a place in the queue, where releases hand locks over.
    Claim(Entry),
    /// A sign of life for all waiters of the client, which says whose turn it is.
    Look(Arc<Places>),
    /// Gives a place in the queue up.
    Leave(Claim),
    /// Frees a lock that is held alone.
    Release(Claim),
    /// Leaves a group. Not together with releases: what is tried again must not have been done in part.
    Part(Claim),
    /// Extends leases. A call by itself.
    Renew(Vec<Grant>),
    /// Keeps a place in the queue, by its ticket and owner; answers whether it is still there.
    Stay(i64, Uuid),
    /// Forgets the place of a waiter that has got its lock.
    Tidy(i64),
    /// Anything that is not worth to be batched. It may be done several times.
    Job(Job<D>),
}

/// Work on the connection.
pub(crate) struct Job<D: Dialect> {
    pub(crate) work: Work<D>,
    /// The claim that queues by it, if it does that.
    pub(crate) queues: Option<Claim>,
}

impl<D: Dialect> Clone for Request<D> {
    fn clone(&self) -> Self {
        match self {
            Self::Take(ask) => Self::Take(ask.clone()),
            Self::Claim(entry) => Self::Claim(entry.clone()),
            Self::Look(places) => Self::Look(Arc::clone(places)),
            Self::Leave(claim) => Self::Leave(claim.clone()),
            Self::Release(claim) => Self::Release(claim.clone()),
            Self::Part(claim) => Self::Part(claim.clone()),
            Self::Renew(grants) => Self::Renew(grants.clone()),
            Self::Stay(ticket, owner) => Self::Stay(*ticket, *owner),
            Self::Tidy(ticket) => Self::Tidy(*ticket),
            Self::Job(Job { work, queues }) => {
                Self::Job(Job { work: Arc::clone(work), queues: queues.clone() })
            }
        }
    }
}

/// What work on a connection has.
pub(crate) struct Context<'c, D: Dialect> {
    pub(crate) dialect: &'c D,
    pub(crate) waiters: &'c Waiters,
    pub(crate) conn: &'c mut D::Conn,
}

/// What work comes to.
pub(crate) type Done<'c, T> = BoxFuture<'c, sqlx::Result<T>>;

pub(crate) type Work<D> = Arc<dyn for<'c> Fn(Context<'c, D>) -> Done<'c, Box<dyn Any + Send>> + Send + Sync>;

/// The answer to a request.
pub(crate) enum Answer {
    Took(Took),
    Freed(Freed),
    Extended(Vec<Extension>),
    Kept(bool),
    Looked(Arc<Looked>),
    Tidied,
    Done(Box<dyn Any + Send>),
}

/// Which connection a request travels on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Route {
    /// That of all usual requests.
    Main,
    /// One for requests that wait for a row which a transaction has locked: they must not hold up the others. It is
    /// made when it is first needed, which is rare.
    BlockedRows,
    /// That of the purge. It is closed behind each.
    Purge,
}

impl<D: Dialect> Request<D> {
    /// Whether it alone is one statement, which the database carries out whether we go on or not.
    pub(crate) fn is_one_statement(&self) -> bool {
        match self {
            Self::Take(ask) => Hold::of(&ask.claim) == Hold::Alone,
            Self::Release(_) => true,
            _ => false,
        }
    }

    /// Whether two of a kind share a statement.
    pub(crate) fn is_shared(&self) -> bool {
        !matches!(self, Self::Renew(_) | Self::Job(_))
    }

    pub(crate) fn ask(&self) -> Option<&Ask> {
        match self {
            Self::Take(ask) => Some(ask),
            _ => None,
        }
    }

    pub(crate) fn entry(&self) -> Option<&Entry> {
        match self {
            Self::Claim(entry) => Some(entry),
            _ => None,
        }
    }

    /// The claim that takes a lock by it.
    pub(crate) fn taker(&self) -> Option<&Claim> {
        match self {
            Self::Take(Ask { claim, .. }) | Self::Claim(Entry { claim, .. }) => Some(claim),
            _ => None,
        }
    }

    pub(crate) fn place(&self) -> Option<(i64, Uuid)> {
        match self {
            Self::Stay(ticket, owner) => Some((*ticket, *owner)),
            _ => None,
        }
    }

    /// Whether to ask again for a while when a row is locked, rather than to take that for an answer. Those who come
    /// and go in a group lock its row for a moment, and that is no reason to stay outside.
    pub(crate) fn insists(&self) -> bool {
        self.taker().is_some_and(|claim| Hold::of(claim) == Hold::Together)
    }

    /// What to say when a row is locked by somebody's transaction.
    pub(crate) fn blocked(&self) -> Outcome<(Answer, Moment)> {
        match self.taker() {
            Some(_) => Outcome::Answered((Answer::Took(Took::Blocked), Moment::now())),
            None => Outcome::Failed(blocked()),
        }
    }
}

impl Answer {
    pub(crate) fn into_outcome(self, sent: Moment) -> Outcome<(Self, Moment)> {
        match self {
            Self::Freed(Freed { blocked: true, .. }) => Outcome::Failed(blocked()),
            answer => Outcome::Answered((answer, sent)),
        }
    }
}

pub(crate) fn blocked() -> Error {
    Error::new(ErrorKind::Held, "a transaction that has verified this lock is still open")
}

pub(crate) fn is_about_one<D: Dialect>(first: &Request<D>, other: &Request<D>) -> bool {
    match (first.taker(), other.taker()) {
        (Some(one), Some(other)) => one.name() == other.name(),
        _ => false,
    }
}

pub(crate) fn claims<D: Dialect>(batch: &[&Request<D>]) -> Vec<Claim> {
    let of = |one: &&Request<D>| match one {
        Request::Release(claim) | Request::Part(claim) | Request::Leave(claim) => Some(claim.clone()),
        _ => None,
    };
    batch.iter().filter_map(of).collect()
}

pub(crate) fn tickets<D: Dialect>(batch: &[&Request<D>]) -> Vec<i64> {
    let of = |one: &&Request<D>| match one {
        Request::Tidy(ticket) => Some(*ticket),
        _ => None,
    };
    batch.iter().filter_map(of).collect()
}
