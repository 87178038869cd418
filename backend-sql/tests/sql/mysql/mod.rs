//! What is particular to MySQL and MariaDB: each test runs on both programs.

mod blocked;
mod cost;
mod cut_off;
mod hand_over;
mod hostile;
mod names;
mod parked;
mod push;
mod read_only;
mod releases;
mod round_trips;
mod statements;

use std::time::{Duration, Instant};

use lockwell_core::Locks;
use testbed::{Durability, Error, MariaDb, Options, Release, if_fetched, if_installed};
use tokio::sync::OnceCell;

use crate::servers::{Kind, client};

/// What the machine has, and what is fetched.
pub(super) const RELEASES: [&str; 2] = ["mariadb10", "mysql9"];

pub(super) fn options(release: &str) -> Options {
    let folder = std::path::Path::new("/dev/shm");
    let folder = if folder.is_dir() { folder.to_owned() } else { std::env::temp_dir() };
    Options::new().durability(Durability::OsCache).parent(folder).release(Release::named(release))
}

/// Starts a server. `None` where it cannot be had.
pub(super) async fn start(release: &str, options: Options) -> Option<MariaDb> {
    had(release, MariaDb::start_with(&options).await)
}

/// What is fetched is not required.
fn had<T>(release: &str, started: Result<T, Error>) -> Option<T> {
    if Release::named(release).is_fetched() { if_fetched(started) } else { if_installed(started) }
}

/// The servers that most tests share. Each test says which of them cannot be had, not only the first one.
pub(super) async fn servers() -> Vec<&'static MariaDb> {
    static SERVERS: OnceCell<Vec<Result<MariaDb, String>>> = OnceCell::const_new();
    let all = SERVERS.get_or_init(|| async {
        let mut servers = Vec::new();
        for release in RELEASES {
            servers.push(match MariaDb::start_with(&options(release)).await {
                Err(error) if error.is_not_installed() => Err(error.to_string()),
                started => Ok(started.expect("it starts")),
            });
        }
        servers
    });
    let started = |server: &'static Result<MariaDb, String>| {
        server.as_ref().map_err(|why| Error::NotInstalled(why.clone()))
    };
    let all = RELEASES.into_iter().zip(all.await);
    all.filter_map(|(release, server)| had(release, started(server))).collect()
}

pub(super) async fn connect(server: &MariaDb, table: &str) -> Locks {
    client(Kind::MariaDb, &format!("{}?table={table}", server.url())).await
}

/// A number that the server counts.
pub(super) async fn counted(server: &MariaDb, variable: &str) -> u64 {
    let status = server.admin_sql(&format!("SHOW GLOBAL STATUS LIKE '{variable}'")).await.expect("an answer");
    status.split_whitespace().last().and_then(|number| number.parse().ok()).expect("a number")
}

/// Waits until a release could grant locks to so many waiters: their clients have found out that they receive
/// what it tells them.
pub(super) async fn can_be_granted(server: &MariaDb, table: &str, waiters: u64) {
    let end = Instant::now() + Duration::from_secs(30);
    let count = format!("SELECT count(lease) FROM lockwell.{table}_waiters");
    while server.admin_sql(&count).await.expect("an answer").trim() != waiters.to_string() {
        assert!(Instant::now() < end, "never {waiters} waiters with a lease");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
