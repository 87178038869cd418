//! A process that is cut off from PostgreSQL, or stopped, within a transaction of ours keeps nothing locked
//! for long. The server cannot tell one from the other.

use std::time::{Duration, Instant};

use lockwell_core::{ErrorKind, Renewal};
use sqlx::AssertSqlSafe;
use sqlx::postgres::PgConnection;
use testbed::Direction;

use crate::servers::{Kind, client, proxy, session, soon, through, url};

/// How long anything may take on a busy machine.
const LONG: Duration = Duration::from_mins(1);

/// Whether a query that counts has found something, within this time.
async fn is_there(session: &mut PgConnection, sql: &str, within: Duration) -> bool {
    let end = Instant::now() + within;
    loop {
        let found = sqlx::query_scalar::<_, i64>(AssertSqlSafe(sql)).fetch_one(&mut *session).await;
        let is_there = found.expect("an answer") > 0;
        if is_there || Instant::now() >= end {
            return is_there;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forced_release_keeps_no_row_locked() {
    let Some(url) = url(Kind::Postgres, "forced_off").await else { return };
    let near = client(Kind::Postgres, &url).await;
    let mut watching = session(&url).await;
    // It has changed the row, and its next message has not come.
    let has_locked = "SELECT count(*) FROM pg_stat_activity a JOIN pg_locks l USING (pid)
        WHERE a.state = 'idle in transaction' AND l.relation = 'forced_off'::regclass
            AND l.mode = 'RowExclusiveLock'";
    for pooled in ["", "&pooled=true"] {
        let mut round = 0;
        let (guard, _proxy, forcing) = loop {
            let proxy = proxy(Kind::Postgres).await.expect("a network");
            let far = client(Kind::Postgres, &(through(&url, &proxy) + pooled)).await;
            let name = format!("a{round}{pooled}");
            let guard = near.lock(&*name).ttl(LONG).await.expect("a free lock");
            proxy.delay(Duration::from_millis(150));
            let forcing = tokio::spawn(async move { far.force_release(&*name).await });
            if is_there(&mut watching, has_locked, Duration::from_secs(2)).await {
                proxy.blackhole(Direction::Both);
                // It may have been committed at the same moment.
                tokio::time::sleep(Duration::from_secs(1)).await;
                if is_there(&mut watching, has_locked, Duration::ZERO).await {
                    break (guard, proxy, forcing);
                }
            }
            assert!(round < 20, "no forced release was cut off");
            round += 1;
        };
        let end = Instant::now() + LONG;
        loop {
            let renewed = near.backend().renew(&[guard.grant().clone()], soon()).await;
            match &renewed[..] {
                [Renewal::Renewed(_)] => break,
                [Renewal::Lost] => panic!("nothing was committed"),
                _ => assert!(Instant::now() < end, "the row is still locked: {renewed:?}"),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        guard.release().await.expect("held");
        let forced = tokio::time::timeout(LONG, forcing).await.expect("there is a time limit");
        let error = forced.expect("no panic").expect_err("no answer");
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:#}");
    }
}
