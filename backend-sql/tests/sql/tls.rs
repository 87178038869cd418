//! TLS with real servers: who trusts whom.

use std::time::{Duration, Instant};

use lockwell_core::ErrorKind;
use lockwell_core::backend::can_set_nodelay;
use testbed::{Certificates, Durability, MariaDb, Options, Postgres, if_installed};

use crate::addresses::by_name;
use crate::servers::{Kind, backend, client};

fn certificates() -> Option<Certificates> {
    if_installed(Certificates::make())
}

/// Two clients that trust the authority, and the name of the server, keep each other out.
async fn holds(kind: Kind, url: &str) {
    let (one, two) = (client(kind, url).await, client(kind, url).await);
    let guard = one.lock("a").await.expect("a free lock");
    assert!(two.lock("a").try_now().await.expect("an answer").is_none(), "both hold");
    guard.release().await.expect("held");
}

async fn refused(kind: Kind, why: &str, url: &str, kinds: &[ErrorKind]) {
    let error = backend(kind, url).await.expect_err(why);
    assert!(kinds.contains(&error.kind()), "{why}: {error:#}");
    if error.kind() == ErrorKind::Misconfigured {
        assert!(
            error.to_string().contains("ca=FILE") || error.to_string().contains("sslrootcert=FILE"),
            "{error:#}"
        );
    }
    println!("{kind:?}, {why}: {error:#}");
}

/// How long many tasks need to take locks of their own and to release them, some times.
async fn many_at_once(url: &str) -> Duration {
    const TASKS: usize = 400;
    let locks = client(Kind::MariaDb, url).await;
    let run = |turns: usize| {
        let locks = locks.clone();
        async move {
            let task = |n: usize| {
                let locks = locks.clone();
                tokio::spawn(async move {
                    for _ in 0..turns {
                        let guard = locks.lock(format!("at once {n}")).await.expect("a free lock");
                        guard.release().await.expect("held");
                    }
                })
            };
            for task in (0..TASKS).map(task).collect::<Vec<_>>() {
                task.await.expect("no panic");
            }
        }
    };
    // The locks have rows then.
    run(1).await;
    let began = Instant::now();
    run(6).await;
    began.elapsed()
}

/// What does not fit into one record of TLS is not held back. A message of 400 claims has about 50 KB;
/// without `TCP_NODELAY` each of them takes some 40 ms more, and all of this took 4 to 5 times as long as
/// without TLS.
async fn large_batches(plain: &str, tls: &str) {
    if !can_set_nodelay() {
        return;
    }
    // The shortest of some, since the machine may be busy.
    let (mut without, mut with) = (Duration::MAX, Duration::MAX);
    for _ in 0..3 {
        without = without.min(many_at_once(plain).await);
        with = with.min(many_at_once(tls).await);
    }
    println!("{with:?} with TLS, {without:?} without");
    assert!(with < without * 5 / 2, "{with:?} with TLS, {without:?} without");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres() {
    let Some(files) = certificates() else { return };
    let options = Options::new()
        .durability(Durability::Fast)
        .setting("ssl", "on")
        .setting("ssl_cert_file", files.path("server.pem"))
        .setting("ssl_key_file", files.path("server.key"))
        .setting("ssl_ca_file", files.path("ca.pem"));
    let Some(server) = if_installed(Postgres::start_with(&options).await) else { return };
    let url = |host: &str, options: &str| {
        format!("postgres://postgres@{host}:{}/postgres?timeout=2s&{options}", server.addr().port())
    };
    let trust = format!("sslmode=verify-full&sslrootcert={}", files.path("ca.pem"));
    let own = format!("sslcert={}&sslkey={}", files.path("ours.pem"), files.path("ours.key"));
    holds(Kind::Postgres, &url("localhost", &trust)).await;
    holds(Kind::Postgres, &url("localhost", &format!("{trust}&{own}"))).await;
    let (_listener, hung) = testbed::hung();
    let several = by_name(&url("localhost", "sslmode=require"), &[hung, server.addr()]);
    holds(Kind::Postgres, &several).await;
    let used = server.admin_sql("SELECT count(*) > 0 FROM pg_stat_ssl WHERE ssl").await.expect("an answer");
    assert_eq!(used.trim(), "t", "TLS is in use");
    let others = format!("sslmode=verify-full&sslrootcert={}", files.path("ours.pem"));
    // Another try would end alike.
    let tls = [ErrorKind::Misconfigured];
    refused(Kind::Postgres, "we do not trust", &url("localhost", &others), &tls).await;
    refused(Kind::Postgres, "it is for another name", &url("127.0.0.1", &trust), &tls).await;
    let nothing = format!("{trust}x");
    refused(Kind::Postgres, "no such file", &url("localhost", &nothing), &[ErrorKind::InvalidInput]).await;
    let half = format!("{trust}&sslkey={}", files.path("ours.key"));
    refused(Kind::Postgres, "half of it", &url("localhost", &half), &[ErrorKind::InvalidInput]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb() {
    let Some(files) = certificates() else { return };
    let options = Options::new()
        .durability(Durability::Fast)
        .setting("ssl-cert", files.path("server.pem"))
        .setting("ssl-key", files.path("server.key"))
        .setting("ssl-ca", files.path("ca.pem"));
    let Some(server) = if_installed(MariaDb::start_with(&options).await) else { return };
    let sql = "CREATE USER 'secure'@'%' REQUIRE X509; GRANT ALL ON lockwell.* TO 'secure'@'%';";
    server.admin_sql(sql).await.expect("a user");
    let url = |user: &str, host: &str, options: &str| {
        format!("mysql://{user}@{host}:{}/lockwell?timeout=2s&{options}", server.addr().port())
    };
    let trust = format!("sslmode=verify_identity&sslca={}", files.path("ca.pem"));
    large_batches(&url("root", "localhost", "sslmode=disabled"), &url("root", "localhost", &trust)).await;
    let own = format!("{trust}&sslcert={}&sslkey={}", files.path("ours.pem"), files.path("ours.key"));
    holds(Kind::MariaDb, &url("root", "localhost", &trust)).await;
    holds(Kind::MariaDb, &url("secure", "localhost", &own)).await;
    let (_listener, hung) = testbed::hung();
    let several = by_name(&url("root", "localhost", "sslmode=required"), &[hung, server.addr()]);
    holds(Kind::MariaDb, &several).await;
    let others = format!("sslmode=verify_ca&sslca={}", files.path("ours.pem"));
    // Another try would end alike.
    let tls = [ErrorKind::Misconfigured];
    refused(Kind::MariaDb, "we show none", &url("secure", "localhost", &trust), &[ErrorKind::Refused]).await;
    refused(Kind::MariaDb, "we do not trust", &url("root", "localhost", &others), &tls).await;
    refused(Kind::MariaDb, "it is for another name", &url("root", "127.0.0.1", &trust), &tls).await;
    let nothing = format!("{trust}x");
    refused(Kind::MariaDb, "no such file", &url("root", "localhost", &nothing), &[ErrorKind::InvalidInput])
        .await;
}
