//! The commands that scripts build upon, on every kind of server.

use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
#[cfg(feature = "zk")]
use testbed::ZooKeeper;
use testbed::{Durability, Options, if_installed};
#[cfg(feature = "mysql")]
use testbed::{MariaDb, Release, if_fetched};
#[cfg(feature = "redis")]
use testbed::{Redis, RedisCluster, RedisSentinel};

use crate::addresses::white_space_is_not_another_server;
use crate::looking::{Fresh, make_nothing};
use crate::support::{Finished, Running, Site, block_on, finish, wait_until};

pub(crate) fn options() -> Options {
    Options::new().durability(Durability::OsCache)
}

/// What a server makes of the verbs beside `run`, with a lock `a` that is held.
struct Expected {
    /// Whether a lock can outlive its lockwell.
    outlives: bool,
    /// What a doctor finds of a server as the tests start it: subjects, and the exit status.
    subjects: &'static [&'static str],
    doctor: i32,
    /// A short lease that the server allows, in seconds.
    shortest: u64,
}

#[cfg(feature = "redis")]
const REDIS: Expected = Expected {
    outlives: true,
    subjects: &["persistence", "eviction", "replication"],
    doctor: 1,
    shortest: 1,
};

impl Expected {
    fn check(&self, at: impl Fn(&[&str]) -> Command) {
        let run = |args: &[&str]| finish(&mut at(args));
        let held = run(&["status"]);
        assert!(held.status == 0 && held.out.contains("a: held, "), "{held:?}");
        run(&["wait", "a", "--for", "200ms"]).complains(75, "is held by job 7");
        assert_eq!(run(&["wait", "b"]).status, 0);
        let taken = run(&["acquire", "--for", "30s", "--no-wait", "b ü/1"]);
        if self.outlives {
            assert_eq!(taken.status, 0, "{taken:?}");
            run(&["run", "--no-wait", "b ü/1", "--", "true"]).complains(75, "is held by");
            assert_eq!(run(&["release", taken.out.trim_end()]).status, 0);
            assert_eq!(run(&["run", "--no-wait", "b ü/1", "--", "true"]).status, 0);
            run(&["release", taken.out.trim_end()]).complains(76, "not held any more");
            // Its time has passed, and nobody else has got it: the same on every server.
            let span = format!("{}s", self.shortest);
            let late = run(&["acquire", "--for", &span, "--no-wait", "late"]);
            // A server that counts in seconds may end it later.
            std::thread::sleep(Duration::from_millis(self.shortest * 1000 + 500 * self.shortest));
            run(&["release", late.out.trim_end()]).complains(76, "not held any more");
            assert_eq!(run(&["run", "--no-wait", "late", "--", "true"]).status, 0);
        } else {
            taken.complains(64, "ends with lockwell");
        }
        let doctor = run(&["doctor", "--json"]);
        let report: serde_json::Value = serde_json::from_str(&doctor.out).expect(&doctor.err);
        let findings = report["findings"].as_array().unwrap();
        for subject in self.subjects.iter().chain(&["connection", "trial", "push", "clock"]) {
            assert!(findings.iter().any(|one| one["subject"] == *subject), "{subject}: {}", doctor.out);
        }
        for one in findings {
            assert!((one["severity"] == "good") == one["remedy"].is_null(), "{one}");
            let of_the_server =
                ["persistence", "read_only", "session"].contains(&one["subject"].as_str().unwrap());
            assert!(of_the_server || one["severity"] == "good", "{one}");
        }
        assert_eq!(doctor.status, self.doctor, "{}", doctor.out);
    }
}

/// The lock `a` with its waiter, which has the same holder at both looks.
fn top_shows_it_first(run: &Finished) {
    assert_eq!(run.status, 0, "{run:?}");
    let report: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    let first = &report["locks"][0];
    assert_eq!((&first["name"], &first["waiters"]), (&"a".into(), &1.into()), "{report}");
    assert_eq!(
        (&first["holders"][0]["label"], &first["hand_overs_per_s_at_least"]),
        (&"job 7".into(), &0.0.into())
    );
    // Between the looks alone, but for rounding.
    assert!(first["longest_wait_ms"].as_u64().is_none_or(|ms| ms >= 250), "{first}");
}

fn at_server(site: &Site, args: &[&str], url: &str) -> Command {
    let mut command = site.lockwell(args);
    command.env("LOCKWELL_URL", url);
    command
}

/// The commands that scripts build upon, on any server.
fn everyday_use(url: &str, expected: &Expected) {
    let site = Site::new();
    std::fs::write(site.path("count"), "0\n").unwrap();
    let at = |args: &[&str]| at_server(&site, args, url);
    let count = "n=$(cat count); sleep 0.01; echo $((n + 1)) > count; echo $LOCKWELL_TOKEN >> tokens";
    let workers: Vec<_> =
        (0..6).map(|_| Running::start(&mut at(&["run", "a", "--", "sh", "-c", count]))).collect();
    for worker in workers {
        assert_eq!(worker.finish().status, 0);
    }
    assert_eq!(site.read("count"), "6");
    let tokens: Vec<u64> = site.read("tokens").lines().map(|line| line.parse().unwrap()).collect();
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");

    let script = "echo > started; while [ ! -e go ]; do sleep 0.02; done";
    let args = ["run", "--label", "job 7", "--ttl", "8s", "a", "--", "sh", "-c", script];
    let holder = Running::start(&mut at(&args));
    site.wait_for_file("started");
    finish(&mut at(&["run", "--no-wait", "a", "--", "true"])).complains(75, "held");
    // Long enough for all nodes of a busy machine to answer.
    finish(&mut at(&["run", "--wait", "1s", "a", "--", "true"])).complains(75, "\"a\" is held by job 7 for ");
    let waiters = || {
        let status = finish(&mut at(&["status", "--json", "a"]));
        let status: serde_json::Value = serde_json::from_str(&status.out).expect(&status.err);
        assert_eq!(status["holders"][0]["label"], "job 7");
        status["waiters"].as_u64().unwrap()
    };
    assert_eq!(waiters(), 0);
    let waiting = Running::start(&mut at(&["run", "a", "--", "true"]));
    wait_until("a waiter", || waiters() == 1);
    top_shows_it_first(&finish(&mut at(&["top", "--once", "--json", "--every", "300ms"])));
    waiting.signal(Signal::TERM);
    assert_eq!(waiting.finish().status, 143);
    assert_eq!(waiters(), 0);
    white_space_is_not_another_server(url);
    expected.check(at);
    // Longer than the ttl: the lease is renewed.
    std::thread::sleep(Duration::from_secs(9));
    assert_eq!(waiters(), 0);
    std::fs::write(site.path("go"), "").unwrap();
    assert_eq!(holder.finish().status, 0);
}

#[test]
#[cfg(feature = "postgres")]
fn deep_everyday_use_of_postgres() {
    block_on(async {
        let Some(server) = crate::servers::postgres().await else { return };
        let relations = "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
                         WHERE n.nspname NOT LIKE 'pg_%' AND n.nspname <> 'information_schema'";
        make_nothing(&server.url(), Fresh::Lacks("the lock tables are missing"), async || {
            server.admin_sql(relations).await.unwrap().trim().to_owned()
        })
        .await;
        everyday_use(
            &server.url(),
            &Expected {
                outlives: true,
                subjects: &["persistence", "replication", "pooler"],
                doctor: 2,
                shortest: 1,
            },
        );
    });
}

#[test]
#[cfg(feature = "mysql")]
fn deep_everyday_use_of_mariadb() {
    block_on(async {
        let Some(server) = if_installed(MariaDb::start_with(&options()).await) else { return };
        everyday_use_of(&server).await;
    });
}

/// It is fetched, and not required.
#[test]
#[cfg(feature = "mysql")]
fn deep_everyday_use_of_mysql() {
    block_on(async {
        let release = Release::named("mysql9");
        let Some(server) = if_fetched(MariaDb::start_with(&options().release(release)).await) else { return };
        everyday_use_of(&server).await;
    });
}

#[cfg(feature = "mysql")]
async fn everyday_use_of(server: &MariaDb) {
    let tables = "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'lockwell'";
    make_nothing(&server.url(), Fresh::Lacks("the lock tables are missing"), async || {
        server.admin_sql(tables).await.unwrap().trim().to_owned()
    })
    .await;
    everyday_use(
        &server.url(),
        &Expected { outlives: true, subjects: &["persistence", "replication"], doctor: 2, shortest: 1 },
    );
}

#[test]
#[cfg(feature = "redis")]
fn everyday_use_of_redis() {
    block_on(async {
        let Some(server) = if_installed(Redis::start_with(&options()).await) else { return };
        make_nothing(&server.url(), Fresh::HasNoLocks, async || keys([&server])).await;
        everyday_use(&server.url(), &REDIS);
    });
}

#[test]
#[cfg(feature = "redis")]
fn everyday_use_of_redlock() {
    block_on(async {
        let mut nodes = Vec::new();
        for _ in 0..3 {
            let Some(node) = if_installed(Redis::start().await) else { return };
            nodes.push(node);
        }
        let addrs: Vec<_> = nodes.iter().map(|node| node.addr().to_string()).collect();
        let url = format!("redlock://{}", addrs.join(","));
        make_nothing(&url, Fresh::HasNoLocks, async || keys(&nodes)).await;
        everyday_use(&url, &Expected { doctor: 0, ..REDIS });
        let once = ["run", "--once", "2026-11-29", "job", "--", "true"];
        finish(&mut at_server(&Site::new(), &once, &url)).complains(64, "does not promise: records");
    });
}

/// The master that the sentinels name.
#[test]
#[cfg(feature = "redis")]
fn everyday_use_behind_sentinels() {
    block_on(async {
        let Some(group) = if_installed(RedisSentinel::start_with(&options()).await) else { return };
        let url = group.url() + "?wait_replicas=1&durability=server";
        make_nothing(&url, Fresh::HasNoLocks, async || keys([group.master()])).await;
        everyday_use(&url, &REDIS);
    });
}

#[test]
#[cfg(feature = "redis")]
fn deep_everyday_use_of_a_cluster() {
    block_on(async {
        let Some(cluster) = if_installed(RedisCluster::start(3, &options()).await) else { return };
        let url = cluster.url() + "?durability=server";
        make_nothing(&url, Fresh::HasNoLocks, async || keys(cluster.nodes())).await;
        everyday_use(&url, &REDIS);
    });
}

/// How many keys these servers have together.
#[cfg(feature = "redis")]
pub(crate) fn keys<'a>(servers: impl IntoIterator<Item = &'a Redis>) -> String {
    let size = |server: &Redis| server.command(&["DBSIZE"]).unwrap();
    let sizes = servers.into_iter().map(size);
    sizes
        .map(|size| size.trim().trim_start_matches(':').parse::<u64>().expect(&size))
        .sum::<u64>()
        .to_string()
}

#[test]
#[cfg(feature = "zk")]
fn deep_everyday_use_of_zookeeper() {
    block_on(async {
        let Some(server) = if_installed(ZooKeeper::start_with(&options()).await) else { return };
        // Those of the server itself are there from its start.
        let count = || {
            let answer = server.four_letter("srvr").unwrap();
            let count = answer.lines().find_map(|line| line.strip_prefix("Node count: "));
            count.expect(&answer).trim().parse::<u64>().unwrap()
        };
        let own = count();
        make_nothing(&server.url(), Fresh::Lacks("create=false forbids"), async || {
            (count() - own).to_string()
        })
        .await;
        everyday_use(
            &server.url(),
            &Expected { outlives: false, subjects: &["session", "replication"], doctor: 0, shortest: 1 },
        );
    });
}

/// A session that breaks off with its process is an error in the log of the server, and lasts until its
/// timeout.
#[test]
#[cfg(feature = "zk")]
fn no_session_of_zookeeper_outlives_its_lockwell() {
    block_on(async {
        let Some(server) = if_installed(ZooKeeper::start_with(&options()).await) else { return };
        let site = Site::new();
        let sessions = || {
            let answer = server.four_letter("mntr").unwrap();
            let count = answer.lines().find_map(|line| line.strip_prefix("zk_global_sessions"));
            count.expect(&answer).trim().parse::<u64>().unwrap()
        };
        for args in [&["run", "a", "--", "true"][..], &["status", "a"], &["doctor", "--look-only"]] {
            let done = finish(&mut at_server(&site, args, &server.url()));
            assert!(done.status < 2, "{}", done.err);
            assert_eq!(sessions(), 0, "{args:?}");
        }
    });
}

#[test]
#[cfg(feature = "etcd")]
fn everyday_use_of_etcd() {
    block_on(async {
        let Some(server) = if_installed(testbed::Etcd::start_with(&options()).await) else { return };
        everyday_use(
            &server.url(),
            &Expected {
                outlives: true,
                subjects: &["version", "replication", "space", "transport"],
                doctor: 0,
                shortest: 2,
            },
        );
    });
}

/// A waiter that is stopped for longer than its session lasts queues again. What it hears first, on its old
/// connection, is that its node was deleted.
#[test]
#[cfg(feature = "zk")]
fn a_waiter_that_was_stopped_queues_again_in_zookeeper() {
    block_on(async {
        let Some(server) = if_installed(ZooKeeper::start_with(&options()).await) else { return };
        let site = Site::new();
        let at = |args: &[&str]| at_server(&site, args, &server.url());
        let script = "echo > started; while [ ! -e go ]; do sleep 0.02; done";
        let holder = Running::start(&mut at(&["run", "--ttl", "4s", "a", "--", "sh", "-c", script]));
        site.wait_for_file("started");
        let waiter = Running::start(&mut at(&["run", "--ttl", "4s", "a", "--", "sh", "-c", "echo > second"]));
        let waiters = || {
            let status = finish(&mut at(&["status", "--json", "a"]));
            let status: serde_json::Value = serde_json::from_str(&status.out).expect(&status.err);
            status["waiters"].as_u64().unwrap()
        };
        wait_until("a waiter", || waiters() == 1);
        waiter.signal(Signal::STOP);
        wait_until("its end at the server", || waiters() == 0);
        waiter.signal(Signal::CONT);
        wait_until("another place", || waiters() == 1);
        std::fs::write(site.path("go"), "").unwrap();
        assert_eq!(holder.finish().status, 0);
        assert_eq!(waiter.finish().status, 0);
        assert!(site.path("second").exists());
    });
}
