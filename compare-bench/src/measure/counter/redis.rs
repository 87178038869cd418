//! Redis: how often it read from a connection, and what was published.

use lockwell::backend::ServerUrl;
use redis::aio::MultiplexedConnection;

use crate::error::Result;
use crate::measure::counter::count::Count;
use crate::measure::floor::redis::links;

#[derive(Debug)]
pub(crate) struct RedisCounter {
    links: Vec<MultiplexedConnection>,
}

impl RedisCounter {
    pub(super) async fn connect(url: &ServerUrl) -> Result<Self> {
        Ok(Self { links: links(url).await? })
    }

    pub(super) async fn read(&mut self) -> Result<Count> {
        let mut sum = Count { requests: 0, wakeups: Some(0) };
        for link in &mut self.links {
            let info: String = redis::cmd("INFO").arg("everything").query_async(link).await?;
            sum = sum.and(counted(&info));
        }
        Ok(sum)
    }
}

/// The number of commands would count those within scripts, too.
fn counted(info: &str) -> Count {
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name));
    let requests = field("total_reads_processed:").and_then(|value| value.trim().parse().ok()).unwrap_or(0);
    let calls = |command: &str| -> u64 {
        let stats = field(&format!("cmdstat_{command}:calls=")).and_then(|rest| rest.split(',').next());
        stats.and_then(|calls| calls.parse().ok()).unwrap_or(0)
    };
    Count { requests, wakeups: Some(calls("publish") + calls("spublish")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_found() {
        let info = "# Stats\r\ntotal_reads_processed:42\r\ncmdstat_publish:calls=3,usec=5\r\ncmdstat_set:calls=9,usec=1\r\n";
        assert_eq!(counted(info), Count { requests: 42, wakeups: Some(3) });
        assert_eq!(counted(""), Count { requests: 0, wakeups: Some(0) });
    }
}
