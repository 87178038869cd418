//! MySQL and MariaDB.

mod address;
mod batches;
mod call;
mod claims;
mod contended;
mod database;
mod driver;
mod error;
mod examine;
mod groups;
mod hand_over;
mod hold;
mod kill;
mod locks;
mod park;
mod push;
mod rows;
mod session;
mod statements;

use std::sync::Arc;

use lockcore::backend::Hot;
use lockcore::{Result, ServerUrl};

pub(crate) use self::statements::ddl;

use self::contended::Contended;
use self::driver::MySql;
use self::statements::Statements;
use crate::dialect::verify::{VerifyRecord, verify_trait};
use crate::lock::SqlLock;
use crate::sql::options::{SOCKET, SqlOptions};

verify_trait!(MySqlVerify, sqlx::MySql, "mysql", "MySQL or MariaDB");

/// Locks in a table of a MySQL or MariaDB database.
pub type MySqlLock = SqlLock<MySql>;

impl MySqlLock {
    /// Connects to the database of this address, `mysql://USER:PASSWORD@HOST:PORT/DATABASE`.
    ///
    /// It needs MariaDB 10.6 or MySQL 8.0.19, for `JSON_TABLE` and `SKIP LOCKED`. An acquire of a free lock
    /// is one round trip on both; one of a lock that is new or contended takes a second one. A release that
    /// finds a waiter grants the lock to it in its own message. It is tested with MariaDB 10.11 and MySQL
    /// 9.7.
    ///
    /// Every connection is set to the modes, time zone, isolation level and time-outs that it needs, whatever
    /// the server has by default. A server that was started with `sysdate-is-now` is refused as
    /// misconfigured.
    ///
    /// Options: `table`, `create`, `timeout`, `purge_after` as for all databases; `sslmode` (`disabled`,
    /// `preferred`, `required`, `verify_ca`, `verify_identity`) with `sslca`, `sslcert` and `sslkey`.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is locked.
    pub async fn connect(url: &ServerUrl) -> Result<Self> {
        let options = SqlOptions::read(url, &[&["sslmode", SOCKET], &address::FILES[..]].concat())?;
        let connect = address::options(url)?;
        let table = options.table.clone().quoted("`");
        let sql = Statements::new(&table);
        let record = Arc::new(VerifyRecord { backend: "mysql", verify: sql.verify.clone() });
        let (contended, push, hot) = (Contended::default(), Arc::default(), Hot::new());
        Self::open(MySql { connect, contended, push, hot, sql }, options, record).await
    }
}
