//! What `lockwell doctor` finds at servers that are not set up well, and the warnings that the other verbs
//! print about them.

#[cfg(feature = "redis")]
use std::io::{Read as _, Write as _};
#[cfg(feature = "redis")]
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use serde_json::Value;
#[cfg(feature = "mysql")]
use testbed::MariaDb;
#[cfg(feature = "redis")]
use testbed::Redis;
use testbed::{Durability, Options, if_installed, is_installed};
#[cfg(feature = "postgres")]
use testbed::{PgBouncer, Postgres};

use crate::support::{Finished, block_on, finish, lockwell};

fn at(url: &str, args: &[&str]) -> Finished {
    finish(lockwell(args).env("LOCKWELL_URL", url))
}

/// What doctor finds at a server.
struct Found {
    status: i32,
    findings: Vec<Value>,
}

impl Found {
    fn at(url: &str) -> Self {
        let doctor = at(url, &["doctor", "--json"]);
        let report: Value = serde_json::from_str(&doctor.out).expect(&doctor.err);
        assert_eq!(doctor.err, "", "its findings say everything");
        assert!(!doctor.out.contains("(lockwell doctor"), "it does not refer to itself: {}", doctor.out);
        Self { status: doctor.status, findings: report["findings"].as_array().unwrap().clone() }
    }

    /// Checks that these subjects have another severity than `good`, and no others.
    #[track_caller]
    fn is(&self, status: i32, not_good: &[(&str, &str)]) {
        let wrong = self.findings.iter().filter(|one| one["severity"] != "good");
        let wrong = wrong.map(|one| (one["subject"].as_str().unwrap(), one["severity"].as_str().unwrap()));
        // How fast a waiter was depends on the load of this machine.
        let (push, wrong): (Vec<_>, Vec<_>) = wrong.partition(|one| *one == ("push", "doubtful"));
        assert_eq!(wrong, not_good, "{:#?}", self.findings);
        let expected = if push.is_empty() { status } else { status.max(1) };
        assert_eq!(self.status, expected, "{:#?}", self.findings);
    }

    /// Checks what a finding says, and what it says is to be done.
    #[track_caller]
    fn says(&self, subject: &str, message: &str, remedy: &str) {
        let one = self.findings.iter().find(|one| one["subject"] == subject).expect(subject);
        assert!(one["message"].as_str().unwrap().contains(message), "{one}");
        // A good one has none.
        assert!(one["remedy"].as_str().unwrap_or_default().contains(remedy), "{one}");
    }
}

#[test]
#[cfg(feature = "postgres")]
fn a_postgresql_that_is_not_set_up_well() {
    block_on(async {
        if !is_installed(Postgres::installed()) || !is_installed(PgBouncer::installed()) {
            return;
        }
        let server = Postgres::start().await.unwrap();
        let empty = Found::at(&server.url());
        empty.is(2, &[("connection", "bad")]);
        empty.says("connection", "run what `lockwell schema` prints", "");
        assert_eq!(at(&server.url(), &["run", "a", "--", "true"]).status, 0);
        Found::at(&server.url()).is(0, &[]);

        let pooler = PgBouncer::start_with(&server, &Options::new()).await.unwrap();
        let pooled = Found::at(&pooler.url());
        pooled.is(1, &[("pooler", "doubtful")]);
        pooled.says("pooler", "sessions that are not ours alone", "connect past the pooler");

        let rights =
            "CREATE ROLE weak LOGIN; GRANT SELECT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO weak";
        server.admin_sql(rights).await.unwrap();
        let weak = Found::at(&server.url().replace("postgres@", "weak@"));
        weak.is(2, &[("rights", "bad")]);
        weak.says("rights", "permission denied for table lockwell_locks", "give the user the rights");
        // Nothing is tried, so nothing is missing.
        let weak = server.url().replace("postgres@", "weak@");
        assert_eq!(at(&weak, &["doctor", "--look-only"]).status, 0);
        server.admin_sql("GRANT INSERT ON ALL TABLES IN SCHEMA public TO weak").await.unwrap();
        Found::at(&weak).is(0, &[]);
        let nobody = Found::at(&server.url().replace("postgres@", "nobody@"));
        nobody.is(2, &[("rights", "bad")]);
        nobody.says("rights", "nobody", "check user and password");

        server.admin_sql("ALTER SYSTEM SET fsync = off; SELECT pg_reload_conf()").await.unwrap();
        crate::support::wait_until("the server has read it", || Found::at(&server.url()).status == 2);
        let risky = Found::at(&server.url());
        risky.is(2, &[("persistence", "bad")]);
        risky.says("persistence", "fsync is off: a crash can lose grants", "set fsync to on");
    });
}

#[test]
#[cfg(feature = "mysql")]
fn a_mariadb_that_is_not_set_up_well() {
    block_on(async {
        let options = Options::new().setting("log-bin", "binlog").setting("sync-binlog", "1");
        let Some(server) = if_installed(MariaDb::start_with(&options).await) else { return };
        assert_eq!(at(&server.url(), &["run", "a", "--", "true"]).status, 0);
        Found::at(&server.url()).is(1, &[("read_only", "doubtful")]);
        let user = "CREATE USER app@'%'; GRANT ALL ON lockwell.* TO app@'%'";
        server.admin_sql(user).await.unwrap();
        let url = server.url().replace("root@", "app@");
        let good = Found::at(&url);
        good.is(0, &[]);
        good.says("binlog", "on the disk before a grant is answered", "");

        server.admin_sql("SET GLOBAL sync_binlog = 0").await.unwrap();
        let unsynced = Found::at(&url);
        unsynced.is(1, &[("binlog", "doubtful")]);
        unsynced.says("binlog", "sync_binlog is 0", "set sync_binlog to 1");

        let user = "CREATE USER weak@'%'; GRANT SELECT, UPDATE, DELETE ON lockwell.* TO weak@'%'; \
                    SET GLOBAL innodb_flush_log_at_trx_commit = 2, sync_binlog = 1";
        server.admin_sql(user).await.unwrap();
        let weak = Found::at(&server.url().replace("root@", "weak@"));
        weak.is(2, &[("persistence", "bad"), ("rights", "bad")]);
        weak.says(
            "persistence",
            "innodb_flush_log_at_trx_commit is 2",
            "set innodb_flush_log_at_trx_commit to 1",
        );
        weak.says("rights", "INSERT command denied", "give the user the rights");
    });
}

/// A server without an append-only file that may evict locks.
#[cfg(feature = "redis")]
async fn careless() -> Option<Redis> {
    let options = Options::new().durability(Durability::Fast).setting("maxmemory", "100mb");
    if_installed(Redis::start_with(&options.setting("maxmemory-policy", "allkeys-lru")).await)
}

#[test]
#[cfg(feature = "redis")]
fn a_redis_that_is_not_set_up_well() {
    block_on(async {
        let Some(server) = careless().await else { return };
        let found = Found::at(&server.url());
        found.is(2, &[("eviction", "bad"), ("persistence", "bad")]);
        found.says(
            "eviction",
            "its maxmemory-policy lets it evict locks that are held, and the records of locks",
            "set it to noeviction",
        );
        found.says("persistence", "no append-only file", "set appendonly and appendfsync to yes and always");
        for setting in [["maxmemory-policy", "noeviction"], ["appendonly", "yes"]] {
            server.command(&["CONFIG", "SET", setting[0], setting[1]]).unwrap();
        }
        let found = Found::at(&server.url());
        found.is(1, &[("persistence", "doubtful")]);
        found.says("persistence", "answers before its change is on the disk", "set appendfsync to always");
        server.command(&["CONFIG", "SET", "appendfsync", "always"]).unwrap();
        Found::at(&server.url()).is(0, &[]);
        // A user who may not do what locks need is refused on connecting.
        server.command(&["ACL", "SETUSER", "ann", "on", ">secret", "~*", "&*", "+@all", "-hset"]).unwrap();
        let url = server.url().replace("://", "://ann:secret@");
        let found = Found::at(&url);
        found.is(2, &[("rights", "bad")]);
        found.says("rights", "HSET", "give the user the rights");
    });
}

/// A proxy before a Redis that carries no subscriptions, as some do not.
#[cfg(feature = "redis")]
fn without_subscriptions(server: SocketAddr) -> SocketAddr {
    const SUBSCRIBE: &[u8] = b"$9\r\nSUBSCRIBE\r\n";
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    // Its threads end with the connections, or with the tests.
    std::thread::spawn(move || {
        while let Ok((mut client, _)) = listener.accept() {
            let mut upstream = TcpStream::connect(server).unwrap();
            let (mut answers, mut back) = (upstream.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut answers, &mut back));
            std::thread::spawn(move || {
                let mut buffer = [0; 8192];
                while let Ok(count @ 1..) = client.read(&mut buffer) {
                    let sent = &mut buffer[..count];
                    if let Some(at) = sent.windows(SUBSCRIBE.len()).position(|one| one == SUBSCRIBE) {
                        sent[at..at + SUBSCRIBE.len()].copy_from_slice(b"$9\r\nNOT-KNOWN\r\n");
                    }
                    if upstream.write_all(sent).is_err() {
                        break;
                    }
                }
                // The server need not wait for more, nor the other thread.
                upstream.shutdown(Shutdown::Both).unwrap_or_default();
            });
        }
    });
    addr
}

#[test]
#[cfg(feature = "redis")]
fn notifications_that_do_not_arrive() {
    block_on(async {
        let Some(server) = if_installed(Redis::start().await) else { return };
        let url = format!("redis://{}", without_subscriptions(server.addr()));
        // A waiter that is not notified asks every now and then. On a busy machine that may be just after the
        // release.
        let mut found = Found::at(&url);
        crate::support::wait_until("a waiter that hears nothing", || {
            let unheard = found.status == 1;
            if !unheard {
                found = Found::at(&url);
            }
            unheard
        });
        found.is(0, &[]);
        found.says("push", "the waiter had the lock", "notifications do not arrive");
    });
}

/// Without `RUST_LOG`, what makes a server unsafe is printed, in a line for each reason.
#[test]
#[cfg(feature = "redis")]
fn warnings_are_told() {
    const REASONS: [&str; 2] = ["no append-only file", "maxmemory-policy"];
    block_on(async {
        let Some(server) = careless().await else { return };
        let url = server.url();
        let verbs: [&[&str]; 5] = [
            &["run", "a", "--", "true"],
            &["lead", "a", "--", "true"],
            &["acquire", "--for", "1s", "--permits", "9", "b"],
            &["wait", "c"],
            &["status", "a"],
        ];
        for verb in verbs {
            let run = at(&url, verb);
            assert_eq!(run.status, 0, "{run:?}");
            for reason in REASONS {
                run.warns(reason);
            }
            assert_eq!(run.err.lines().count(), REASONS.len(), "{run:?}");
            assert!(run.err.lines().all(|line| line.contains(&server.addr().to_string())), "{run:?}");

            let run = at(&url, &[&[verb[0], "--json"], &verb[1..]].concat());
            let messages = run.err.lines().map(|line| serde_json::from_str::<Value>(line).expect(line));
            let messages: Vec<_> = messages.collect();
            assert_eq!(messages.len(), REASONS.len(), "{run:?}");
            for reason in REASONS {
                let about = |one: &&Value| one["message"].as_str().unwrap().contains(reason);
                assert_eq!(messages.iter().find(about).expect(reason)["severity"], "warning", "{run:?}");
            }
        }
        for verb in &verbs[..3] {
            let run = at(&url, &[&[verb[0], "-q"], &verb[1..]].concat());
            assert_eq!((run.status, run.err.as_str()), (0, ""), "{verb:?}");
        }
        // A log level is asked for: its lines are as the log has them.
        let run = finish(lockwell(verbs[0]).env("LOCKWELL_URL", &url).env("RUST_LOG", "error"));
        assert_eq!((run.status, run.err.as_str()), (0, ""));
    });
}
