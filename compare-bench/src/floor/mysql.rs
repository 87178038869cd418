//! The floor of MariaDB.

use lockwell::ServerUrl;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, Row};

use super::{Address, Owners, Server, TABLE, TTL, key, refused};
use crate::error::Result;

const CREATE: &str = "CREATE TABLE lockwell_compare_floor (
    name varchar(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
    owner binary(16), token bigint NOT NULL, expires_at datetime(6), acquired_at datetime(6), label varchar(255)
) ENGINE=InnoDB";

// The expiry comes last: assignments see the values of those before them.
const TAKE: &str = "INSERT INTO lockwell_compare_floor (name, owner, token, expires_at, acquired_at, label)
    VALUES (?, ?, 1, NOW(6) + INTERVAL ? MICROSECOND, NOW(6), ?)
    ON DUPLICATE KEY UPDATE
        owner = IF(expires_at IS NULL OR expires_at <= NOW(6), VALUES(owner), owner),
        token = IF(expires_at IS NULL OR expires_at <= NOW(6), token + 1, token),
        acquired_at = IF(expires_at IS NULL OR expires_at <= NOW(6), VALUES(acquired_at), acquired_at),
        label = IF(expires_at IS NULL OR expires_at <= NOW(6), VALUES(label), label),
        expires_at = IF(expires_at IS NULL OR expires_at <= NOW(6), VALUES(expires_at), expires_at)
    RETURNING owner, token";

const CLEAR: &str = "UPDATE lockwell_compare_floor SET expires_at = NULL WHERE name = ? AND owner = ?";

#[derive(Debug)]
pub(crate) struct MySqlFloor {
    connection: MySqlConnection,
    owners: Owners,
}

impl MySqlFloor {
    pub(super) async fn connect(url: &ServerUrl) -> Result<Self> {
        let address = Address::of(url)?;
        let mut options = MySqlConnectOptions::new().host(&address.host);
        options = address.port.into_iter().fold(options, MySqlConnectOptions::port);
        options = address.user.into_iter().fold(options, MySqlConnectOptions::username);
        options = address.password.into_iter().fold(options, MySqlConnectOptions::password);
        if !address.database.is_empty() {
            options = options.database(address.database);
        }
        let mut connection = options.connect().await?;
        connection.execute(AssertSqlSafe(format!("DROP TABLE IF EXISTS {TABLE}"))).await?;
        connection.execute(CREATE).await?;
        Ok(Self { connection, owners: Owners::default() })
    }

    pub(super) async fn cycle(&mut self, name: usize) -> Result<()> {
        let (name, owner) = (key(name), self.owners.next());
        let ttl = u64::try_from(TTL.as_micros()).unwrap_or(u64::MAX);
        let row = sqlx::query(TAKE)
            .bind(&name)
            .bind(owner.as_slice())
            .bind(ttl)
            .bind("compare-bench")
            .fetch_one(&mut self.connection)
            .await?;
        if row.try_get::<Vec<u8>, _>(0)? != owner {
            return Err(refused());
        }
        let cleared =
            sqlx::query(CLEAR).bind(&name).bind(owner.as_slice()).execute(&mut self.connection).await?;
        if cleared.rows_affected() == 1 { Ok(()) } else { Err(refused()) }
    }

    pub(super) async fn server(&mut self) -> Result<Server> {
        let sql = "SELECT VERSION(), CAST(@@innodb_flush_log_at_trx_commit AS CHAR)";
        let row = sqlx::query(sql).fetch_one(&mut self.connection).await?;
        Ok(Server {
            version: row.try_get(0)?,
            settings: vec![("innodb_flush_log_at_trx_commit", row.try_get(1)?)],
        })
    }

    pub(super) async fn finish(mut self) -> Result<()> {
        self.connection.execute(AssertSqlSafe(format!("DROP TABLE IF EXISTS {TABLE}"))).await?;
        Ok(self.connection.close().await?)
    }
}
