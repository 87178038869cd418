//! distributed-lock under the workloads of `compare-bench --peers`: a key of Redis, keys at a majority of
//! several, or an advisory lock of PostgreSQL.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use distributed_lock::{
    DistributedLock, LockError, LockHandle, LockProvider, PostgresLockProvider, RedisLockProvider,
};
use peer_common::{Library, Result, pinned};

/// The pause before a lock of Redis is asked for again: `acquire` answers at once that another has it,
/// whatever time it is given. Long enough for a crowd not to keep the server from its work, short enough not
/// to be what is measured.
const AGAIN: Duration = Duration::from_millis(5);

#[derive(Clone)]
enum Provider {
    Postgres(Arc<PostgresLockProvider>),
    Redis(Arc<RedisLockProvider>),
    /// Of several independent servers.
    Redlock(Arc<RedisLockProvider>),
}

/// A lock of a provider, held.
type Handle<P> = <<P as LockProvider>::Lock as DistributedLock>::Handle;

enum Held {
    Postgres(Handle<PostgresLockProvider>),
    Redis(Handle<RedisLockProvider>),
}

impl Library for Provider {
    type Held = Held;

    async fn connect(urls: &[&str]) -> Result<Self> {
        match urls {
            [url] if url.starts_with("redis://") => {
                Ok(Self::Redis(Arc::new(RedisLockProvider::new(*url).await?)))
            }
            [url] => Ok(Self::Postgres(Arc::new(PostgresLockProvider::new(*url).await?))),
            urls if urls.iter().all(|url| url.starts_with("redis://")) => {
                Ok(Self::Redlock(Arc::new(RedisLockProvider::builder().urls(urls).build().await?)))
            }
            _ => Err("it is measured on one server, or on several of Redis".into()),
        }
    }

    fn version(&self) -> String {
        pinned(include_str!("../Cargo.toml"), "distributed-lock").to_owned()
    }

    fn setup(&self) -> String {
        match self {
            Self::Postgres(_) => {
                "on PostgreSQL: defaults, advisory locks of a session, 10 connections".to_owned()
            }
            Self::Redis(_) => {
                format!("on Redis: defaults, asked again after {AGAIN:?}, since it does not wait")
            }
            // Seen by reading: of those that it has asked, it remembers, and releases, the ones that made the
            // majority.
            Self::Redlock(_) => {
                format!(
                    "Redlock: defaults, asked again after {AGAIN:?}, since it does not wait; what the \
                     slower nodes have set stays there until its lease of 30 s ends"
                )
            }
        }
    }

    fn lacks(&self) -> &'static str {
        match self {
            Self::Postgres(_) => "fencing tokens; leases; more locks than connections",
            Self::Redis(_) | Self::Redlock(_) => "fencing tokens; order",
        }
    }

    async fn acquire(&self, name: &str) -> Result<Held> {
        match self {
            Self::Postgres(provider) => Ok(Held::Postgres(provider.create_lock(name).acquire(None).await?)),
            Self::Redis(provider) | Self::Redlock(provider) => loop {
                match provider.create_lock(name).acquire(None).await {
                    Ok(handle) => return Ok(Held::Redis(handle)),
                    Err(LockError::Timeout(_)) => tokio::time::sleep(AGAIN).await,
                    Err(error) => return Err(error.into()),
                }
            },
        }
    }

    async fn release(&self, held: Held) -> Result<()> {
        match held {
            Held::Postgres(handle) => Ok(handle.release().await?),
            Held::Redis(handle) => Ok(handle.release().await?),
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    peer_common::run::<Provider>().await
}
