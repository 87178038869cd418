//! What differs from database to database.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use lockcore::{Capabilities, Claim, FencingToken, Grant, LockName, LockStatus};
use uuid::Uuid;

/// The ticket of a claim that does not queue: behind everybody.
pub(crate) const NO_TICKET: i64 = i64::MAX;

/// One question for a lock.
#[derive(Clone, Debug)]
pub struct Ask {
    pub claim: Claim,
    pub ticket: i64,
}

/// The answer to a question for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Took {
    Granted(FencingToken),
    /// Held by another, or somebody stands ahead. The time until the lease of the holder ends, if known.
    Busy(Option<Duration>),
}

/// What a release or a departure from the queue did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freed {
    pub released: bool,
    /// The ticket of the next waiter, if it waits in this process.
    pub next: Option<i64>,
}

/// The answer to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension {
    Extended,
    /// The row is locked by a transaction, as `verify_in` does: ask again.
    Blocked,
    Lost,
}

/// What to make of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Known not to have been applied, by the luck of the draw: a deadlock, a serialization failure. Ask again.
    Again,
    /// Known not to have been applied: a row is locked by somebody's transaction. Ask later.
    Blocked,
    /// The connection is no good, and the outcome is unknown. Every statement here may be repeated.
    Broken,
    /// Asking again will not help.
    Fatal,
}

pub(crate) fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

pub(crate) fn span(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

pub(crate) fn token(number: i64) -> FencingToken {
    FencingToken::new(number.cast_unsigned())
}

type Answer<T> = sqlx::Result<T>;

/// One database: its connection, its statements. All statements are idempotent for a given owner, so each may be
/// repeated after a lost reply.
pub trait Dialect: Debug + Send + Sync + Sized + 'static {
    /// A connection, owned by one lane and never shared, so that an answer that was not waited for cannot be mistaken
    /// for another's.
    type Conn: Send + 'static;

    fn capabilities(&self) -> Capabilities;

    fn connect(&self) -> impl Future<Output = Answer<Self::Conn>> + Send;

    /// What an error that the database itself reports means.
    fn verdict(&self, error: &dyn sqlx::error::DatabaseError) -> Verdict;

    /// Takes each lock that is free for its claim. The names differ from each other.
    fn take(&self, conn: &mut Self::Conn, asks: &[Ask]) -> impl Future<Output = Answer<Vec<Took>>> + Send;

    /// Frees each lock that its claim holds, and finds who is next.
    fn release(
        &self,
        conn: &mut Self::Conn,
        claims: &[Claim],
        local: Local<'_>,
    ) -> impl Future<Output = Answer<Vec<Freed>>> + Send;

    /// Extends each lease that its claim holds.
    fn renew(
        &self,
        conn: &mut Self::Conn,
        grants: &[Grant],
    ) -> impl Future<Output = Answer<Vec<Extension>>> + Send;

    /// Takes a place at the end of the queue; the same place again when asked again.
    fn enroll(
        &self,
        conn: &mut Self::Conn,
        claim: &Claim,
        client: Uuid,
    ) -> impl Future<Output = Answer<i64>> + Send;

    /// Says that the waiters with these tickets are still there; answers with those that still have their places.
    fn stay(&self, conn: &mut Self::Conn, tickets: &[i64]) -> impl Future<Output = Answer<Vec<i64>>> + Send;

    /// Forgets the places of waiters that have got their locks.
    fn tidy(&self, conn: &mut Self::Conn, tickets: &[i64]) -> impl Future<Output = Answer<()>> + Send;

    /// Gives the place in the queue up, and finds who is next.
    fn leave(
        &self,
        conn: &mut Self::Conn,
        claim: &Claim,
        local: Local<'_>,
    ) -> impl Future<Output = Answer<Freed>> + Send;

    /// The tickets of waiters of this process whose turn it is, among these names.
    fn turns(
        &self,
        conn: &mut Self::Conn,
        client: Uuid,
        names: &[LockName],
    ) -> impl Future<Output = Answer<Vec<i64>>> + Send;

    /// A number that changes with every change of the database, where that is cheaper than to look.
    fn version(&self, conn: &mut Self::Conn) -> impl Future<Output = Answer<Option<i64>>> + Send;

    fn inspect(
        &self,
        conn: &mut Self::Conn,
        name: &LockName,
    ) -> impl Future<Output = Answer<LockStatus>> + Send;

    fn force_release(
        &self,
        conn: &mut Self::Conn,
        name: &LockName,
        local: Local<'_>,
    ) -> impl Future<Output = Answer<Freed>> + Send;

    /// Deletes rows of locks that nobody has used for `idle`, and places of waiters that are gone.
    fn purge(&self, conn: &mut Self::Conn, idle: Duration) -> impl Future<Output = Answer<u64>> + Send;

    /// Whether the tables are there and can be used.
    fn check(&self, conn: &mut Self::Conn) -> impl Future<Output = Answer<()>> + Send;

    /// Creates the tables where they are missing.
    fn create(&self, conn: &mut Self::Conn) -> impl Future<Output = Answer<()>> + Send;

    /// The statements that create the tables, for a person.
    fn ddl(&self) -> String;

    /// Waits for the database to say that it is the turn of some ticket. Never returns `Ok` with nothing. `None`: this
    /// database cannot push, and [`turns`](Self::turns) is asked instead.
    fn listen(&self, client: Uuid) -> impl Future<Output = Answer<Option<Self::Ear>>> + Send;

    /// An open subscription.
    type Ear: Send + 'static;

    /// The next ticket whose turn it is. `None`: the connection was lost and is back, so some may have been missed.
    fn hear(ear: &mut Self::Ear) -> impl Future<Output = Answer<Option<i64>>> + Send;
}

/// Who asks, and for which names somebody of this process waits.
#[derive(Clone, Copy)]
#[allow(missing_debug_implementations)]
pub struct Local<'a> {
    pub client: Uuid,
    pub waits_for: &'a (dyn Fn(&LockName) -> bool + Sync),
}
