//! One database: its connection and its tables.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use lockcore::Capabilities;
use sqlx::Result as Answer;
use uuid::Uuid;

use crate::dialect::Told;

/// What to make of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Known not to have been applied, by the luck of the draw: a deadlock, a serialization failure. Ask again.
    Again,
    /// Known not to have been applied: a row is locked by somebody's transaction. Ask later.
    Blocked,
    /// The connection is no good, and the outcome is unknown. Every statement here may be repeated.
    Broken,
    /// Known not to have been applied: this server takes no writes, so it is a replica, or was made one. The address may
    /// lead to another server by now.
    ReadOnly,
    /// Asking again will not help.
    Fatal,
}

/// One database: how to get a connection, how to make the tables, what its errors mean.
pub trait Database: Debug + Send + Sync + Sized + 'static {
    /// Whether there is a network between us and the database, which may fail in silence.
    const IS_REMOTE: bool = true;

    /// A connection, with one statement at a time on it, so that an answer that was not waited for cannot be mistaken
    /// for another's.
    type Conn: Send + 'static;

    fn capabilities(&self) -> Capabilities;

    fn connect(&self) -> impl Future<Output = Answer<Self::Conn>> + Send;

    /// Whether the connection still leads to the database that everybody else uses. It is asked after each batch, before
    /// its answers are given to anybody; an error replaces the connection and repeats the batch.
    fn intact(&self, _: &Self::Conn) -> Answer<()> {
        Ok(())
    }

    /// What an error that the database itself reports means.
    fn verdict(&self, error: &dyn sqlx::error::DatabaseError) -> Verdict;

    /// Whether the tables are there and can be used.
    fn check(&self, conn: &mut Self::Conn) -> impl Future<Output = Answer<()>> + Send;

    /// Creates the tables where they are missing, and adds the columns that tables of an earlier version lack.
    fn create(&self, conn: &mut Self::Conn) -> impl Future<Output = Answer<()>> + Send;

    /// The statements that create the tables, for a person.
    fn ddl(&self) -> String;

    /// The statements that bring tables of an earlier version up to date, for a person.
    fn ddl_of_upgrade(&self) -> String;

    /// A number that changes with every change of the database, where that is cheaper than to look.
    fn version(&self, conn: &mut Self::Conn) -> impl Future<Output = Answer<Option<i64>>> + Send;

    /// Waits before the database is asked again whose turn it is, for `pause`; or, where it can be told, until something
    /// has changed.
    fn pause(&self, _: &mut Self::Conn, pause: Duration) -> impl Future<Output = Answer<()>> + Send {
        async move {
            tokio::time::sleep(pause).await;
            Ok(())
        }
    }

    /// Waits for the database to say that it is the turn of some ticket. Never returns `Ok` with nothing. `None`: this
    /// database cannot push, and [`turns`](crate::dialect::Dialect::turns) is asked instead.
    fn subscribe(&self, client: Uuid) -> impl Future<Output = Answer<Option<Self::Subscription>>> + Send;

    /// An open subscription.
    type Subscription: Send + 'static;

    /// Sends a word to the subscription of this client, over a connection that is not its own. It arrives like a ticket.
    /// False: a subscription of this database needs no proof, and nothing was sent.
    fn announce(
        &self,
        _: &mut Self::Conn,
        _client: Uuid,
        _word: i64,
    ) -> impl Future<Output = Answer<bool>> + Send {
        std::future::ready(Ok(false))
    }

    /// The next waiter whose turn it is, or to whom a release has granted the lock. `None`: the connection was lost, so some may have been missed.
    fn notification(
        subscription: &mut Self::Subscription,
    ) -> impl Future<Output = Answer<Option<Told>>> + Send;
}
