//! What servers count themselves: the requests that they received, and the notifications that they sent.

use std::collections::HashMap;
use std::future::Future;

use lockwell::backend::ServerUrl;
use redis::aio::MultiplexedConnection;
use sqlx::Row;
use sqlx::mysql::MySqlConnection;
use sqlx::postgres::PgConnection;
use tokio::sync::Mutex;

use crate::error::Result;
use crate::measure::floor::words::Words;
use crate::measure::floor::{mysql, postgres, redis as raw_redis};

/// The transactions of the database. A connection reports its own when it ends one a second or more after its
/// last report.
const POSTGRES: &str =
    "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()";

/// The statements that clients sent, and the statements that were interrupted, which is how waiters are
/// notified.
const MYSQL: &str = "SHOW GLOBAL STATUS WHERE Variable_name IN ('Questions', 'Com_kill')";

/// What a server has counted since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) requests: u64,
    /// `None` where the server does not count them.
    pub(crate) wakeups: Option<u64>,
}

/// The connections on which the servers of a backend are asked.
#[derive(Debug)]
pub(crate) struct Counter {
    source: Mutex<Source>,
    /// What reading the count adds to it.
    own_cost: Count,
    is_prompt: bool,
}

#[derive(Debug)]
enum Source {
    Redis(Vec<MultiplexedConnection>),
    ZooKeeper(Words),
    Postgres(Box<PgConnection>),
    MySql(Box<MySqlConnection>),
}

impl Count {
    fn since(self, before: Self) -> Self {
        let wakeups = self.wakeups.zip(before.wakeups);
        Self {
            requests: self.requests.saturating_sub(before.requests),
            wakeups: wakeups.map(|(after, before)| after.saturating_sub(before)),
        }
    }

    /// The count without this number of known requests.
    pub(crate) fn without(self, requests: u64) -> Self {
        Self { requests: self.requests.saturating_sub(requests), ..self }
    }

    fn and(self, other: Self) -> Self {
        let wakeups = self.wakeups.zip(other.wakeups).map(|(one, other)| one + other);
        Self { requests: self.requests + other.requests, wakeups }
    }
}

impl Counter {
    /// Connects to the servers at the address of the raw statements. `None` where nothing is counted, or the
    /// count cannot be read.
    pub(crate) async fn connect(url: &str) -> Result<Option<Self>> {
        let url: &ServerUrl = &url.parse()?;
        let source = match url.scheme() {
            "redis" | "redis+cluster" | "redlock" => Source::Redis(raw_redis::links(url).await?),
            "zk" => Source::ZooKeeper(Words::of(url)?),
            "postgres" | "postgresql" => Source::Postgres(Box::new(postgres::connect(url).await?)),
            "mysql" | "mariadb" => Source::MySql(Box::new(mysql::connect(url).await?)),
            _ => return Ok(None),
        };
        let is_prompt = !matches!(source, Source::Postgres(_));
        let mut this = Self { source: Mutex::new(source), own_cost: Count::default(), is_prompt };
        let Some(first) = this.read().await? else { return Ok(None) };
        let Some(second) = this.read().await? else { return Ok(None) };
        // Little else is going on when this is made.
        this.own_cost = second.since(first);
        Ok(Some(this))
    }

    /// Whether the count is up to date at any moment. Otherwise clients have to ask the server something a
    /// second later.
    pub(crate) fn is_prompt(&self) -> bool {
        self.is_prompt
    }

    /// Does some work, and says what the servers counted meanwhile.
    pub(crate) async fn over<T>(
        this: Option<&Self>,
        work: impl Future<Output = T>,
    ) -> Result<(T, Option<Count>)> {
        let Some(this) = this else { return Ok((work.await, None)) };
        let before = this.read().await?;
        let done = work.await;
        let after = this.read().await?;
        let count = after.zip(before).map(|(after, before)| after.since(before).since(this.own_cost));
        Ok((done, count))
    }

    /// What all servers have counted. `None` if they do not answer.
    async fn read(&self) -> Result<Option<Count>> {
        let mut sum = Count { requests: 0, wakeups: Some(0) };
        match &mut *self.source.lock().await {
            Source::Redis(links) => {
                for link in links {
                    let info: String = redis::cmd("INFO").arg("everything").query_async(link).await?;
                    sum = sum.and(of_redis(&info));
                }
            }
            Source::ZooKeeper(words) => {
                for host in &words.hosts {
                    let (srvr, mntr) = (words.ask(host, "srvr").await?, words.ask(host, "mntr").await?);
                    let Some(requests) = received(&srvr) else { return Ok(None) };
                    sum = sum.and(Count { requests, wakeups: fired(&mntr) });
                }
            }
            Source::Postgres(connection) => {
                let row = sqlx::query(POSTGRES).fetch_one(&mut **connection).await?;
                let requests = u64::try_from(row.try_get::<i64, _>(0)?).unwrap_or(0);
                sum = Count { requests, wakeups: None };
            }
            Source::MySql(connection) => {
                let rows: Vec<(String, String)> = sqlx::query_as(MYSQL).fetch_all(&mut **connection).await?;
                let found: HashMap<String, String> = rows.into_iter().collect();
                let value = |name: &str| found.get(name).and_then(|value| value.parse().ok());
                sum = Count { requests: value("Questions").unwrap_or(0), wakeups: value("Com_kill") };
            }
        }
        Ok(Some(sum))
    }
}

/// How often Redis read from a connection, and what was published. The number of commands would count those
/// within scripts, too.
fn of_redis(info: &str) -> Count {
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name));
    let requests = field("total_reads_processed:").and_then(|value| value.trim().parse().ok()).unwrap_or(0);
    let calls = |command: &str| -> u64 {
        let stats = field(&format!("cmdstat_{command}:calls=")).and_then(|rest| rest.split(',').next());
        stats.and_then(|calls| calls.parse().ok()).unwrap_or(0)
    };
    Count { requests, wakeups: Some(calls("publish") + calls("spublish")) }
}

/// The packets that `ZooKeeper` received.
fn received(srvr: &str) -> Option<u64> {
    srvr.lines().find_map(|line| line.strip_prefix("Received:"))?.trim().parse().ok()
}

/// The watches that fired: for nodes that were made, changed or deleted, and for lists of children. Each is
/// counted as the mean of how many an operation fired, and as their sum.
fn fired(mntr: &str) -> Option<u64> {
    let fields = ["node_created", "node_deleted", "node_changed", "node_children"];
    let value = |name: &str| {
        let prefix = format!("zk_sum_{name}_watch_count");
        let line = mntr.lines().find_map(|line| line.strip_prefix(&*prefix))?;
        line.trim().split('.').next()?.parse::<u64>().ok()
    };
    fields.into_iter().map(value).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_subtracted_and_added() {
        let count = |requests, wakeups| Count { requests, wakeups };
        assert_eq!(count(9, Some(4)).since(count(5, Some(1))), count(4, Some(3)));
        // A server that was started anew begins at zero.
        assert_eq!(count(1, None).since(count(5, Some(1))), count(0, None));
        assert_eq!(count(1, Some(1)).and(count(2, Some(2))), count(3, Some(3)));
        assert_eq!(count(1, Some(1)).and(count(2, None)), count(3, None));
    }

    #[test]
    fn what_redis_counts_is_found() {
        let info = "# Stats\r\ntotal_reads_processed:42\r\ncmdstat_publish:calls=3,usec=5\r\ncmdstat_set:calls=9,usec=1\r\n";
        assert_eq!(of_redis(info), Count { requests: 42, wakeups: Some(3) });
        assert_eq!(of_redis(""), Count { requests: 0, wakeups: Some(0) });
    }

    #[test]
    fn the_count_of_zookeeper_is_found_or_missing() {
        assert_eq!(received("Zookeeper version: 3.8.0\nReceived: 42\nSent: 41\n"), Some(42));
        assert_eq!(received("srvr is not executed because it is not in the whitelist.\n"), None);
        let mntr = "zk_sum_node_created_watch_count\t1\nzk_sum_node_deleted_watch_count\t20\n\
                    zk_sum_node_changed_watch_count\t300\nzk_sum_node_children_watch_count\t4000\n";
        assert_eq!(fired(mntr), Some(4321));
        assert_eq!(fired("mntr is not executed because it is not in the whitelist.\n"), None);
    }
}
