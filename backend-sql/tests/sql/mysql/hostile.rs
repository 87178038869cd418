//! Servers whose defaults would break locks.

use std::time::Duration;

use lockwell_core::{DistributedLock, ErrorKind, Mode, Released, Severity};
use lockwell_sql::MySqlLock;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection};

use super::{RELEASES, options, servers, start};
use crate::servers::{Kind, backend, claim, client};

/// What new sessions get: settings of both programs, and of one. Set at run time, since the server's own
/// start would stumble over them.
fn hostile(release: &str) -> String {
    let mut modes = "HIGH_NOT_PRECEDENCE,PIPES_AS_CONCAT,ANSI_QUOTES,IGNORE_SPACE,NO_BACKSLASH_ESCAPES,\
                     PAD_CHAR_TO_FULL_LENGTH,NO_UNSIGNED_SUBTRACTION"
        .to_owned();
    let mut settings = "time_zone = '-07:00', autocommit = 0, completion_type = 1, lock_wait_timeout = 1,
        innodb_lock_wait_timeout = 50, max_join_size = 1, character_set_server = 'ucs2', sql_select_limit = 0,
        sql_safe_updates = 1, unique_checks = 0, sql_auto_is_null = 1, group_concat_max_len = 4,
        init_connect = 'SET @stranger = 1; START TRANSACTION READ ONLY'"
        .to_owned();
    if release.starts_with("mariadb") {
        modes += ",ORACLE,SIMULTANEOUS_ASSIGNMENT,EMPTY_STRING_IS_NULL,TIME_ROUND_FRACTIONAL";
        settings += ", max_statement_time = 0.05";
    } else {
        settings += ", max_execution_time = 50";
    }
    if release == "mariadb11" {
        settings += ", innodb_snapshot_isolation = 1";
    }
    format!(
        "ALTER DATABASE lockwell CHARACTER SET ucs2; CREATE USER app@'%'; GRANT ALL ON lockwell.* TO app@'%';
         SET GLOBAL TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY;
         SET GLOBAL {settings}, sql_mode = '{modes}';"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_session_inherits_changes_nothing() {
    for release in RELEASES.into_iter().chain(["mariadb11"]) {
        let Some(server) = start(release, options(release)).await else { continue };
        server.admin_sql(&hostile(release)).await.expect("an administrator");
        // `init_connect` is not run for administrators.
        let url = server.url().replace("root@", "app@");
        let (one, two) = (client(Kind::MariaDb, &url).await, client(Kind::MariaDb, &url).await);
        let mut last = None;
        for name in ["a", "b", "a"] {
            let guard = one.lock(name).ttl(Duration::from_secs(20)).await.expect("a free lock");
            assert!(Some(guard.token()) > last, "{release}: tokens rise");
            last = Some(guard.token());
            assert!(two.lock(name).try_now().await.expect("an answer").is_none(), "{release}: two holders");
            let status = one.inspect(name).await.expect("an answer");
            let left = status.holders[0].ttl_left;
            let bounds = Duration::from_secs(5)..=Duration::from_secs(20);
            assert!(bounds.contains(&left), "{release}: the lease lasts {left:?}");
            guard.release().await.expect("held");
        }
        let all = one.lock_all(["x", "y", "z"]).await.expect("free locks");
        assert!(two.lock_all(["z", "w"]).try_now().await.expect("an answer").is_none(), "{release}");
        all.release().await.expect("held");
        // Renewed in time, and waited for longer than a statement may take there.
        let guard = one.lock("a").ttl(Duration::from_millis(900)).await.expect("a free lock");
        let waiting = tokio::spawn(two.lock("a").wait(Duration::from_secs(30)).into_future());
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(guard.is_held(), "{release}: the lease was not renewed");
        guard.release().await.expect("held");
        waiting.await.expect("no panic").expect("its turn comes").release().await.expect("held");
        // A dead holder: its lease ends by the server's clock.
        let dead = claim("a", Mode::Exclusive, Duration::from_millis(300));
        one.backend().acquire(&dead).await.expect("an answer").expect("a free lock");
        two.lock("a").wait(Duration::from_secs(20)).await.expect("it ends").release().await.expect("held");
        let readers = [one.read("a").await.expect("free"), two.read("a").await.expect("readers meet")];
        assert!(one.write("a").try_now().await.expect("an answer").is_none(), "{release}: beside readers");
        for reader in readers {
            reader.release().await.expect("held");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_stands_still_is_refused() {
    for release in RELEASES {
        let Some(server) = start(release, options(release).setting("sysdate-is-now", "1")).await else {
            continue;
        };
        let error = backend(Kind::MariaDb, &server.url()).await.expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{release}: {error:#}");
        assert!(format!("{error:#}").contains("sysdate-is-now"), "{release}: {error:#}");
    }
}

/// With the isolation level of our sessions such a server refuses every write, although it creates the
/// tables.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_binary_log_of_statements_is_refused() {
    for release in RELEASES {
        let logs = options(release).setting("log-bin", "binlog").setting("server-id", "1");
        let Some(server) = start(release, logs).await else { continue };
        // Those whose log has rows are not refused.
        let lock = MySqlLock::connect(&server.url().parse().expect("an address")).await.expect("connects");
        server.admin_sql("SET GLOBAL binlog_format = STATEMENT").await.expect("an administrator");
        for url in [server.url(), server.url() + "?table=another"] {
            let error = backend(Kind::MariaDb, &url).await.expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{release}: {error:#}");
            assert!(format!("{error:#}").contains("binlog_format"), "{release}: {error:#}");
        }
        // A client that has connected before, with a new session.
        lock.close().await;
        let findings = lock.examine().await.expect("an answer");
        let found = findings.iter().find(|found| found.message.contains("binlog_format")).expect("a finding");
        assert_eq!(found.severity, Severity::Bad, "{release}: {found:?}");
        let claim = claim("a", Mode::Exclusive, Duration::from_secs(5));
        let error = lock.acquire(&claim).await.expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{release}: {error:#}");
    }
}

/// A server closes a connection that is silent for its `wait_timeout`. MySQL sends an error before it does
/// so, which looks like the answer to the next request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_was_silent_for_too_long_is_replaced() {
    const SILENCE: Duration = Duration::from_secs(2);
    const LONG: Duration = Duration::from_mins(1);
    for release in RELEASES {
        let Some(server) = start(release, options(release)).await else { continue };
        server.admin_sql("SET GLOBAL wait_timeout = 1").await.expect("an administrator");
        let locks = client(Kind::MariaDb, &server.url()).await;
        let guard = locks.lock("a").ttl(LONG).await.expect("a free lock");
        tokio::time::sleep(SILENCE).await;
        guard.release().await.expect("held");
        tokio::time::sleep(SILENCE).await;
        let reader = locks.read("a").ttl(LONG).await.expect("a free lock");
        tokio::time::sleep(SILENCE).await;
        reader.release().await.expect("held");
        tokio::time::sleep(SILENCE).await;
        let all = locks.lock_all(["a", "b"]).await.expect("free locks");
        tokio::time::sleep(SILENCE).await;
        all.release().await.expect("held");
        // Each of these is the first request after a silence, and is not repeated by anybody else.
        let dead = claim("c", Mode::Exclusive, LONG);
        tokio::time::sleep(SILENCE).await;
        locks.backend().acquire(&dead).await.expect("an answer").expect("a free lock");
        tokio::time::sleep(SILENCE).await;
        let released = locks.backend().release(&dead).await.expect("an answer");
        assert_eq!(released, Released::Released, "{release}");
    }
}

/// Errors that say that nothing was done, although no other request of ours is the reason: a statement has to
/// be prepared anew, or a cluster has refused the commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_not_done_is_sent_again() {
    for server in servers().await {
        let mut admin = MySqlConnection::connect(&server.url()).await.expect("a connection");
        for number in [1615, 3101] {
            let table = format!("again{number}");
            let url = format!("{}?table={table}", server.url());
            let lock = backend(Kind::MariaDb, &url).await.expect("a connection");
            let held = claim("a", Mode::Exclusive, Duration::from_mins(1));
            lock.acquire(&held).await.expect("an answer").expect("a free lock");
            // The first change of a row fails, in each session.
            let trigger = format!(
                "CREATE TRIGGER {table}_fails BEFORE UPDATE ON {table} FOR EACH ROW IF @failed IS NULL THEN
                 SET @failed = 1; SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {number}; END IF"
            );
            sqlx::raw_sql(AssertSqlSafe(trigger)).execute(&mut admin).await.expect("an administrator");
            let released = lock.release(&held).await.expect("an answer");
            assert_eq!(released, Released::Released, "{number}");
            assert!(!lock.inspect(held.name()).await.expect("an answer").is_held(), "{number}");
        }
    }
}

/// The clock of our statements, as their file has it: it depends neither on the session's zone nor on its
/// timestamp.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_clock_is_the_same_in_every_session() {
    let source = include_str!("../../../src/mysql/statements.sql");
    let (_, rest) = source.split_once("-- part: now\n").expect("the clock");
    let (now, _) = rest.split_once("\n\n").expect("its end");
    for server in servers().await {
        let mut connection = MySqlConnection::connect(&server.url()).await.expect("a connection");
        for setting in
            ["time_zone = '+00:00'", "time_zone = '-07:00'", "time_zone = '+05:30', timestamp = 1000000000"]
        {
            let set = format!("SET SESSION {setting}");
            sqlx::raw_sql(AssertSqlSafe(set)).execute(&mut connection).await.expect("a setting");
            let question = format!("SELECT CAST({now} AS SIGNED)");
            let told: i64 =
                sqlx::query_scalar(AssertSqlSafe(question)).fetch_one(&mut connection).await.expect("a time");
            let real =
                std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
            let off = Duration::from_micros(told.unsigned_abs()).abs_diff(real);
            // The same machine; a busy one may take its time for the answer.
            assert!(off < Duration::from_mins(1), "{setting}: off by {off:?}");
            // It goes on while a statement waits.
            let question = format!("SELECT CAST(-{now} AS SIGNED) + SLEEP(0.1) + {now}");
            let passed: f64 = sqlx::query_scalar(AssertSqlSafe(format!(
                "SELECT CAST(({}) AS DOUBLE)",
                &question["SELECT ".len()..]
            )))
            .fetch_one(&mut connection)
            .await
            .expect("a time");
            assert!(passed >= 90_000.0, "{setting}: {passed} us passed");
        }
    }
}
