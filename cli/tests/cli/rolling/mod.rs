//! A rolling deployment: the command of the last release and the present one on the same servers exclude each
//! other, whoever holds and whoever waits.

mod earlier;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use testbed::{Durability, Options};
#[cfg(feature = "redis")]
use testbed::{Redis, RedisSentinel};

use crate::support::{Running, Site, block_on, finish, wait_until};

/// Reads a number from a file, thinks, and writes the next number back. Readers see no change while they
/// read.
const WRITE: &str = "n=$(cat count); sleep 0.01; echo $((n + 1)) > count";
const READ: &str = "n=$(cat count); sleep 0.01; test \"$n\" = \"$(cat count)\" || echo changed >> torn";

/// How often each of the processes writes.
const TIMES: usize = 8;

/// When a waiter has the lock at the latest after its holder has released it. It is the time after which a
/// waiter that shows no heartbeat is passed over, and something for a busy machine.
const SOON: Duration = Duration::from_secs(8);

/// How long a holder that died keeps others out.
const TTL: Duration = Duration::from_secs(2);

/// The command as it is now.
const PRESENT: &str = env!("CARGO_BIN_EXE_lockwell");

/// The two versions of the command.
struct Versions<'a> {
    both: [&'a Path; 2],
    url: &'a str,
}

impl Versions<'_> {
    /// A call of a version, in the folder of the test.
    fn call(&self, version: usize, site: &Site, args: &[&str]) -> Command {
        let mut command = Command::new(self.both[version]);
        command.args(args).current_dir(site.path("")).env("LOCKWELL_URL", self.url).env_remove("RUST_LOG");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Processes of both versions write and read under one name. No update is lost, nobody reads what is
    /// being written, and everybody gets there.
    fn exclude_each_other(&self) {
        let site = Site::new();
        std::fs::write(site.path("count"), "0\n").unwrap();
        let mut workers = Vec::new();
        for version in [0, 1, 0, 1] {
            for (flag, work) in [("", WRITE), ("--read", READ)] {
                let times: Vec<_> = (0..TIMES).map(|time| time.to_string()).collect();
                let script = format!(
                    "for i in {}; do \"$LOCKWELL\" run --wait 15s {flag} counter -- sh -c '{work}' || exit; done",
                    times.join(" "),
                );
                let mut worker = Command::new("sh");
                worker.args(["-c", &script]).current_dir(site.path("")).env("LOCKWELL_URL", self.url);
                worker.env("LOCKWELL", self.both[version]).stdin(Stdio::null()).stderr(Stdio::piped());
                workers.push((version, Running::start(&mut worker)));
            }
        }
        for (version, worker) in workers {
            // Some seconds for each turn that it waited for.
            let end = worker.finish_within(Duration::from_mins(2));
            assert_eq!(end.status, 0, "version {version}: {}", end.err);
        }
        assert_eq!(site.read("count"), (4 * TIMES).to_string(), "lost updates");
        assert_eq!(site.read("torn"), "", "a reader saw a writer");
    }

    /// A waiter of one version gets the lock soon after a holder of the other has released it, and with the
    /// end of its lease if it died.
    fn wait_for_each_other(&self) {
        for (holder, waiter) in [(0, 1), (1, 0)] {
            for dies in [false, true] {
                let site = Site::new();
                let hold = "echo > held; while [ ! -e go ]; do sleep 0.02; done";
                let ttl = format!("{}s", TTL.as_secs());
                let args = ["run", "--ttl", &ttl, "a", "--", "sh", "-c", hold];
                let held = Running::start(&mut self.call(holder, &site, &args));
                site.wait_for_file("held");
                let mut refused = self.call(waiter, &site, &["run", "--no-wait", "a", "--", "true"]);
                finish(&mut refused).complains(75, "held");
                let args = ["run", "--wait", "1m", "a", "--", "sh", "-c", "echo > came"];
                let waiting = Running::start(&mut self.call(waiter, &site, &args));
                for version in [holder, waiter] {
                    wait_until("a waiter", || {
                        let status = finish(&mut self.call(version, &site, &["status", "--json", "a"]));
                        let status: serde_json::Value = serde_json::from_str(&status.out).expect(&status.err);
                        status["waiters"] == 1
                    });
                }
                let begun = Instant::now();
                if dies {
                    held.signal(rustix::process::Signal::KILL);
                }
                std::fs::write(site.path("go"), "").unwrap();
                site.wait_for_file("came");
                let took = begun.elapsed();
                println!(
                    "version {waiter} after version {holder}, which {}: {took:?}",
                    ["released", "died"][usize::from(dies)]
                );
                assert!(took < if dies { TTL + SOON } else { SOON }, "{took:?}");
                assert_eq!(waiting.finish().status, 0);
            }
        }
    }
}

/// Both versions on these servers.
fn roll(earlier: &Path, url: &str) {
    let versions = Versions { both: [earlier, Path::new(PRESENT)], url };
    versions.exclude_each_other();
    versions.wait_for_each_other();
}

/// The earlier program, where this server can be started.
fn earlier_on(found: Result<(), testbed::Error>) -> Option<&'static Path> {
    let earlier = earlier::program()?;
    testbed::is_installed(found).then_some(earlier)
}

/// The earlier version makes the tables, or the present one does.
#[cfg(any(feature = "postgres", feature = "mysql"))]
fn roll_tables(earlier: &Path, server: &str) {
    for (first, table) in [(earlier, "old"), (Path::new(PRESENT), "new")] {
        let url = format!("{server}?table={table}");
        let made = Command::new(first).args(["run", "a", "--", "true"]).env("LOCKWELL_URL", &url).status();
        assert!(made.unwrap().success());
        roll(earlier, &url);
    }
}

#[cfg(feature = "postgres")]
#[test]
fn deep_postgres() {
    if let Some(earlier) = earlier_on(testbed::Postgres::installed()) {
        block_on(async {
            let options = Options::new().durability(Durability::OsCache);
            let server = testbed::Postgres::start_with(&options).await.unwrap();
            roll_tables(earlier, &server.url());
        });
    }
}

#[cfg(feature = "mysql")]
#[test]
fn deep_mariadb() {
    if let Some(earlier) = earlier_on(testbed::MariaDb::installed()) {
        block_on(async {
            let options = Options::new().durability(Durability::OsCache);
            let server = testbed::MariaDb::start_with(&options).await.unwrap();
            roll_tables(earlier, &server.url());
        });
    }
}

#[cfg(feature = "redis")]
#[test]
fn deep_one_server() {
    if let Some(earlier) = earlier_on(Redis::installed()) {
        block_on(async {
            let server = Redis::start_with(&Options::new().durability(Durability::OsCache)).await.unwrap();
            roll(earlier, &server.url());
        });
    }
}

#[cfg(feature = "redis")]
#[test]
fn deep_redlock() {
    if let Some(earlier) = earlier_on(Redis::installed()) {
        block_on(async {
            let mut nodes = Vec::new();
            for _ in 0..3 {
                // One that does not write every change to the disk has no vote for a while.
                nodes.push(Redis::start().await.unwrap());
            }
            let addresses: Vec<_> = nodes.iter().map(|node| node.addr().to_string()).collect();
            roll(earlier, &format!("redlock://{}", addresses.join(",")));
        });
    }
}

#[cfg(feature = "redis")]
#[test]
fn deep_sentinel() {
    if let Some(earlier) = earlier_on(Redis::installed()) {
        block_on(async {
            let options = Options::new().durability(Durability::OsCache);
            let group = RedisSentinel::start_with(&options).await.unwrap();
            roll(earlier, &(group.url() + "?durability=server"));
        });
    }
}
