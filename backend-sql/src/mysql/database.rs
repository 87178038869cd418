//! The connections and tables of MySQL and MariaDB.

use std::sync::Arc;

use futures_util::StreamExt;
use lockwell_core::backend::{Bounds, Constant, Waiters, can_set_nodelay};
use lockwell_core::{Capabilities, Finding, Requirement};
use sqlx_core::Either;
use sqlx_core::row::Row;

use super::driver::{Conn, MySql};
use super::push::Parked;
use super::session;
use super::statements::refuse_statements;
use crate::dialect::database::{Database, promised};
use crate::dialect::error::tables_locked;
use crate::dialect::records::is_missing;
use crate::sql::table::Sql;
use crate::words::{ErrorClass, Notification};

/// The most requests in a batch.
const BATCH: usize = 500;
/// The most requests in a batch where `TCP_NODELAY` cannot be set.
const SHORT_BATCH: usize = 64;

/// How many statements of a check must not fail.
const CHECKED: usize = 5;

impl Database for MySql {
    type Conn = Conn;
    type Subscription = Parked;

    /// Without `TCP_NODELAY` a message of claims or releases has to fit into one record of TLS, unless names
    /// are long (see `Login::connect`): with 128 requests and TLS a batch took about 90 ms.
    fn bounds(&self) -> Bounds {
        static CAN_SET: Constant<bool> = Constant::new(can_set_nodelay);
        Bounds::new().batch(if *CAN_SET { BATCH } else { SHORT_BATCH })
    }

    fn capabilities(&self) -> Capabilities {
        promised("mysql").promising([
            Requirement::HerdFree,
            Requirement::AcrossHosts,
            Requirement::VerifyInMySql,
        ])
    }

    async fn connect(&self, waiters: &Arc<Waiters>) -> sqlx_core::Result<Conn> {
        session::open(&self.connect).await.map(|inner| Conn::new(inner, waiters))
    }

    async fn shut(&self, mut conn: Conn) {
        let client = conn.client();
        self.push.hasten(&mut conn.inner, client).await;
        session::close(conn.inner).await;
    }

    async fn session(&self, conn: &mut Conn) -> sqlx_core::Result<Option<String>> {
        sqlx_core::query_scalar::query_scalar("SELECT CAST(CONNECTION_ID() AS CHAR)")
            .fetch_one(&mut conn.inner)
            .await
            .map(Some)
    }

    async fn is_busy(&self, conn: &mut Conn, session: &str) -> sqlx_core::Result<bool> {
        let sql =
            "SELECT COUNT(*) > 0 FROM information_schema.PROCESSLIST WHERE id = ? AND command <> 'Sleep'";
        sqlx_core::query_scalar::query_scalar(sql).bind(session).fetch_one(&mut conn.inner).await
    }

    async fn check(&self, conn: &mut Conn) -> sqlx_core::Result<()> {
        if self.is_plain {
            session::warn_of_logins(&mut conn.inner).await;
        }
        // In one message. Only the first statement returns rows.
        let mut answers = sqlx_core::raw_sql::raw_sql(self.sql.check.get()).fetch_many(&mut conn.inner);
        let (mut refused, mut done) = (Ok(()), 0);
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(Either::Right(row)) => {
                    refused = refuse_statements(&row.try_get_unchecked::<String, _>(1)?);
                }
                Ok(Either::Left(_)) => done += 1,
                // Rows are not locked here, so it was a table.
                Err(sqlx_core::Error::Database(error)) if self.class_of(&*error) == ErrorClass::Blocked => {
                    return Err(tables_locked(session::TABLE_TIMEOUT));
                }
                Err(error) if done == CHECKED && is_missing(&error) => {
                    tracing::debug!(%error, "no records");
                    break;
                }
                Err(error) => return refused.and(Err(error)),
            }
        }
        self.hints.note_records(done > CHECKED);
        refused
    }

    async fn create(&self, conn: &mut Conn) -> sqlx_core::Result<()> {
        for statement in self.sql.tables() {
            sqlx_core::query::query(statement.get()).execute(&mut conn.inner).await?;
        }
        Ok(())
    }

    fn ddl(&self) -> String {
        Sql::script(self.sql.tables())
    }

    async fn version(&self, _: &mut Conn) -> sqlx_core::Result<Option<i64>> {
        Ok(None)
    }

    async fn subscribe(&self, waiters: &Arc<Waiters>) -> sqlx_core::Result<Option<Parked>> {
        self.park(waiters).await
    }

    /// A parked connection tells the waiters itself: otherwise each hand-over would wait for one more task.
    /// This only says why it has ended.
    async fn notification(parked: &mut Parked) -> sqlx_core::Result<Option<Notification>> {
        Err(parked.end().await)
    }

    async fn names(&self, conn: &mut Conn) -> sqlx_core::Result<Vec<String>> {
        let names: Vec<Vec<u8>> = self.sql.names.call().values(&mut conn.inner).await?;
        Ok(names.into_iter().filter_map(|name| String::from_utf8(name).ok()).collect())
    }

    async fn examine(&self, conn: &mut Conn) -> sqlx_core::Result<Vec<Finding>> {
        self.findings(conn).await
    }
}
