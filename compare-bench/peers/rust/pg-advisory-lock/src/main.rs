//! Advisory locks of PostgreSQL, those of a session, under the workloads of `compare-bench --peers`.

use std::process::ExitCode;

use peer_common::{CONNECTIONS, Library, Place, Pool, Result, one, through};
use sqlx::postgres::{PgAdvisoryLock, PgAdvisoryLockGuard};
use sqlx::{Connection, PgConnection};

#[derive(Clone)]
struct AdvisoryLock {
    url: String,
    connections: Pool<PgConnection>,
}

struct Held {
    guard: PgAdvisoryLockGuard<PgConnection>,
    place: Place,
}

impl Library for AdvisoryLock {
    type Held = Held;

    async fn connect(urls: &[&str]) -> Result<Self> {
        Ok(Self { url: one(urls)?.to_owned(), connections: Pool::new(CONNECTIONS) })
    }

    fn version(&self) -> String {
        through(include_str!("../Cargo.toml"), "sqlx")
    }

    fn setup(&self) -> String {
        format!(
            "PgAdvisoryLock; a connection for each lock that is held or waited for, at most {CONNECTIONS}, used again \
             without a ping; a lock ends when the server notices the end of its connection"
        )
    }

    fn lacks(&self) -> &'static str {
        "fencing tokens; leases; word of a loss; more locks than connections; poolers; names (a key has 64 bits)"
    }

    async fn acquire(&self, name: &str) -> Result<Held> {
        let connect = async { Ok(PgConnection::connect(&self.url).await?) };
        let (connection, place) = self.connections.take(connect).await?;
        Ok(Held { guard: PgAdvisoryLock::new(name).acquire(connection).await?, place })
    }

    async fn release(&self, Held { guard, place }: Held) -> Result<()> {
        self.connections.put(guard.release_now().await?, place);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    peer_common::run::<AdvisoryLock>().await
}
