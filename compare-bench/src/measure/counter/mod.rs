//! What servers count themselves: the requests that they received, and the notifications that they sent.

pub(crate) mod count;
mod postgres;
mod redis;
mod sql;
mod zookeeper;

use std::future::Future;

use lockwell::backend::ServerUrl;
use tokio::sync::Mutex;

use self::postgres::PostgresCounter;
use self::redis::RedisCounter;
use self::sql::MySqlCounter;
use crate::error::Result;
use crate::measure::counter::count::Count;
use crate::measure::floor::words::Words;

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
    Redis(RedisCounter),
    ZooKeeper(Words),
    Postgres(Box<PostgresCounter>),
    MySql(Box<MySqlCounter>),
}

impl Counter {
    /// Connects to the servers at the address of the raw statements. `None` where nothing is counted, or the
    /// count cannot be read.
    pub(crate) async fn connect(url: &str) -> Result<Option<Self>> {
        let url: &ServerUrl = &url.parse()?;
        let source = match url.scheme() {
            "redis" | "redis+cluster" | "redlock" => Source::Redis(RedisCounter::connect(url).await?),
            "zk" => Source::ZooKeeper(Words::of(url)?),
            "postgres" | "postgresql" => Source::Postgres(Box::new(PostgresCounter::connect(url).await?)),
            "mysql" | "mariadb" => Source::MySql(Box::new(MySqlCounter::connect(url).await?)),
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

    async fn read(&self) -> Result<Option<Count>> {
        match &mut *self.source.lock().await {
            Source::Redis(counter) => counter.read().await.map(Some),
            Source::ZooKeeper(words) => zookeeper::count(words).await,
            Source::Postgres(counter) => counter.read().await.map(Some),
            Source::MySql(counter) => counter.read().await.map(Some),
        }
    }
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
}
