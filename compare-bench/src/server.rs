//! Starting the servers that are compared.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use tempfile::TempDir;
use testbed::Proxy;

use crate::error::{Error, Result};
use crate::machine::file_system;
use crate::target::Kind;

/// How many servers Redlock is measured on: the number that its authors recommend.
const NODES: usize = 5;

/// How the servers that we start are to be run: all alike, so that like is compared with like.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// Where the data is.
    pub(crate) folder: PathBuf,
    pub(crate) durability: Durability,
    /// How long everything takes on its way to a server, and on its way back.
    pub(crate) delay: Duration,
}

/// What a commit waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Durability {
    /// The disk. For Redis, an append-only file that is synced at each write.
    #[default]
    Disk,
    /// The operating system. A crash of the server loses nothing.
    Os,
    /// Nothing. For Redis, no file at all, as many run it.
    None,
}

impl From<Durability> for testbed::Durability {
    fn from(durability: Durability) -> Self {
        match durability {
            Durability::Disk => Self::Disk,
            Durability::Os => Self::OsCache,
            Durability::None => Self::Fast,
        }
    }
}

/// What was started. Dropping it ends the servers and removes their data.
#[derive(Debug, Default)]
pub(crate) struct Running {
    folder: Option<TempDir>,
    postgres: Option<testbed::Postgres>,
    mariadb: Option<testbed::MariaDb>,
    redis: Vec<testbed::Redis>,
    lines: Vec<Proxy>,
}

impl Site {
    /// Starts a backend, and returns its address.
    pub(crate) async fn start(&self, kind: Kind) -> Result<(String, Running)> {
        let options = testbed::Options::new().parent(&self.folder).durability(self.durability.into());
        let mut running = Running::default();
        let url = match kind {
            Kind::Memory => "memory://".to_owned(),
            Kind::Sqlite => {
                let folder = tempfile::Builder::new().prefix("lockwell-compare-").tempdir_in(&self.folder)?;
                let file = folder.path().join("locks.db");
                running.folder = Some(folder);
                format!("sqlite://{}", file.display())
            }
            Kind::Postgres => {
                let server = testbed::Postgres::start_with(&options).await.map_err(failed)?;
                let addr = running.line(server.addr(), self.delay).await?;
                running.postgres.insert(server).url_via(addr)
            }
            Kind::Mariadb => {
                let server = testbed::MariaDb::start_with(&options).await.map_err(failed)?;
                let addr = running.line(server.addr(), self.delay).await?;
                running.mariadb.insert(server).url_via(addr)
            }
            Kind::Redis => format!("redis://{}", running.redis(&options, self.delay).await?),
            Kind::Redlock => {
                let mut nodes = Vec::new();
                for _ in 0..NODES {
                    nodes.push(running.redis(&options, self.delay).await?);
                }
                format!("redlock://{}{}", nodes.join(","), self.probation().await)
            }
        };
        Ok((url, running))
    }

    /// A node of Redlock that may have forgotten its locks has no vote for the length of the longest lease. Returns the
    /// options that make it short, when it is over.
    async fn probation(&self) -> &'static str {
        if self.durability == Durability::Disk {
            return "";
        }
        tokio::time::sleep(Duration::from_secs(7)).await;
        "?ttl=5s&longest_ttl=5s"
    }

    /// Where the data of such a backend is.
    pub(crate) fn storage(&self, kind: Kind) -> String {
        let storage = match (kind, self.durability) {
            (Kind::Memory, _) | (Kind::Redis | Kind::Redlock, Durability::None) => "memory".to_owned(),
            _ => file_system(&self.folder),
        };
        if self.delay.is_zero() || matches!(kind, Kind::Memory | Kind::Sqlite) {
            return storage;
        }
        format!("{storage}, {} away", humantime::format_duration(self.delay))
    }
}

impl Running {
    async fn redis(&mut self, options: &testbed::Options, delay: Duration) -> Result<String> {
        let server = testbed::Redis::start_with(options).await.map_err(failed)?;
        let addr = self.line(server.addr(), delay).await?;
        self.redis.push(server);
        Ok(addr.to_string())
    }

    /// The way to a server: a long line, if it is to be one.
    async fn line(&mut self, server: SocketAddr, delay: Duration) -> Result<SocketAddr> {
        if delay.is_zero() {
            return Ok(server);
        }
        let proxy = Proxy::start(server).await.map_err(failed)?;
        proxy.delay(delay);
        let addr = proxy.addr();
        self.lines.push(proxy);
        Ok(addr)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "as map_err wants it")]
fn failed(error: testbed::Error) -> Error {
    Error::failed(error.to_string())
}
