//! `PostgreSQL`: the transactions of the database. A connection reports its own when it ends one a second or
//! more after its last report.

use lockwell::backend::ServerUrl;
use sqlx::Row;
use sqlx::postgres::PgConnection;

use crate::error::Result;
use crate::measure::counter::count::Count;
use crate::measure::floor::postgres::connect;

const COUNT: &str =
    "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()";

#[derive(Debug)]
pub(crate) struct PostgresCounter {
    connection: PgConnection,
}

impl PostgresCounter {
    pub(super) async fn connect(url: &ServerUrl) -> Result<Self> {
        Ok(Self { connection: connect(url).await? })
    }

    pub(super) async fn read(&mut self) -> Result<Count> {
        let row = sqlx::query(COUNT).fetch_one(&mut self.connection).await?;
        Ok(Count { requests: u64::try_from(row.try_get::<i64, _>(0)?).unwrap_or(0), wakeups: None })
    }
}
