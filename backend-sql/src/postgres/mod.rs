//! PostgreSQL.

mod address;
mod bound;
mod claims;
mod database;
mod driver;
mod durability;
mod examine;
mod grace;
mod groups;
mod hand_over;
mod locks;
mod named;
mod plan;
mod records;
mod session;
mod statements;
mod unread;

use std::sync::Arc;
use std::time::Duration;

use lockwell_core::backend::Backoff;
use lockwell_core::{Error, ErrorKind, Moment, Operation, Result, ServerUrl};
use sqlx_postgres::PgConnectOptions;

use self::driver::Postgres;
use self::durability::{Grace, lazy};
use self::session::{Found, Session};
use self::statements::{DISK, LAZY, Statements};
use crate::dialect::error::{class_of, fatal, no_answer};
use crate::dialect::hints::Hints;
use crate::dialect::verify::{VerifyRecord, Written, routine, verify_trait};
use crate::lock::{self, SqlLock};
use crate::sql::login::{Login, Place, names_no_server, server};
use crate::sql::options::{SOCKET, SqlOptions};
use crate::sql::table::Table;
use crate::words::ErrorClass;

verify_trait!(PostgresVerify, sqlx_postgres::Postgres, "postgres", "PostgreSQL");

const WRITTEN: Written = Written {
    mark: '$',
    name: ["pg_catalog.convert_from(pg_catalog.decode('", "', 'hex'), 'UTF8')"],
    owner: ["'", "'"],
};

/// Locks in a table of a PostgreSQL database.
pub type PostgresLock = SqlLock<Postgres>;

/// The options that say nothing of the server.
const OWN: [&str; 3] = ["durability", "longest_ttl", "pooled"];

impl PostgresLock {
    /// Connects to the database of this address, `postgres://USER:PASSWORD@HOST:PORT/DATABASE`.
    ///
    /// Options: `table`, `create`, `timeout`, `purge_after` as for all databases; `sslmode`, `sslrootcert`,
    /// `sslcert` and `sslkey` as for libpq; `pooled=true` for a pooler in transaction mode, which carries no
    /// notifications, and may carry no prepared statements: every statement then has its arguments in its
    /// text, and waiters ask. With `durability=grace` the grants of this client wait for no disk, and
    /// `longest_ttl` is the longest lease (30 s): `docs/sql.md`, "Durability".
    ///
    /// # Errors
    /// Among others, [`Misconfigured`](lockwell_core::ErrorKind::Misconfigured) if the address names no schema
    /// and the tables are, or would be made, in one that other users do not find, such as a schema of this
    /// user; and if `PGOPTIONS`, `PGSSLCERT` or `PGSSLKEY` is in the environment. Nothing else in it counts.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is locked.
    pub async fn connect(url: &ServerUrl) -> Result<Self> {
        Self::reach(url, address::options(url)?, all_options(url)?).await
    }

    /// Connects with options that the application has for its own connections, such as
    /// `(*pool.connect_options()).clone()` of an `sqlx::PgPool`: server, user, database, TLS.
    ///
    /// The address has the other options: `postgres://?table=app.locks`. The password is that of the options,
    /// unless the address came with a [file or a function](lockwell_core::LockConfig::password_from) for it.
    /// A later change of the pool's options changes nothing here.
    ///
    /// The connections are made for lockwell alone, since they have settings that would surprise the
    /// application, and are in use for as long as the locks are: they cannot come from a pool.
    ///
    /// ```no_run
    /// # mod lockwell { pub use lockwell_core::*; pub use lockwell_sql as sql; }
    /// # async fn example(pool: sqlx::PgPool) -> lockwell::Result<()> {
    /// use std::sync::Arc;
    /// use lockwell::sql::PostgresLock;
    /// use lockwell::{LockConfig, Locks};
    ///
    /// let (url, config) = LockConfig::new("postgres://?table=app.locks").resolve()?;
    /// let options = (*pool.connect_options()).clone();
    /// let backend = PostgresLock::connect_with(&url, options).await?;
    /// let locks = Locks::with_config(Arc::new(backend), &config)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`connect`](Self::connect), and [`InvalidInput`](lockwell_core::ErrorKind::InvalidInput) if the
    /// address names a server, a user or a database.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is locked.
    pub async fn connect_with(url: &ServerUrl, options: PgConnectOptions) -> Result<Self> {
        names_no_server(url)?;
        let at = server(options.get_host(), options.get_port(), options.get_socket());
        Self::reach(url, address::ours(options), SqlOptions::read(url, &OWN)?.of(at)).await
    }

    async fn reach(url: &ServerUrl, connect: PgConnectOptions, options: SqlOptions) -> Result<Self> {
        // Before anything is sent.
        lazy(url, Found::None)?;
        let mut postgres = Postgres::new(url, connect, &options)?;
        let context = |error: Error| options.named(error.during(Operation::Connect).on_backend("postgres"));
        let (table, found) = postgres.find(&options).await.map_err(context)?;
        postgres.grace = Grace::new(lazy(url, found).map_err(context)?);
        postgres.sql = Statements::new(&table, if postgres.grace.lazy.is_some() { &LAZY } else { &DISK });
        let record = Arc::new(VerifyRecord {
            backend: "postgres",
            verify: postgres.sql.verify.clone(),
            written: WRITTEN,
        });
        Self::open(postgres, options, record, lock::hand_over::acquire).await
    }
}

fn all_options(url: &ServerUrl) -> Result<SqlOptions> {
    let own = [&OWN[..], &["sslmode", SOCKET], &address::FILES].concat();
    Ok(SqlOptions::read(url, &own)?.at(url, address::PORT))
}

/// The statements that create the tables of this address.
pub(crate) fn ddl(url: &ServerUrl, table: &Table) -> Result<String> {
    let table = match table.schema() {
        Some(schema) => table.in_schema(&schema),
        None => table.clone(),
    };
    lazy(url, Found::None)?;
    Ok(Statements::new(&table, &DISK).ddl())
}

/// The statement that creates the function `SCHEMA.TABLE_verify` for tables of this address.
pub(crate) fn verify_routine(url: &ServerUrl, table: &Table) -> Result<String> {
    let Some(schema) = table.schema() else {
        let text = "the function runs with the rights of its owner, so it names the schema of its tables: give it in the \
                    address, as in ?table=public.lockwell_locks";
        return Err(Error::new(ErrorKind::InvalidInput, text));
    };
    let table = table.in_schema(&schema);
    let statements = Statements::new(&table, if lazy(url, Found::None)?.is_some() { &LAZY } else { &DISK });
    Ok(routine(&table, include_str!("verify.sql"), &statements.verify))
}

impl Postgres {
    /// Before anything is known of the tables.
    fn new(url: &ServerUrl, connect: PgConnectOptions, options: &SqlOptions) -> Result<Self> {
        let pooled = url.parsed("pooled", "true or false")?.unwrap_or(false);
        // A host that is a path is the folder of a Unix socket.
        let is_file = connect.get_socket().is_some() || connect.get_host().starts_with('/');
        let place = (!is_file).then(|| Place {
            host: connect.get_host().to_owned(),
            port: connect.get_port(),
            at: |options: PgConnectOptions, place| options.host(&place.ip().to_string()).port(place.port()),
        });
        Ok(Self {
            address: format!("{}:{}", connect.get_host(), connect.get_port()),
            session: Arc::new(Session::new(
                Login::new(connect, url.passwords(), PgConnectOptions::password, place),
                pooled,
            )),
            pooled,
            sql: Statements::new(&options.table, &DISK),
            hints: Hints::new(),
            grace: Grace::new(None),
        })
    }

    /// The table with its schema, and what is known of it.
    async fn find(&self, options: &SqlOptions) -> Result<(Table, Found)> {
        let until = Moment::now().after(options.timeout);
        let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(500));
        let mut last = no_answer(None);
        while !until.has_passed() {
            // A server that does not answer is asked again while there is time.
            let limit = until.remaining().min((options.timeout / 2).max(Duration::from_secs(2)));
            match tokio::time::timeout(limit, self.session.find(&options.table)).await {
                Ok(Ok(found)) => return Ok(found),
                Ok(Err(error)) if class_of(self, &error) == ErrorClass::Fatal => return Err(fatal(&error)),
                Ok(Err(error)) => last = no_answer(Some(&error)),
                Err(_) => continue,
            }
            tokio::time::sleep(backoff.next_pause().min(until.remaining())).await;
        }
        Err(last)
    }
}
