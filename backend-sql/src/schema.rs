//! The statements that create the tables of an address.

use lockwell_core::{Result, ServerUrl};

use crate::sql::table::Table;

/// The statements that create the tables of an address, for an administrator. It does not connect. `None`:
/// the address is not that of a database.
///
/// Where the address names no schema, the statements name none: the tables come into the first schema of the
/// search path.
pub fn schema(url: &ServerUrl) -> Result<Option<String>> {
    match url.scheme() {
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => Ok(Some(crate::postgres::ddl(url, &Table::of(url)?)?)),
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => Ok(Some(crate::mysql::ddl(&Table::of(url)?))),
        #[cfg(feature = "sqlite-unbundled")]
        "sqlite" => crate::sqlite::ddl(&Table::of(url)?).map(Some),
        _ => Ok(None),
    }
}

/// The statements that create the routine `TABLE_verify(name, token, hold id)`, for an administrator: a function
/// on PostgreSQL, a procedure on MySQL and MariaDB, where `DELIMITER` is a command of their clients. It does not
/// connect. `None`: there are no such routines at this address.
///
/// A script calls it first in its transaction, which fails if that hold has ended, and otherwise keeps the lock
/// from changing hands until it ends. It cannot notice that it is called without a transaction.
///
/// # Errors
/// [`InvalidInput`](lockwell_core::ErrorKind::InvalidInput) if the address of PostgreSQL names no schema in its
/// option `table`.
pub fn verify_routine(url: &ServerUrl) -> Result<Option<String>> {
    match url.scheme() {
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => crate::postgres::verify_routine(url, &Table::of(url)?).map(Some),
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => Ok(Some(crate::mysql::verify_routine(&Table::of(url)?))),
        _ => Ok(None),
    }
}
