//! A row that the holder inserts, and deletes when it releases.

use std::sync::Arc;
use std::time::Duration;

use lockwell::backend::ServerUrl;
use peer_common::{Library, Result, one};
use sqlx::mysql::MySqlConnection;
use sqlx::postgres::PgConnection;
use tokio::sync::Mutex;

use crate::measure::floor::{mysql, postgres};

const CREATE: &str =
    "CREATE TABLE IF NOT EXISTS lockwell_compare_contrast (name VARCHAR(255) NOT NULL PRIMARY KEY)";

/// The pause between two polls of a waiter.
const PAUSE: Duration = Duration::from_millis(10);

/// One connection, which serves one statement at a time.
#[derive(Clone)]
pub(super) enum PlainRow {
    Postgres(Arc<Mutex<PgConnection>>),
    MySql(Arc<Mutex<MySqlConnection>>),
}

impl PlainRow {
    /// How many rows it changed. Several processes at one row can deadlock in MySQL; then it tries again.
    async fn execute(&self, postgres: &'static str, mysql: &'static str, name: Option<&str>) -> Result<u64> {
        loop {
            match self.try_execute(postgres, mysql, name).await {
                Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("40001") => {}
                done => return Ok(done?),
            }
        }
    }

    async fn try_execute(
        &self,
        postgres: &'static str,
        mysql: &'static str,
        name: Option<&str>,
    ) -> sqlx::Result<u64> {
        Ok(match self {
            Self::Postgres(connection) => {
                let query = sqlx::query(postgres);
                let query = name.into_iter().fold(query, sqlx::query::Query::bind);
                query.execute(&mut *connection.lock().await).await?.rows_affected()
            }
            Self::MySql(connection) => {
                let query = sqlx::query(mysql);
                let query = name.into_iter().fold(query, sqlx::query::Query::bind);
                query.execute(&mut *connection.lock().await).await?.rows_affected()
            }
        })
    }
}

impl Library for PlainRow {
    type Held = String;

    async fn connect(urls: &[&str]) -> Result<Self> {
        let url: ServerUrl = one(urls)?.parse()?;
        let this = if matches!(url.scheme(), "mysql" | "mariadb") {
            Self::MySql(Arc::new(Mutex::new(mysql::connect(&url).await?)))
        } else {
            Self::Postgres(Arc::new(Mutex::new(postgres::connect(&url).await?)))
        };
        // Several processes may make it at once, and then one of them fails though it is there.
        if this.execute(CREATE, CREATE, None).await.is_err() {
            this.execute(CREATE, CREATE, None).await?;
        }
        Ok(this)
    }

    fn version(&self) -> String {
        env!("CARGO_PKG_VERSION").to_owned()
    }

    fn setup(&self) -> String {
        "INSERT of a row with the name as its key, DELETE to release; asks every 10 ms; one connection"
            .to_owned()
    }

    fn lacks(&self) -> &'static str {
        "leases, order, fencing tokens, a wait without polling"
    }

    async fn acquire(&self, name: &str) -> Result<String> {
        let postgres = "INSERT INTO lockwell_compare_contrast VALUES ($1) ON CONFLICT DO NOTHING";
        let mysql = "INSERT IGNORE INTO lockwell_compare_contrast VALUES (?)";
        while self.execute(postgres, mysql, Some(name)).await? == 0 {
            tokio::time::sleep(PAUSE).await;
        }
        Ok(name.to_owned())
    }

    async fn release(&self, name: String) -> Result<()> {
        let postgres = "DELETE FROM lockwell_compare_contrast WHERE name = $1";
        let mysql = "DELETE FROM lockwell_compare_contrast WHERE name = ?";
        self.execute(postgres, mysql, Some(&name)).await.map(drop)
    }
}
