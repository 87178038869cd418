//! The example `service`: the same program on several lock servers, which differ in one line of its
//! configuration.

#![cfg(unix)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use crate::programs::program;
use crate::running::Running;

const TICKETS: usize = 60;

const GUIDE: &str = include_str!("../../docs/choosing.md");

/// Writes a configuration: only the address differs from server to server.
fn configuration(folder: &Path, url: &str, needs: &str) -> PathBuf {
    let (stock, file) = (folder.join("stock"), folder.join("service.toml"));
    std::fs::write(&stock, TICKETS.to_string()).expect("a stock");
    let text = format!(
        "listen = \"127.0.0.1:0\"\nstock = \"{}\"\n\n[locks]\nurl = {url:?}\nttl = \"10s\"\nwait = \"20s\"\nrequire = [{needs}]\n",
        stock.display()
    );
    std::fs::write(&file, text).expect("a configuration");
    file
}

/// A copy of the service, and where it sells.
fn copy(file: &Path) -> (Running, String) {
    let copy = Running::start("service", &[file]);
    let line = copy.says("selling at");
    let address = line.split([' ', ',']).nth(2).expect("an address");
    let url = format!("{address}/tickets");
    (copy, url)
}

/// The tickets that one client buys until there are none left.
fn buy_all(url: &str) -> Vec<u32> {
    let mut tickets = Vec::new();
    loop {
        let mut answer =
            ureq::post(url).config().http_status_as_error(false).build().send_empty().expect("an answer");
        let text = answer.body_mut().read_to_string().expect("a text");
        match answer.status().as_u16() {
            200 => tickets.push(text.trim_start_matches("ticket ").trim().parse().expect("a number")),
            410 => return tickets,
            status => panic!("{status}: {text}"),
        }
    }
}

/// Two copies of the service sell every ticket once.
fn sells_each_ticket_once(url: &str, needs: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = configuration(folder.path(), url, needs);
    let copies = [copy(&file), copy(&file)];
    let clients: Vec<_> = (0..6)
        .map(|client| {
            let url = copies[client % copies.len()].1.clone();
            thread::spawn(move || buy_all(&url))
        })
        .collect();
    let mut sold: Vec<_> = clients.into_iter().flat_map(|client| client.join().expect("a client")).collect();
    sold.sort_unstable();
    assert!(sold.into_iter().eq(1..=TICKETS.try_into().expect("a small number")));
    for (copy, _) in copies {
        assert_eq!(copy.terminate().trim(), "closed");
    }
}

/// The service does not start on a server that does not promise what it needs. What it says is what the guide
/// shows.
fn is_refused(url: &str, needs: &str, missing: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = configuration(folder.path(), url, needs);
    let done = Command::new(program("service")).arg(file).output().expect("the service starts");
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(done.stdout.is_empty(), "it takes no requests: {done:?}");
    assert!(said.trim_end().ends_with(&format!("does not promise: {missing}")), "{said}");
    assert!(GUIDE.lines().any(|line| line == said.trim_end()), "not in the guide: {said}");
}

#[test]
fn memory_is_refused_for_many_hosts() {
    is_refused("memory://", r#""across-hosts", "failover-safe""#, "across-hosts");
}

#[cfg(feature = "sqlite")]
#[test]
fn sqlite_is_refused_for_many_hosts() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite://{}", folder.path().join("locks.db").display());
    is_refused(&url, r#""across-hosts", "failover-safe""#, "across-hosts");
}

#[cfg(feature = "sqlite")]
#[test]
fn on_sqlite() {
    let folder = tempfile::tempdir().expect("a folder");
    sells_each_ticket_once(&format!("sqlite://{}", folder.path().join("locks.db").display()), r#""durable""#);
}

/// The same on real servers, with what only they promise.
#[cfg(all(feature = "postgres", feature = "redis", feature = "zk"))]
mod on_a_server {
    use testbed::{Durability, Options, Postgres, Redis, ZooKeeper, if_installed};

    const NEEDS: &str = r#""across-hosts", "durable""#;
    /// What only some of them promise.
    const MORE: &str = r#""across-hosts", "failover-safe""#;

    fn options() -> Options {
        Options::new().durability(Durability::OsCache)
    }

    fn wait<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Runtime::new().expect("a runtime").block_on(future)
    }

    #[test]
    fn postgres() {
        let Some(server) = if_installed(wait(Postgres::start_with(&options()))) else { return };
        super::sells_each_ticket_once(&server.url(), NEEDS);
        super::is_refused(&server.url(), MORE, "failover-safe");
    }

    #[test]
    fn redis() {
        let Some(server) = if_installed(wait(Redis::start_with(&options()))) else { return };
        super::sells_each_ticket_once(&server.url(), NEEDS);
        super::is_refused(&server.url(), MORE, "failover-safe");
    }

    #[test]
    fn zookeeper() {
        let Some(server) = if_installed(wait(ZooKeeper::start_with(&options()))) else { return };
        super::sells_each_ticket_once(&server.url(), NEEDS);
        super::sells_each_ticket_once(&server.url(), MORE);
    }
}
