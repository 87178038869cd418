//! The floor of MariaDB and MySQL.

use lockwell::backend::{ServerUrl, async_trait};
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, Row, SqlSafeStr, SqlStr};
use uuid::Uuid;

use crate::error::Result;
use crate::measure::floor::raw::{Address, CONTRAST, Owners, Raw, Server, TABLE, TTL, key, refused};

const CREATE: &str = "CREATE TABLE lockwell_compare_floor (
    name VARBINARY(512) NOT NULL PRIMARY KEY, owner BINARY(16) NOT NULL, token BIGINT NOT NULL,
    expires_at BIGINT NULL, acquired_at BIGINT NOT NULL, label VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL
) ENGINE = InnoDB";

const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6))";

const FREE: &str = "(lockwell_compare_floor.expires_at IS NULL
    OR lockwell_compare_floor.expires_at <= VALUES(acquired_at))";

// The expiry comes last: assignments see the values of those before them.
const TAKE: &str = "INSERT INTO lockwell_compare_floor (name, owner, token, expires_at, acquired_at, label)
    VALUES (?, ?, 1, {now} + ?, {now}, ?)
    ON DUPLICATE KEY UPDATE
        token = IF({free}, lockwell_compare_floor.token + 1, lockwell_compare_floor.token),
        acquired_at = IF({free}, VALUES(acquired_at), lockwell_compare_floor.acquired_at),
        label = IF({free}, VALUES(label), lockwell_compare_floor.label),
        owner = IF({free}, VALUES(owner), lockwell_compare_floor.owner),
        expires_at = IF({free}, VALUES(expires_at), lockwell_compare_floor.expires_at)";

const CLEAR: &str = "UPDATE lockwell_compare_floor SET expires_at = NULL WHERE name = ? AND owner = ?";

#[derive(Debug)]
pub(crate) struct MySqlFloor {
    connection: MySqlConnection,
    owners: Owners,
    take: SqlStr,
}

impl MySqlFloor {
    pub(super) async fn connect(url: &ServerUrl) -> Result<Self> {
        let mut connection = connect(url).await?;
        connection.execute(AssertSqlSafe(format!("DROP TABLE IF EXISTS {TABLE}"))).await?;
        connection.execute(CREATE).await?;
        let version: String = sqlx::query("SELECT VERSION()").fetch_one(&mut connection).await?.try_get(0)?;
        // MySQL cannot return what it wrote. There the row that CLEAR finds shows who had it.
        let returning = if version.contains("MariaDB") { "\n    RETURNING owner, token" } else { "" };
        let take = TAKE.replace("{free}", FREE).replace("{now}", NOW) + returning;
        Ok(Self { connection, owners: Owners::default(), take: AssertSqlSafe(take).into_sql_str() })
    }
}

#[async_trait]
impl Raw for MySqlFloor {
    fn what(&self) -> &'static str {
        "INSERT .. ON DUPLICATE KEY UPDATE .. RETURNING, then UPDATE; one bare sqlx connection"
    }

    async fn cycle(&mut self, name: usize) -> Result<()> {
        let (name, owner) = (key(name), self.owners.next());
        let row = sqlx::query(self.take.clone())
            .bind(&name)
            .bind(owner)
            .bind(TTL)
            .bind("compare-bench")
            .fetch_optional(&mut self.connection)
            .await?;
        if let Some(row) = row
            && row.try_get::<Uuid, _>(0)? != owner
        {
            return Err(refused());
        }
        let cleared = sqlx::query(CLEAR).bind(&name).bind(owner).execute(&mut self.connection).await?;
        if cleared.rows_affected() == 1 { Ok(()) } else { Err(refused()) }
    }

    async fn server(&mut self) -> Result<Server> {
        let version = sqlx::query_scalar("SELECT VERSION()").fetch_one(&mut self.connection).await?;
        let variables = sqlx::query_as("SHOW GLOBAL VARIABLES LIKE 'innodb%log%'");
        let variables: Vec<(String, String)> = variables.fetch_all(&mut self.connection).await?;
        let setting =
            |name| variables.iter().find(|(known, _)| known == name).map(|(_, value)| (name, value.clone()));
        // That of MySQL, or that of MariaDB.
        let log = setting("innodb_redo_log_capacity").or_else(|| setting("innodb_log_file_size"));
        let settings = setting("innodb_flush_log_at_trx_commit").into_iter().chain(log).collect();
        Ok(Server { version, settings })
    }

    async fn finish(mut self: Box<Self>) -> Result<()> {
        for table in [TABLE, CONTRAST] {
            self.connection.execute(AssertSqlSafe(format!("DROP TABLE IF EXISTS {table}"))).await?;
        }
        Ok(self.connection.close().await?)
    }
}

/// A bare connection.
pub(crate) async fn connect(url: &ServerUrl) -> Result<MySqlConnection> {
    let address = Address::of(url)?;
    let mut options = MySqlConnectOptions::new()
        .host(&address.host)
        .port(address.port.unwrap_or(3306))
        .username(address.user.unwrap_or("root"))
        .database(address.database);
    options = address.password.into_iter().fold(options, MySqlConnectOptions::password);
    if let Some(mode) = url.option("sslmode") {
        options = options.ssl_mode(mode.parse()?);
    }
    Ok(options.connect().await?)
}
