//! The address says everything, and the environment of the process nothing.

use crate::servers::{Kind, client, url};
use crate::sqlite_child::{answer, command};

/// Connects in another process with this environment.
async fn connected(url: &str, environment: &[(&str, &str)]) -> String {
    let mut child = command("server", url);
    child.envs(environment.iter().copied());
    answer(child).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_changes_nothing() {
    for (kind, environment) in [
        (
            Kind::Postgres,
            &[
                ("PGHOST", "-no-such-host.invalid"),
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
                ("MYSQL_HOST", "-no-such-host.invalid"),
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
