//! The SQL lock table of lockwell: PostgreSQL, MySQL/MariaDB and SQLite, by sqlx.
//!
//! A lock is a row, which a release does not delete. An acquire is one statement that takes the row if it is
//! free by the *server's* clock. Requests that arrive together share a statement. Waiters are rows of a queue
//! table, and are notified in order.
//!
//! Readers and the holders of permits are members of a group that holds the lock. They have rows of their
//! own, so exclusive locks do not get slower.
//!
//! For data in the same database, `verify_in` checks the lock inside the user's own transaction: true
//! exclusion, without an assumption about time.

// Without a database nothing uses the parts that all of them share.
#![cfg_attr(not(any(feature = "postgres", feature = "mysql", feature = "sqlite-unbundled")), allow(unused))]

mod client;
mod dialect;
mod ids;
mod lock;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
mod schema;
mod sql;
#[cfg(feature = "sqlite-unbundled")]
mod sqlite;
mod words;

pub use dialect::verify::VerifyStatement;
pub use lock::SqlLock;
#[cfg(feature = "mysql")]
pub use mysql::{MySqlLock, MySqlVerify};
#[cfg(feature = "postgres")]
pub use postgres::{PostgresLock, PostgresVerify};
pub use schema::{schema, verify_routine};
#[cfg(feature = "sqlite-unbundled")]
pub use sqlite::{SqliteLock, SqliteVerify};
