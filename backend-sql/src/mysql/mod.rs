//! MySQL and MariaDB.

mod address;
mod batches;
mod call;
mod claims;
mod database;
mod driver;
mod examine;
mod groups;
mod hand_over;
mod hold;
mod kill;
mod locks;
mod park;
mod plan;
mod push;
mod records;
mod rows;
mod session;
mod statements;
mod unread;
mod verify;

use std::sync::Arc;

use lockwell_core::{Error, ErrorKind, Result, ServerUrl};
use sqlx_mysql::{MySqlConnectOptions, MySqlSslMode};

pub(crate) use self::statements::{ddl, verify_routine};

use self::driver::MySql;
use self::statements::Statements;
use crate::dialect::hints::Hints;
use crate::dialect::verify::{VerifyRecord, Written, verify_trait};
use crate::lock::{self, SqlLock};
use crate::sql::login::{Login, Place, names_no_server, server};
use crate::sql::options::{SOCKET, SqlOptions};

verify_trait!(MySqlVerify, sqlx_mysql::MySql, "mysql", "MySQL or MariaDB", verify::finds);

const WRITTEN: Written = Written { mark: '$', name: ["x'", "'"], owner: ["x'", "'"] };

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
        let options = SqlOptions::read(url, &[&["sslmode", SOCKET], &address::FILES[..]].concat())?
            .at(url, address::PORT);
        Self::reach(url, address::options(url)?, options).await
    }

    /// Connects with options that the application has for its own connections, such as
    /// `(*pool.connect_options()).clone()` of an `sqlx::MySqlPool`: server, user, database, TLS, and whether
    /// the password may be sent as it is (`enable_cleartext_plugin`), which the logins of some clouds need.
    ///
    /// The address has the other options: `mysql://?table=locks`. The password is that of the options, unless
    /// the address came with a [file or a function](lockwell_core::LockConfig::password_from) for it. A later
    /// change of the pool's options changes nothing here.
    ///
    /// The connections are made for lockwell alone, since they have settings that would surprise the
    /// application, and are in use for as long as the locks are: they cannot come from a pool.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), and [`InvalidInput`](ErrorKind::InvalidInput) if the address names a
    /// server, a user or a database, or the options name no database.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is locked.
    pub async fn connect_with(url: &ServerUrl, options: MySqlConnectOptions) -> Result<Self> {
        names_no_server(url)?;
        if options.get_database().is_none() {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "the options of the application name no database",
            ));
        }
        let at = server(options.get_host(), options.get_port(), options.get_socket());
        Self::reach(url, address::ours(options), SqlOptions::read(url, &[])?.of(at)).await
    }

    async fn reach(url: &ServerUrl, connect: MySqlConnectOptions, options: SqlOptions) -> Result<Self> {
        let address = format!("{}:{}", connect.get_host(), connect.get_port());
        let is_plain = !cfg!(feature = "tls") || matches!(connect.get_ssl_mode(), MySqlSslMode::Disabled);
        let place = connect.get_socket().is_none().then(|| Place {
            host: connect.get_host().to_owned(),
            port: connect.get_port(),
            at: |options: MySqlConnectOptions, place| {
                options.host(&place.ip().to_string()).port(place.port())
            },
        });
        let connect = Login::new(connect, url.passwords(), MySqlConnectOptions::password, place);
        let table = options.table.clone().quoted("`");
        let sql = Statements::new(&table, &statements::FILES);
        let record =
            Arc::new(VerifyRecord { backend: "mysql", verify: sql.verify.clone(), written: WRITTEN });
        let (push, hints) = (Arc::default(), Hints::new());
        let dialect = MySql { address, connect, is_plain, push, hints, sql };
        Self::open(dialect, options, record, lock::hand_over::acquire).await
    }
}
