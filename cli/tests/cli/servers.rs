//! What only a real server shows: PostgreSQL.

use std::time::{Duration, Instant};

use testbed::{Postgres, Proxy, if_installed};

use crate::everyday::options;
use crate::support::{Finished, Running, block_on, finish, lockwell, wait_until};

pub(crate) async fn postgres() -> Option<Postgres> {
    if_installed(Postgres::start_with(&options()).await)
}

fn run(url: &str, args: &[&str]) -> Finished {
    finish(lockwell(&[&["run"], args].concat()).env("LOCKWELL_URL", url))
}

#[test]
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

/// The backend tries again until its own limit, and then says why. The command does not end before that.
#[test]
fn a_server_without_a_free_connection_says_so() {
    block_on(async {
        let Some(server) = postgres().await else { return };
        assert_eq!(run(&server.url(), &["a", "--", "true"]).status, 0);
        let few = "CREATE ROLE few LOGIN CONNECTION LIMIT 0; GRANT ALL ON ALL TABLES IN SCHEMA public TO few";
        server.admin_sql(few).await.unwrap();
        let url = server.url().replace("postgres@", "few@");
        run(&url, &["--no-wait", "a", "--", "true"]).complains(69, "too many connections for role");
    });
}

#[test]
#[cfg(feature = "mysql")]
fn a_user_without_a_free_connection_is_told_so() {
    block_on(async {
        let Some(server) = if_installed(testbed::MariaDb::start_with(&options()).await) else { return };
        let few = "CREATE USER few@'%' WITH MAX_USER_CONNECTIONS 1; GRANT ALL ON lockwell.* TO few@'%'";
        server.admin_sql(few).await.unwrap();
        let url = server.url().replace("root@", "few@");
        let holder =
            Running::start(lockwell(&["run", "held", "--", "sleep", "60"]).env("LOCKWELL_URL", &url));
        let held = || run(&server.url(), &["--no-wait", "held", "--", "true"]).status == 75;
        wait_until("a holder", held);
        run(&url, &["--no-wait", "a", "--", "true"]).complains(69, "max_user_connections");
        holder.signal(rustix::process::Signal::TERM);
        holder.finish();
    });
}

/// What no retry cures ends at once, whatever the wait, and says what to do.
#[test]
fn a_login_that_will_be_refused_again_is_77_at_once() {
    let refused = |url: &str, words: &str| {
        let begun = Instant::now();
        run(url, &["--wait", "5m", "a", "--", "true"]).complains(77, words);
        assert!(begun.elapsed() < Duration::from_mins(2), "{words}: it was tried again");
    };
    block_on(async {
        let Some(server) = postgres().await else { return };
        server.admin_sql("CREATE ROLE nobody; CREATE DATABASE closed").await.unwrap();
        server.admin_sql("ALTER DATABASE closed ALLOW_CONNECTIONS false").await.unwrap();
        refused(&server.url().replace("postgres@", "nobody@"), "no LOGIN");
        refused(&format!("postgres://postgres@{}/closed", server.addr()), "ALLOW_CONNECTIONS");
    });
    #[cfg(feature = "mysql")]
    block_on(async {
        let Some(server) = if_installed(testbed::MariaDb::start_with(&options()).await) else { return };
        server.admin_sql("CREATE USER ann@'%' ACCOUNT LOCK").await.unwrap();
        refused(&server.url().replace("root@", "ann@"), "ACCOUNT UNLOCK");
    });
}

#[test]
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
        waiting.finish().complains(69, &format!("postgres at {}: ", proxy.addr()));
        guard.release().await.unwrap();
    });
}

#[test]
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
        let run = running.finish();
        run.complains(76, "its lease ran out before it could be renewed: the last renewal failed: ");
        assert!(run.err.contains("cannot be reached"), "{run:?}");
        assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    });
}
