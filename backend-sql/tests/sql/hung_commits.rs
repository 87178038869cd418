//! Commits that wait for a replica which is away: what is tried again leaves no more and more connections.

use std::time::{Duration, Instant};

use lockwell_core::ErrorKind;
use testbed::{MariaDb, Postgres, if_installed};

use crate::servers::{Kind, client, options};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leave_few_connections_on_postgres() {
    let Some(server) = if_installed(Postgres::start_with(&options()).await) else { return };
    let sql = async |sql: &str| server.admin_sql(sql).await.expect("an administrator").trim().to_owned();
    let set = [
        "ALTER SYSTEM SET synchronous_standby_names = 'away'; SELECT pg_reload_conf()",
        "ALTER SYSTEM RESET synchronous_standby_names; SELECT pg_reload_conf()",
    ];
    let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'lockwell'";
    few_connections(Kind::Postgres, &server.url(), sql, set, count).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leave_few_connections_on_mariadb() {
    let Some(server) = if_installed(MariaDb::start_with(&options().setting("log-bin", "log")).await) else {
        return;
    };
    let sql = async |sql: &str| server.admin_sql(sql).await.expect("an administrator").trim().to_owned();
    let set = [
        "SET GLOBAL rpl_semi_sync_master_timeout = 600000; SET GLOBAL rpl_semi_sync_master_enabled = 1",
        "SET GLOBAL rpl_semi_sync_master_enabled = 0",
    ];
    let count = "SELECT COUNT(*) - 1 FROM information_schema.PROCESSLIST WHERE user = 'root'";
    few_connections(Kind::MariaDb, &server.url(), sql, set, count).await;
}

async fn few_connections(
    kind: Kind,
    url: &str,
    sql: impl AsyncFn(&str) -> String,
    [away, back]: [&str; 2],
    count: &str,
) {
    let connections = async || sql(count).await.parse::<usize>().expect("a number");
    let url = format!("{url}?timeout=4s");
    let (locks, holder) = (client(kind, &url).await, client(kind, &url).await);
    locks.lock("before").await.expect("a free lock").release().await.expect("held");
    let held = holder.lock("held").ttl(Duration::from_secs(2)).await.expect("a free lock");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = connections().await;

    sql(away).await;
    let (began, mut most) = (Instant::now(), 0);
    for name in 0.. {
        let asked = locks.lock(format!("hung {name}")).wait(Duration::from_secs(4)).await;
        // The server does not take the setting over at once.
        let Err(error) = asked else {
            assert!(began.elapsed() < Duration::from_secs(10), "its commit does not wait");
            continue;
        };
        let now = connections().await;
        println!("{:?}: {error:#}; {now} connections, {before} before", began.elapsed());
        assert!(matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::TimedOut), "{error:#}");
        most = most.max(now);
        if began.elapsed() > Duration::from_secs(40) {
            break;
        }
    }
    assert!(!held.is_held(), "its renewals wait, too");
    assert!(most <= before + 8, "{before} connections before, {most} at most");

    sql(back).await;
    let again = Instant::now();
    locks
        .lock("after")
        .wait(Duration::from_secs(20))
        .await
        .expect("it goes on")
        .release()
        .await
        .expect("held");
    println!("{:?}", again.elapsed());
    let end = Instant::now() + Duration::from_secs(20);
    while connections().await > before + 4 {
        assert!(Instant::now() < end, "they stay");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
