//! The statements that create the tables of an address.

use lockwell_core::{Result, ServerUrl};

use crate::sql::table::Table;

/// The statements that create the tables of an address, for an administrator. It does not connect. `None`:
/// the address is not that of a database.
///
/// Where the address names no schema, the statements name none: the tables come into the first schema of the
/// search path.
pub fn schema(url: &ServerUrl) -> Result<Option<String>> {
    let table = || Table::new(url.option("table").unwrap_or(Table::DEFAULT));
    match url.scheme() {
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => Ok(Some(crate::postgres::ddl(url, &table()?)?)),
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => Ok(Some(crate::mysql::ddl(&table()?))),
        #[cfg(feature = "sqlite-unbundled")]
        "sqlite" => crate::sqlite::ddl(&table()?).map(Some),
        _ => Ok(None),
    }
}
