//! `GET_LOCK` of MySQL and MariaDB under the workloads of `compare-bench --peers`.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::process::ExitCode;

use peer_common::{CONNECTIONS, Library, Place, Pool, Result, one, through};
use sqlx::{Connection, MySqlConnection};

/// How long a lock is waited for at the server, in seconds: nothing here takes so long. MariaDB takes no
/// negative number for ever, as MySQL does.
const PATIENCE: i64 = 60;

/// The longest name that the servers take.
const LONGEST: usize = 64;

#[derive(Clone)]
struct GetLock {
    url: String,
    connections: Pool<MySqlConnection>,
}

struct Held {
    connection: MySqlConnection,
    place: Place,
    name: String,
}

impl Library for GetLock {
    type Held = Held;

    async fn connect(urls: &[&str]) -> Result<Self> {
        Ok(Self { url: one(urls)?.to_owned(), connections: Pool::new(CONNECTIONS) })
    }

    fn version(&self) -> String {
        through(include_str!("../Cargo.toml"), "sqlx")
    }

    fn setup(&self) -> String {
        format!(
            "GET_LOCK and RELEASE_LOCK as prepared statements; a connection for each lock that is held or waited for, \
             at most {CONNECTIONS}, used again without a ping; a lock ends when the server notices the end of its \
             connection"
        )
    }

    fn lacks(&self) -> &'static str {
        "fencing tokens; leases; word of a loss; more locks than connections; poolers; names of more than 64 characters"
    }

    async fn acquire(&self, name: &str) -> Result<Held> {
        let connect = async { Ok(MySqlConnection::connect(&self.url).await?) };
        let (mut connection, place) = self.connections.take(connect).await?;
        let name = short(name);
        let got = sqlx::query_scalar("SELECT GET_LOCK(?, ?)").bind(&name).bind(PATIENCE);
        let got: Option<i64> = got.fetch_one(&mut connection).await?;
        if got == Some(1) {
            Ok(Held { connection, place, name })
        } else {
            Err("the server gave no lock".into())
        }
    }

    async fn release(&self, Held { mut connection, place, name }: Held) -> Result<()> {
        let released = sqlx::query_scalar("SELECT RELEASE_LOCK(?)").bind(&name);
        let released: Option<i64> = released.fetch_one(&mut connection).await?;
        if released != Some(1) {
            return Err("the lock was not held".into());
        }
        self.connections.put(connection, place);
        Ok(())
    }
}

/// The name, or a hash of one that is too long, as an application has to make it.
fn short(name: &str) -> String {
    if name.len() <= LONGEST {
        return name.to_owned();
    }
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

#[tokio::main]
async fn main() -> ExitCode {
    peer_common::run::<GetLock>().await
}
