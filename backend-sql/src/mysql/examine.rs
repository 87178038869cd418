//! The questions of an administrator to MySQL and MariaDB.

use std::time::SystemTime;

use lockcore::Finding;
use sqlx::Row;

use super::statements::Statements;
use super::{Conn, MySql, number};
use crate::examine::{Examine, persistence, time};
use crate::table::{Sql, Table};

/// Whether commits wait for a replica: the names of MariaDB, of MySQL, and of MySQL before 8.0.26.
const SEMI_SYNC: [&str; 3] = [
    "SELECT CAST(@@rpl_semi_sync_master_enabled AS SIGNED)",
    "SELECT CAST(@@rpl_semi_sync_source_enabled AS SIGNED)",
    "SELECT 0",
];

impl Examine for MySql {
    async fn names(&self, conn: &mut Conn) -> sqlx::Result<Vec<String>> {
        let names: Vec<Vec<u8>> = self.sql.names.call().values(&mut conn.inner).await?;
        Ok(names.into_iter().filter_map(|name| String::from_utf8(name).ok()).collect())
    }

    async fn examine(&self, conn: &mut Conn) -> sqlx::Result<Vec<Finding>> {
        let asked = SystemTime::now();
        let row = sqlx::query(self.sql.about.sql().get()).fetch_one(&mut conn.inner).await?;
        let answered = SystemTime::now();
        let text = |index: usize| -> sqlx::Result<String> {
            let bytes: Vec<u8> = row.try_get_unchecked(index)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        let (flush, double, replicas) = (text(1)?, text(2)?, row.try_get_unchecked::<i64, _>(3)?);
        let waits = replicas > 0 && semi_sync(conn).await?;
        Ok(vec![
            Finding::clock(time(row.try_get_unchecked(0)?), asked, answered),
            persistence(&[
                ("innodb_flush_log_at_trx_commit", &flush, &["1"]),
                ("innodb_doublewrite", &double, &["1", "ON", "DETECT_AND_RECOVER"]),
            ]),
            replication(replicas, waits),
        ])
    }
}

async fn semi_sync(conn: &mut Conn) -> sqlx::Result<bool> {
    for question in SEMI_SYNC {
        match sqlx::query_scalar::<_, i64>(question).fetch_one(&mut conn.inner).await {
            // This server does not know the variable.
            Err(sqlx::Error::Database(error)) if number(&*error) == 1193 => (),
            answer => return answer.map(|enabled| enabled != 0),
        }
    }
    Ok(false)
}

fn replication(replicas: i64, waits: bool) -> Finding {
    match (replicas, waits) {
        (0, _) => Finding::good("replication", "no replica reads from it, as far as this user may see"),
        (_, true) => {
            Finding::good("replication", format!("{replicas} replicas; commits wait for one of them"))
        }
        (_, false) => Finding::doubtful(
            "replication",
            format!("{replicas} replicas, and commits wait for none: a failover can grant a lock twice"),
            "switch semi-synchronous replication on, and fail over only to a replica that has everything; or fence by the \
             token",
        ),
    }
}

/// The statements that create the tables.
pub(crate) fn ddl(table: &Table) -> String {
    Sql::script(Statements::new(&table.clone().quoted("`")).tables())
}
