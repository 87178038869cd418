//! `run --once`: the table of statuses, and machines that die in the middle, on every server that keeps
//! records. Redlock, which does not, is refused in `everyday.rs`.

use rustix::process::Signal;

use crate::support::{Finished, Running, Site, is_alive, pid_of, wait_until};

/// A job with a name of its own, on a machine of its own.
struct Job {
    name: &'static str,
    site: Site,
    /// Whether its server may forget records, of which `run --once` warns.
    forgets: bool,
}

impl Job {
    fn once<'a>(&'a self, options: &[&'a str], script: &'a str) -> Vec<&'a str> {
        self.of_key("2026-11-29", options, script)
    }

    fn of_key<'a>(&'a self, key: &'a str, options: &[&'a str], script: &'a str) -> Vec<&'a str> {
        [&["run", "--once", key][..], options, &[self.name, "--", "sh", "-c", script]].concat()
    }

    fn finish(&self, options: &[&str], script: &str) -> Finished {
        self.site.finish(&self.once(options, script))
    }

    fn start(&self, options: &[&str], script: &str) -> Running {
        Running::start(&mut self.site.lockwell(&self.once(options, script)))
    }

    /// The number of the next attempt.
    fn next_attempt(&self, options: &[&str]) -> i32 {
        self.finish(options, "exit $((LOCKWELL_ATTEMPT + 100))").status - 100
    }
}

/// A part of the table.
type Walk = fn(&Job);

/// What the server makes of the whole table. One walk does not wait for the other.
fn walk(url: Option<&str>, forgets: bool) {
    let walks: [(&str, Walk); 6] = [
        ("done", a_key_is_done_once_on_all_machines),
        ("failed", failures_are_counted_and_given_up),
        ("killed", who_waits_takes_over_from_one_that_is_killed),
        ("waiting", who_waits_leaves_what_has_failed),
        ("lost", one_that_loses_the_lock_has_not_failed_and_one_that_takes_too_long_has),
        ("asked", one_that_is_asked_to_end_has_not_failed),
    ];
    std::thread::scope(|scope| {
        for (name, walk) in walks {
            scope.spawn(move || {
                let site = url.map_or_else(Site::new, Site::at);
                walk(&Job { name, site, forgets });
            });
        }
    });
}

fn a_key_is_done_once_on_all_machines(job: &Job) {
    let script = "echo $LOCKWELL_ONCE $LOCKWELL_ATTEMPT >> ran";
    for _ in 0..3 {
        let run = job.finish(&[], script);
        assert_eq!(run.status, 0, "{run:?}");
        assert_eq!(run.err.contains("may forget that a key is done"), job.forgets, "{run:?}");
        assert_eq!(job.finish(&["-q"], script).err, "");
    }
    assert_eq!(job.site.read("ran"), "2026-11-29 1");
    assert_eq!(job.site.finish(&job.of_key("2026-11-28", &[], script)).status, 0);
    assert_eq!(job.site.read("ran").lines().count(), 2, "a missed day is another key");
}

fn failures_are_counted_and_given_up(job: &Job) {
    for attempt in 1..=2 {
        assert_eq!(job.next_attempt(&["--attempts", "2"]), attempt);
    }
    for options in [&["--attempts", "2"][..], &["--attempts", "2", "-q", "--exit-code-held", "0"]] {
        job.finish(options, "echo > ran").complains(78, "given up after 2 attempts");
    }
    assert!(!job.site.path("ran").exists());
    assert_eq!(job.finish(&["--attempts", "3"], "true").status, 0);
}

fn who_waits_takes_over_from_one_that_is_killed(job: &Job) {
    let first = job.start(&["--ttl", "2s"], "echo $$ > pid; exec sleep 60");
    let command = pid_of(job.site.wait_for_file("pid").parse().unwrap());
    job.finish(&["--no-wait"], "true").complains(75, "is held by");
    let quiet = job.finish(&["--no-wait", "-q", "--exit-code-held", "7"], "true");
    assert_eq!((quiet.status, quiet.err.as_str()), (7, ""));
    first.signal(Signal::KILL);
    assert_eq!(first.finish().status, -1);
    wait_until("the end of the command", || !is_alive(command));
    assert_eq!(job.next_attempt(&["--wait", "20s"]), 2);
}

fn who_waits_leaves_what_has_failed(job: &Job) {
    let held = job.site.holder(job.name, &[]);
    let start = |_| job.start(&["--wait", "20s", "--attempts", "9"], "echo >> failed; exit 5");
    let runs: Vec<_> = (0..3).map(start).collect();
    wait_until("three that wait", || job.site.waiters(job.name) == 3);
    job.site.end(held);
    let mut statuses: Vec<_> = runs.into_iter().map(|run| run.finish().status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [5, 75, 75]);
    assert_eq!(job.next_attempt(&[]), 2, "who comes later tries again");
}

fn one_that_loses_the_lock_has_not_failed_and_one_that_takes_too_long_has(job: &Job) {
    let run = job.start(&["--ttl", "2s"], "echo > started; exec sleep 60");
    job.site.wait_for_file("started");
    assert_eq!(job.site.finish(&["release", "--force", "--yes", job.name]).status, 0);
    run.finish().complains(76, "lost the lock");
    let state = || {
        let report = job.site.finish(&["jobs", "--json", job.name]);
        let report: serde_json::Value = serde_json::from_str(&report.out).expect(&report.err);
        report["jobs"][0]["state"].as_str().unwrap().to_owned()
    };
    assert_eq!(state(), "died");
    assert_eq!(job.finish(&["--no-wait", "--max-hold", "1s"], "exec sleep 60").status, 76);
    assert_eq!(state(), "failed");
    assert_eq!(job.next_attempt(&["--no-wait"]), 3);
}

fn one_that_is_asked_to_end_has_not_failed(job: &Job) {
    let run = job.start(&[], "trap 'exit 9' TERM; echo > started; while :; do sleep 0.05; done");
    job.site.wait_for_file("started");
    run.signal(Signal::TERM);
    assert_eq!(run.finish().status, 9);
    assert_eq!(job.next_attempt(&[]), 2);
}

#[test]
fn once_on_sqlite() {
    walk(None, false);
}

#[test]
#[cfg(feature = "postgres")]
fn once_on_postgres() {
    crate::support::block_on(async {
        let Some(server) = crate::servers::postgres().await else { return };
        walk(Some(&server.url()), false);
    });
}

#[test]
#[cfg(feature = "mysql")]
fn once_on_mariadb() {
    use testbed::{MariaDb, if_installed};
    crate::support::block_on(async {
        let Some(server) = if_installed(MariaDb::start_with(&crate::everyday::options()).await) else {
            return;
        };
        walk(Some(&server.url()), false);
    });
}

#[test]
#[cfg(feature = "redis")]
fn once_on_redis() {
    use testbed::{Durability, Redis, if_installed};
    crate::support::block_on(async {
        let options = crate::everyday::options().durability(Durability::Fast);
        let Some(server) = if_installed(Redis::start_with(&options).await) else { return };
        walk(Some(&server.url()), true);
    });
}

#[test]
#[cfg(feature = "zk")]
fn once_on_zookeeper() {
    use testbed::{ZooKeeper, if_installed};
    crate::support::block_on(async {
        let Some(server) = if_installed(ZooKeeper::start_with(&crate::everyday::options()).await) else {
            return;
        };
        walk(Some(&server.url()), false);
    });
}

#[test]
#[cfg(feature = "etcd")]
fn once_on_etcd() {
    use testbed::{Etcd, if_installed};
    crate::support::block_on(async {
        let Some(server) = if_installed(Etcd::start().await) else { return };
        walk(Some(&server.url()), false);
    });
}
