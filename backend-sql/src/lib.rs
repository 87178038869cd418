//! The SQL lock table of lockwell: PostgreSQL, MySQL/MariaDB and SQLite, by sqlx.

mod dialect;
mod errand;
mod error;
mod lane;
mod lock;
#[cfg(feature = "mysql")]
mod mysql;
mod options;
#[cfg(feature = "postgres")]
mod postgres;
mod seats;
#[cfg(feature = "sqlite")]
mod sqlite;
mod table;
mod verify;
mod wake;

pub use lock::SqlLock;
#[cfg(feature = "mysql")]
pub use mysql::{MySqlLock, MySqlVerify};
#[cfg(feature = "postgres")]
pub use postgres::{PostgresLock, PostgresVerify};
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteLock, SqliteVerify};
