//! One database: its connection and its tables.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::dialect::answers::meaning;
use crate::words::{ErrorClass, Notification};
use lockwell_core::backend::{Bounds, Waiters};
use lockwell_core::{Capabilities, Finding, Requirement};

/// What comes of statements.
pub trait Outcome<T>: Future<Output = sqlx_core::Result<T>> + Send {}

impl<T, F: Future<Output = sqlx_core::Result<T>> + Send> Outcome<T> for F {}

/// One database: how to get a connection, how to make the tables, what its errors mean, and what an
/// administrator asks it.
pub trait Database: Debug + Send + Sync + Sized + 'static {
    /// Whether the database is reached over a network, which can fail without an error.
    const IS_REMOTE: bool = true;

    /// In how many parts an answer may come to a request that its caller
    /// [sends](crate::dialect::Dialect::is_light) itself.
    const PARTS: u8 = 1;

    /// How often a client that receives notifications asks whose turn it is all the same, in one request for
    /// all its waiters. `None`: each waiter asks by itself.
    const ASKS_EVERY: Option<Duration> = None;

    /// The bounds of a client's batcher.
    fn bounds(&self) -> Bounds {
        Bounds::new()
    }

    /// A connection. It carries one statement at a time, so that the answer to a statement whose caller has
    /// gone is not taken for the answer to another one.
    type Conn: Send + 'static;

    fn capabilities(&self) -> Capabilities;

    /// A connection for the client of these waiters.
    fn connect(&self, waiters: &Arc<Waiters>) -> impl Outcome<Self::Conn>;

    /// What another connection finds this one by at the server, in case it does not answer. `None`: nothing.
    fn session(&self, _: &mut Self::Conn) -> impl Outcome<Option<String>> {
        std::future::ready(Ok(None))
    }

    /// Whether the server still carries out the statement of that session.
    fn is_busy(&self, _: &mut Self::Conn, _session: &str) -> impl Outcome<bool> {
        std::future::ready(Ok(false))
    }

    /// Ends a connection of this client, where that takes more than dropping it.
    fn shut(&self, conn: Self::Conn) -> impl Future<Output = ()> + Send {
        async move { drop(conn) }
    }

    /// Checks that the connection still leads to the database that other processes use. It is called after
    /// each batch and before the answers are used. An error replaces the connection and repeats the batch.
    fn intact(&self, _: &Self::Conn) -> sqlx_core::Result<()> {
        Ok(())
    }

    /// The class of an error that the database itself reports.
    fn class_of(&self, error: &dyn sqlx_core::error::DatabaseError) -> ErrorClass {
        meaning(error).0
    }

    /// Checks that the tables exist and can be used.
    fn check(&self, conn: &mut Self::Conn) -> impl Outcome<()>;

    /// Creates the tables where they are missing.
    fn create(&self, conn: &mut Self::Conn) -> impl Outcome<()>;

    /// The statements that create the tables, for an administrator.
    fn ddl(&self) -> String;

    /// A number that changes with every change of the database, where it is cheaper to read than the queue.
    fn version(&self, conn: &mut Self::Conn) -> impl Outcome<Option<i64>>;

    /// Waits before the next poll: for `pause`, or until the database has changed, where that can be
    /// observed.
    fn pause(&self, _: &mut Self::Conn, pause: Duration) -> impl Outcome<()> {
        async move {
            tokio::time::sleep(pause).await;
            Ok(())
        }
    }

    /// Subscribes to the notifications for the client of these waiters. A subscription may tell them by
    /// itself what it hears. `None`: this database cannot push, and [`turns`](crate::dialect::Dialect::turns)
    /// is polled instead.
    fn subscribe(&self, waiters: &Arc<Waiters>) -> impl Outcome<Option<Self::Subscription>>;

    /// An open subscription.
    type Subscription: Send + 'static;

    /// Sends a probe to the subscription of the client, over another connection. It arrives as a
    /// notification with this number as its ticket. False: a subscription of this database needs no probe,
    /// and nothing was sent.
    fn probe(&self, _: &mut Self::Conn, _number: i64) -> impl Outcome<bool> {
        std::future::ready(Ok(false))
    }

    /// The next waiter whose turn it is, or to which a release has granted the lock. `None`: the connection
    /// was lost, so some notifications may be missing.
    fn notification(subscription: &mut Self::Subscription) -> impl Outcome<Option<Notification>>;

    /// The names of the locks that are held.
    fn names(&self, conn: &mut Self::Conn) -> impl Outcome<Vec<String>>;

    /// What the database says about itself.
    fn examine(&self, conn: &mut Self::Conn) -> impl Outcome<Vec<Finding>>;

    /// For how long the database grants nothing, because it may have forgotten grants. `None`: it grants
    /// locks.
    fn grace_left(&self, _: &mut Self::Conn) -> impl Outcome<Option<Duration>> {
        std::future::ready(Ok(None))
    }

    /// Begins a grace period by hand, and returns its length. `None`: these tables have none.
    fn begin_grace(&self, _: &mut Self::Conn) -> impl Outcome<Option<Duration>> {
        std::future::ready(Ok(None))
    }
}

/// What all databases promise.
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite-unbundled"))]
pub(crate) fn promised(backend: &'static str) -> Capabilities {
    Capabilities::minimal(backend).promising([
        Requirement::Shared,
        Requirement::Permits,
        Requirement::Downgrade,
        Requirement::Fencing,
        Requirement::TokenBlocks,
        Requirement::Fifo,
        Requirement::Durable,
    ])
}
