//! `MariaDB` and `MySQL`: the statements that clients sent, and the statements that were interrupted, which
//! is how waiters are notified.

use std::collections::HashMap;

use lockwell::backend::ServerUrl;
use sqlx::Row;
use sqlx::mysql::MySqlConnection;

use crate::error::Result;
use crate::measure::counter::count::Count;
use crate::measure::floor::mysql::connect;

const COUNT: &str = "SHOW GLOBAL STATUS WHERE Variable_name IN ('Questions', 'Com_kill')";

#[derive(Debug)]
pub(crate) struct MySqlCounter {
    connection: MySqlConnection,
}

impl MySqlCounter {
    pub(super) async fn connect(url: &ServerUrl) -> Result<Self> {
        Ok(Self { connection: connect(url).await? })
    }

    pub(super) async fn read(&mut self) -> Result<Count> {
        let mut found = HashMap::new();
        for row in sqlx::query(COUNT).fetch_all(&mut self.connection).await? {
            let (name, value): (String, String) = (row.try_get(0)?, row.try_get(1)?);
            found.insert(name, value.parse::<u64>().unwrap_or(0));
        }
        let value = |name: &str| found.get(name).copied();
        Ok(Count { requests: value("Questions").unwrap_or(0), wakeups: value("Com_kill") })
    }
}
