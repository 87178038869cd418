//! The connections and tables of MySQL and MariaDB.

use futures_util::StreamExt;
use lockcore::backend::Bounds;
use lockcore::{Capabilities, Requirement};
use sqlx::{Either, Row};
use uuid::Uuid;

use super::driver::{Conn, MySql};
use super::error::class_of;
use super::push::Parked;
use super::session;
use super::statements::refuse_statements;
use crate::dialect::database::Database;
use crate::dialect::error::tables_locked;
use crate::sql::table::Sql;
use crate::words::{ErrorClass, Notification};

impl Database for MySql {
    /// A message of claims or releases fits into a record of TLS, which has 16 KiB, unless names are long.
    /// sqlx does not set `TCP_NODELAY`, so what does not fit waits until the server acknowledges the first
    /// record, which takes some 40 ms. With 128 requests and TLS a batch took about 90 ms, without TLS about
    /// 5 ms. Without TLS, batches of 500 would be better: 1.4 times the throughput of 256 tasks.
    const BOUNDS: Bounds = Bounds::new().batch(64);

    type Conn = Conn;
    type Subscription = Parked;

    fn capabilities(&self) -> Capabilities {
        Capabilities::minimal("mysql").promising([
            Requirement::Shared,
            Requirement::Permits,
            Requirement::Downgrade,
            Requirement::Fencing,
            Requirement::TokenBlocks,
            Requirement::Fifo,
            Requirement::HerdFree,
            Requirement::AcrossHosts,
            Requirement::Durable,
        ])
    }

    async fn connect(&self) -> sqlx::Result<Conn> {
        Ok(Conn { inner: session::open(&self.connect).await?, killer: None, may_kill: None })
    }

    fn class_of(&self, error: &dyn sqlx::error::DatabaseError) -> ErrorClass {
        class_of(error)
    }

    async fn check(&self, conn: &mut Conn) -> sqlx::Result<()> {
        // In one message. Only the first statement returns rows.
        let mut answers = sqlx::raw_sql(self.sql.check.get()).fetch_many(&mut conn.inner);
        let mut refused = Ok(());
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(Either::Right(row)) => {
                    refused = refuse_statements(&row.try_get_unchecked::<String, _>(1)?);
                }
                Ok(Either::Left(_)) => (),
                // Rows are not locked here, so it was a table.
                Err(sqlx::Error::Database(error)) if class_of(&*error) == ErrorClass::Blocked => {
                    return Err(tables_locked(session::TABLE_TIMEOUT));
                }
                Err(error) => return refused.and(Err(error)),
            }
        }
        refused
    }

    async fn create(&self, conn: &mut Conn) -> sqlx::Result<()> {
        for statement in self.sql.tables() {
            sqlx::query(statement.get()).execute(&mut conn.inner).await?;
        }
        Ok(())
    }

    fn ddl(&self) -> String {
        Sql::script(self.sql.tables())
    }

    async fn version(&self, _: &mut Conn) -> sqlx::Result<Option<i64>> {
        Ok(None)
    }

    async fn subscribe(&self, client: Uuid) -> sqlx::Result<Option<Parked>> {
        self.park(client).await
    }

    async fn notification(parked: &mut Parked) -> sqlx::Result<Option<Notification>> {
        parked.next().await.map(Some)
    }
}
