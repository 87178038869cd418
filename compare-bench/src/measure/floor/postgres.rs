//! The floor of Postgres.

use lockwell::backend::{ServerUrl, async_trait};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, Row};

use crate::error::Result;
use crate::measure::floor::raw::{Address, CONTRAST, Owners, Raw, Server, TABLE, TTL, key, refused};

const CREATE: &str = "CREATE TABLE lockwell_compare_floor (
    name text COLLATE \"C\" PRIMARY KEY, owner uuid NOT NULL, token bigint NOT NULL,
    expires_at timestamptz, acquired_at timestamptz NOT NULL, label text NOT NULL
) WITH (fillfactor = 50)";

const TAKE: &str =
    "INSERT INTO lockwell_compare_floor AS l (name, owner, token, expires_at, acquired_at, label)
    VALUES ($1, $2, 1, clock_timestamp() + $3 * interval '1 microsecond', clock_timestamp(), $4)
    ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, token = l.token + 1,
        expires_at = excluded.expires_at, acquired_at = excluded.acquired_at, label = excluded.label
    WHERE l.expires_at IS NULL OR l.expires_at <= clock_timestamp()
    RETURNING token";

const CLEAR: &str = "UPDATE lockwell_compare_floor SET expires_at = NULL WHERE name = $1 AND owner = $2";

#[derive(Debug)]
pub(crate) struct PostgresFloor {
    connection: PgConnection,
    owners: Owners,
}

impl PostgresFloor {
    pub(super) async fn connect(url: &ServerUrl) -> Result<Self> {
        let mut connection = connect(url).await?;
        connection.execute(AssertSqlSafe(format!("DROP TABLE IF EXISTS {TABLE}"))).await?;
        connection.execute(CREATE).await?;
        Ok(Self { connection, owners: Owners::default() })
    }
}

#[async_trait]
impl Raw for PostgresFloor {
    fn what(&self) -> &'static str {
        "INSERT .. ON CONFLICT .. RETURNING, then UPDATE; one bare sqlx connection"
    }

    async fn cycle(&mut self, name: usize) -> Result<()> {
        let (name, owner) = (key(name), self.owners.next());
        let taken = sqlx::query(TAKE)
            .bind(&name)
            .bind(owner)
            .bind(TTL)
            .bind("compare-bench")
            .fetch_optional(&mut self.connection)
            .await?;
        let _: i64 = taken.ok_or_else(refused)?.try_get(0)?;
        let cleared = sqlx::query(CLEAR).bind(&name).bind(owner).execute(&mut self.connection).await?;
        if cleared.rows_affected() == 1 { Ok(()) } else { Err(refused()) }
    }

    async fn server(&mut self) -> Result<Server> {
        let mut values = Vec::new();
        for sql in ["SHOW server_version", "SHOW fsync", "SHOW synchronous_commit"] {
            values.push(sqlx::query(sql).fetch_one(&mut self.connection).await?.try_get::<String, _>(0)?);
        }
        let [version, fsync, commit] = values.try_into().unwrap_or_default();
        Ok(Server {
            version: format!("PostgreSQL {version}"),
            settings: vec![("fsync", fsync), ("synchronous_commit", commit)],
        })
    }

    async fn finish(mut self: Box<Self>) -> Result<()> {
        for table in [TABLE, CONTRAST] {
            self.connection.execute(AssertSqlSafe(format!("DROP TABLE IF EXISTS {table}"))).await?;
        }
        Ok(self.connection.close().await?)
    }
}

/// A bare connection.
pub(crate) async fn connect(url: &ServerUrl) -> Result<PgConnection> {
    let address = Address::of(url)?;
    // As the backend does it: the address says everything.
    let mut options = PgConnectOptions::new_without_pgpass()
        .host(&address.host)
        .port(address.port.unwrap_or(5432))
        .username(address.user.unwrap_or("postgres"));
    options = address.password.into_iter().fold(options, PgConnectOptions::password);
    if !address.database.is_empty() {
        options = options.database(address.database);
    }
    if let Some(mode) = url.option("sslmode") {
        options = options.ssl_mode(mode.parse()?);
    }
    Ok(options.connect().await?)
}
