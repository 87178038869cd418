//! What only a real server shows.

use std::process::Command;
use std::time::Duration;
#[cfg(feature = "postgres")]
use std::time::Instant;

use rustix::process::Signal;
#[cfg(feature = "mysql")]
use testbed::MariaDb;
#[cfg(feature = "redis")]
use testbed::Redis;
#[cfg(feature = "zk")]
use testbed::ZooKeeper;
use testbed::{Durability, Options, is_installed};
#[cfg(feature = "postgres")]
use testbed::{Postgres, Proxy};

#[cfg(feature = "postgres")]
use crate::support::{Finished, lockwell};
use crate::support::{Running, Site, block_on, finish, wait_until};

#[cfg(feature = "postgres")]
pub(crate) async fn postgres() -> Option<Postgres> {
    if !is_installed(Postgres::installed()) {
        return None;
    }
    Some(Postgres::start_with(&Options::new().durability(Durability::OsCache)).await.unwrap())
}

/// What a server makes of the verbs beside `run`, with a lock `a` that is held.
struct Expected {
    /// Whether a lock can outlive its lockwell.
    outlives: bool,
    /// What a doctor finds of a server as the tests start it: subjects, and the exit status.
    subjects: &'static [&'static str],
    doctor: i32,
}

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
            assert_eq!(run(&["run", "--no-wait", "--at-least", "100ms", "b ü/1", "--", "true"]).status, 0);
            run(&["release", taken.out.trim_end()]).complains(76, "held no longer");
        } else {
            taken.complains(64, "ends with lockwell");
            run(&["run", "--at-least", "1s", "b", "--", "true"]).complains(64, "--at-least");
        }
        let doctor = run(&["doctor", "--json"]);
        let report: serde_json::Value = serde_json::from_str(&doctor.out).expect(&doctor.err);
        let findings = report["findings"].as_array().unwrap();
        for subject in self.subjects.iter().chain(&["connection", "trial", "push", "clock"]) {
            assert!(findings.iter().any(|one| one["subject"] == *subject), "{subject}: {}", doctor.out);
        }
        for one in findings {
            assert!((one["severity"] == "good") == one["remedy"].is_null(), "{one}");
            let of_the_server = ["persistence", "session"].contains(&one["subject"].as_str().unwrap());
            assert!(of_the_server || one["severity"] == "good", "{one}");
        }
        assert_eq!(doctor.status, self.doctor, "{}", doctor.out);
    }
}

/// The commands that scripts build upon, on any server.
fn everyday_use(url: &str, expected: &Expected) {
    let site = Site::new();
    std::fs::write(site.path("count"), "0\n").unwrap();
    let at = |args: &[&str]| {
        let mut command = site.lockwell(args);
        command.env("LOCKWELL_URL", url);
        command
    };
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
    let args = ["run", "--label", "job 7", "--ttl", "3s", "a", "--", "sh", "-c", script];
    let holder = Running::start(&mut at(&args));
    site.wait_for_file("started");
    finish(&mut at(&["run", "--no-wait", "a", "--", "true"])).complains(75, "held");
    finish(&mut at(&["run", "--wait", "300ms", "a", "--", "true"]))
        .complains(75, "\"a\" is held by job 7 for ");
    let waiters = || {
        let status = finish(&mut at(&["status", "--json", "a"]));
        let status: serde_json::Value = serde_json::from_str(&status.out).expect(&status.err);
        assert_eq!(status["holders"][0]["label"], "job 7");
        status["waiters"].as_u64().unwrap()
    };
    assert_eq!(waiters(), 0);
    let waiting = Running::start(&mut at(&["run", "a", "--", "true"]));
    wait_until("a waiter", || waiters() == 1);
    waiting.signal(Signal::TERM);
    assert_eq!(waiting.finish().status, 143);
    assert_eq!(waiters(), 0);
    expected.check(at);
    // Longer than the ttl: the lease is renewed.
    std::thread::sleep(Duration::from_millis(3500));
    assert_eq!(waiters(), 0);
    std::fs::write(site.path("go"), "").unwrap();
    assert_eq!(holder.finish().status, 0);
}

#[test]
#[cfg(feature = "postgres")]
fn everyday_use_of_postgres() {
    block_on(async {
        let Some(server) = postgres().await else { return };
        everyday_use(
            &server.url(),
            &Expected { outlives: true, subjects: &["persistence", "replication", "pooler"], doctor: 2 },
        );
    });
}

#[test]
#[cfg(feature = "mysql")]
fn everyday_use_of_mariadb() {
    block_on(async {
        if !is_installed(MariaDb::installed()) {
            return;
        }
        let server = MariaDb::start_with(&Options::new().durability(Durability::OsCache)).await.unwrap();
        everyday_use(
            &server.url(),
            &Expected { outlives: true, subjects: &["persistence", "replication"], doctor: 2 },
        );
    });
}

#[test]
#[cfg(feature = "redis")]
fn everyday_use_of_redis() {
    block_on(async {
        if !is_installed(Redis::installed()) {
            return;
        }
        let server = Redis::start_with(&Options::new().durability(Durability::OsCache)).await.unwrap();
        everyday_use(
            &server.url(),
            &Expected { outlives: true, subjects: &["persistence", "eviction", "replication"], doctor: 1 },
        );
    });
}

#[test]
#[cfg(feature = "redis")]
fn everyday_use_of_redlock() {
    block_on(async {
        if !is_installed(Redis::installed()) {
            return;
        }
        let mut nodes = Vec::new();
        for _ in 0..3 {
            nodes.push(Redis::start().await.unwrap());
        }
        let addrs: Vec<_> = nodes.iter().map(|node| node.addr().to_string()).collect();
        everyday_use(
            &format!("redlock://{}", addrs.join(",")),
            &Expected { outlives: true, subjects: &["persistence", "eviction", "replication"], doctor: 0 },
        );
    });
}

#[test]
#[cfg(feature = "zk")]
fn everyday_use_of_zookeeper() {
    block_on(async {
        if !is_installed(ZooKeeper::installed()) {
            return;
        }
        let server = ZooKeeper::start_with(&Options::new().durability(Durability::OsCache)).await.unwrap();
        everyday_use(
            &server.url(),
            &Expected { outlives: false, subjects: &["session", "replication"], doctor: 0 },
        );
    });
}

/// A waiter that is stopped for longer than its session lasts queues again. What it hears first, on its old connection, is that
/// its node was deleted.
#[test]
#[cfg(feature = "zk")]
fn a_waiter_that_was_stopped_queues_again_in_zookeeper() {
    block_on(async {
        if !is_installed(ZooKeeper::installed()) {
            return;
        }
        let server = ZooKeeper::start_with(&Options::new().durability(Durability::OsCache)).await.unwrap();
        let site = Site::new();
        let at = |args: &[&str]| {
            let mut command = site.lockwell(args);
            command.env("LOCKWELL_URL", server.url());
            command
        };
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

#[cfg(feature = "postgres")]
fn run(url: &str, args: &[&str]) -> Finished {
    finish(lockwell(&[&["run"], args].concat()).env("LOCKWELL_URL", url))
}

#[test]
#[cfg(feature = "postgres")]
fn a_refusal_is_77() {
    block_on(async {
        let Some(server) = postgres().await else { return };
        assert_eq!(run(&server.url(), &["a", "--", "true"]).status, 0);

        // A role without rights on the tables.
        server.admin_sql("CREATE ROLE weak LOGIN; CREATE ROLE ann LOGIN PASSWORD 'right'").await.unwrap();
        let url = |user: &str| server.url().replace("postgres@", &format!("{user}@"));
        run(&url("weak"), &["a", "--", "true"]).complains(77, "permission denied");

        // A role that needs a password.
        let rules = server.folder().join("data/pg_hba.conf");
        let old = std::fs::read_to_string(&rules).unwrap();
        std::fs::write(&rules, format!("host all ann 127.0.0.1/32 scram-sha-256\n{old}")).unwrap();
        server
            .admin_sql("SELECT pg_reload_conf(); GRANT ALL ON ALL TABLES IN SCHEMA public TO ann")
            .await
            .unwrap();
        let wrong =
            |password: &str| run(&url(&format!("ann:{password}")), &["--wait", "1s", "a", "--", "true"]);
        // The server takes a moment to read the new rules.
        let begun = Instant::now();
        let refused = loop {
            let run = wrong("hunter2");
            if run.status != 0 || begun.elapsed() > Duration::from_secs(10) {
                break run;
            }
        };
        refused.complains(77, "password");
        assert!(!refused.err.contains("hunter2"), "{refused:?}");
        assert_eq!(wrong("right").status, 0);
    });
}

#[test]
#[cfg(feature = "postgres")]
fn a_server_that_falls_silent_while_waiting_is_69() {
    block_on(async {
        let Some(server) = postgres().await else { return };
        let proxy = Proxy::start(server.addr()).await.unwrap();
        let locks = lockwell::connect(server.url()).await.unwrap();
        let guard = locks.lock("a").ttl(Duration::from_mins(1)).await.unwrap();
        let url = server.url_via(proxy.addr());
        let args = ["run", "--wait", "3s", "a", "--", "true"];
        let mut waiting = Running::start(lockwell(&args).env("LOCKWELL_URL", &url));
        while locks.inspect("a").await.unwrap().waiters == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        server.pause().unwrap();
        while waiting.is_running() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        server.resume().unwrap();
        waiting.finish().complains(69, "unreachable");
        guard.release().await.unwrap();
    });
}

#[test]
#[cfg(feature = "postgres")]
fn a_command_is_ended_when_the_server_is_gone_for_the_ttl() {
    block_on(async {
        let Some(server) = postgres().await else { return };
        let folder = tempfile::tempdir().unwrap();
        let started = folder.path().join("started");
        let script = "touch \"$0\"; exec sleep 60";
        let args = ["run", "--ttl", "1s", "a", "--", "sh", "-c", script, started.to_str().unwrap()];
        let running = Running::start(lockwell(&args).env("LOCKWELL_URL", server.url()));
        wait_until("the start", || started.exists());
        server.kill().unwrap();
        let begun = Instant::now();
        running.finish().complains(76, "its lease ran out");
        assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    });
}
