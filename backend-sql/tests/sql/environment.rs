//! The address says everything, and the environment of the process nothing.

use std::process::{Command, Stdio};

use crate::servers::{Kind, backend, client, url};

const ADDRESS: &str = "LOCKWELL_TEST_ADDRESS";

/// Connects in another process with this environment. Returns what it prints behind `=>`.
async fn connected(url: &str, environment: &[(&str, &str)]) -> String {
    let mut child = Command::new(std::env::current_exe().expect("this binary"));
    child.args(["environment::child", "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    child.env(ADDRESS, url).envs(environment.iter().copied()).stdin(Stdio::null());
    let output =
        tokio::task::spawn_blocking(move || child.output().expect("it runs")).await.expect("no panic");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let answer = text.lines().find_map(|line| line.split_once("=> "));
    answer.unwrap_or_else(|| panic!("no answer: {text}")).1.to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "other tests start it"]
async fn child() {
    let Ok(url) = std::env::var(ADDRESS) else { return };
    let kind = if url.starts_with("postgres") { Kind::Postgres } else { Kind::MariaDb };
    match backend(kind, &url).await {
        Ok(_) => {
            let held = client(kind, &url).await.lock("a").try_now().await;
            println!("=> {:?}", held.map(|held| held.is_some()));
        }
        Err(error) => println!("=> {:?}: {error}", error.kind()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_changes_nothing() {
    for (kind, environment) in [
        (
            Kind::Postgres,
            &[
                ("PGHOST", "nowhere.invalid"),
                ("PGHOSTADDR", "192.0.2.1"),
                ("PGPORT", "1"),
                ("PGUSER", "nobody"),
                ("PGDATABASE", "none"),
                ("PGPASSWORD", "wrong"),
                ("PGSSLMODE", "verify-full"),
                ("PGSSLROOTCERT", "/nowhere/root.crt"),
            ][..],
        ),
        (
            Kind::MariaDb,
            &[
                ("MYSQL_HOST", "nowhere.invalid"),
                ("MYSQL_TCP_PORT", "1"),
                ("MYSQL_PWD", "wrong"),
                ("USER", "nobody"),
            ],
        ),
    ] {
        let Some(url) = url(kind, "environment").await else { continue };
        let held = client(kind, &url).await.lock("a").await.expect("a free lock");
        for one in environment {
            assert_eq!(connected(&url, &[*one]).await, "Ok(false)", "{one:?}");
        }
        held.release().await.expect("held");
        assert_eq!(connected(&url, environment).await, "Ok(true)");
    }
}

/// What sqlx takes from it, and cannot be told not to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_left_out_is_refused() {
    let Some(url) = url(Kind::Postgres, "environment").await else { return };
    for one in [
        ("PGOPTIONS", "-c search_path=pg_temp"),
        ("PGSSLCERT", "/nowhere/client.crt"),
        ("PGSSLKEY", "/nowhere/client.key"),
    ] {
        let answer = connected(&url, &[one]).await;
        assert!(answer.starts_with("Misconfigured: ") && answer.contains(one.0), "{one:?}: {answer}");
    }
}
