//! Tables of an earlier version.

use std::time::Duration;

use lockcore::{ErrorKind, Mode};

use crate::servers::{ALL, Kind, admin, backend, claim, client, session, url, waiters};

/// The tables of version 0.1 before groups, with a lock in them that somebody has released.
fn old_tables(kind: Kind) -> String {
    let create = match kind {
        Kind::Sqlite => {
            "CREATE TABLE old (name TEXT COLLATE BINARY PRIMARY KEY NOT NULL, owner BLOB NOT NULL,
                token INTEGER NOT NULL, expires_at INTEGER, acquired_at INTEGER NOT NULL, label TEXT NOT NULL)
                WITHOUT ROWID;
            CREATE TABLE old_queue (ticket INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT COLLATE BINARY NOT NULL,
                owner BLOB NOT NULL UNIQUE, client BLOB NOT NULL, alive_until INTEGER NOT NULL, label TEXT NOT NULL);
            INSERT INTO old VALUES ('a', zeroblob(16), 7000000000000000, NULL, 0, 'old');"
        }
        Kind::Postgres => {
            "CREATE TABLE old (name text COLLATE \"C\" PRIMARY KEY, owner uuid NOT NULL, token bigint NOT NULL,
                expires_at timestamptz, acquired_at timestamptz NOT NULL, label text NOT NULL);
            CREATE TABLE old_queue (ticket bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                name text COLLATE \"C\" NOT NULL, owner uuid NOT NULL UNIQUE, client uuid NOT NULL,
                alive_until timestamptz NOT NULL, label text NOT NULL);
            INSERT INTO old VALUES ('a', gen_random_uuid(), 7000000000000000, NULL, now(), 'old');"
        }
        Kind::MariaDb => {
            "CREATE TABLE old (name VARBINARY(512) NOT NULL PRIMARY KEY, owner BINARY(16) NOT NULL,
                token BIGINT NOT NULL, expires_at BIGINT NULL, acquired_at BIGINT NOT NULL,
                label VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL) ENGINE = InnoDB;
            CREATE TABLE old_queue (ticket BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, name VARBINARY(512) NOT NULL,
                owner BINARY(16) NOT NULL UNIQUE, client BINARY(16) NOT NULL, alive_until BIGINT NOT NULL,
                label VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL, KEY by_name (name, ticket)) ENGINE = InnoDB;
            INSERT INTO old VALUES ('a', REPEAT('x', 16), 7000000000000000, NULL, 0, 'old');"
        }
    };
    create.to_owned()
}

/// Old tables are refused with a hint, or brought up to date: by whoever connects, or by an administrator.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_tables_are_brought_up_to_date() {
    for kind in ALL {
        for by_hand in [false, true] {
            let table = if by_hand { "by_an_administrator" } else { "by_connecting" };
            let Some(url) = url(kind, table).await else { continue };
            let rename = |sql: &str| {
                sql.replace("old_queue", &format!("{table}_queue")).replace("old ", &format!("{table} "))
            };
            admin(kind, &url, &rename(&old_tables(kind))).await;
            let error = backend(kind, &format!("{url}&create=false")).await.expect_err("the tables are old");
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{kind:?}: {error:#}");
            assert!(error.to_string().contains("schema_upgrade"), "{kind:?}: {error:#}");
            if by_hand {
                admin(kind, &url, &statements(kind, &url, table).await).await;
            } else {
                drop(client(kind, &url).await);
            }
            let locks = client(kind, &format!("{url}&create=false")).await;
            let writer = locks.write("a").await.expect("a free lock");
            assert!(writer.token().get() > 7_000_000_000_000_000, "{kind:?}: the token goes on");
            let reader = writer.downgrade().await.expect("held");
            let other = locks.read("a").await.expect("readers meet");
            assert!(other.token() > reader.token());
            reader.release().await.expect("held");
            other.release().await.expect("held");
            // A process of that version sees a group as one that holds the lock alone.
            let reader = locks.read("a").await.expect("a free lock");
            let free = match kind {
                Kind::Postgres => "expires_at IS NULL OR expires_at <= clock_timestamp()",
                _ => "expires_at IS NULL OR expires_at <= 8000000000000000",
            };
            let sql = format!("SELECT CAST(count(*) AS CHAR(9)) FROM {table} WHERE {free}");
            assert_eq!(admin(kind, &url, &sql).await.trim(), "0", "{kind:?}");
            reader.release().await.expect("held");
            assert_eq!(admin(kind, &url, &sql).await.trim(), "1", "{kind:?}");
        }
    }
}

/// What an administrator is told to run, from a client that can connect elsewhere.
async fn statements(kind: Kind, url: &str, table: &str) -> String {
    let url = url.replace(table, "elsewhere").parse().expect("an address");
    let statements = match kind {
        Kind::Sqlite => backend_sql::SqliteLock::connect(&url).await.expect("connects").schema_upgrade(),
        Kind::Postgres => backend_sql::PostgresLock::connect(&url).await.expect("connects").schema_upgrade(),
        Kind::MariaDb => backend_sql::MySqlLock::connect(&url).await.expect("connects").schema_upgrade(),
    };
    statements.replace("elsewhere", table)
}

/// Queues of an earlier version get the column that says when a waiter came. That version goes on entering without it: its
/// waiters are counted, and the longest wait is unknown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_of_an_earlier_version_do_not_say_when_they_came() {
    // On MariaDB the table of waiters has had the column from the first.
    for kind in [Kind::Postgres, Kind::Sqlite] {
        let Some(url) = url(kind, "timeless").await else { continue };
        drop(client(kind, &url).await);
        let queue = waiters(kind, "timeless");
        admin(kind, &url, &format!("ALTER TABLE {queue} DROP COLUMN entered_at")).await;
        let error = backend(kind, &format!("{url}&create=false")).await.expect_err("the tables are old");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{kind:?}: {error:#}");
        let locks = client(kind, &url).await;
        let guard = locks.lock("a").await.expect("a free lock");
        let enter = match kind {
            Kind::Sqlite => {
                "INSERT INTO timeless_queue (name, owner, client, alive_until, label)
                    VALUES ('a', zeroblob(16), zeroblob(16), 8000000000000000, 'old')"
            }
            // One that was there before the column.
            _ => {
                "INSERT INTO timeless_clients VALUES (gen_random_uuid(), now() + interval '1 hour', 1);
                INSERT INTO timeless_waiters (name, owner, client, seat, label, mode, tokens, entered_at)
                    SELECT 'a', gen_random_uuid(), client, 1, 'old', 0, 1, NULL FROM timeless_clients"
            }
        };
        admin(kind, &url, enter).await;
        let shown = locks.inspect("a").await.expect("an answer");
        assert_eq!((shown.waiters, shown.longest_wait), (1, None), "{kind:?}");
        let waiter = tokio::spawn(locks.lock("a").wait(Duration::from_mins(1)).into_future());
        while locks.inspect("a").await.expect("an answer").waiters < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(locks.inspect("a").await.expect("an answer").longest_wait, None, "{kind:?}");
        admin(kind, &url, &format!("DELETE FROM {queue} WHERE label = 'old'")).await;
        let shown = locks.inspect("a").await.expect("an answer");
        assert!(shown.waiters == 1 && shown.longest_wait.is_some(), "{kind:?}: {shown:?}");
        guard.release().await.expect("held");
        waiter.await.expect("no panic").expect("its turn comes").release().await.expect("held");
    }
}

/// Two versions on the same tables: the earlier one, by order of an operator, frees a lock that a group holds, and takes
/// it. Nobody comes in beside it, and the member who leaves does not free it.
#[tokio::test]
async fn a_lock_that_an_earlier_version_took_is_not_a_group() {
    for kind in ALL {
        let Some(url) = url(kind, "versions").await else { continue };
        let locks = client(kind, &url).await;
        let reader = claim("a", Mode::Shared, Duration::from_secs(20));
        locks.backend().acquire(&reader).await.expect("an answer").expect("a free lock");
        let taken = match kind {
            Kind::Postgres => {
                "UPDATE versions SET owner = gen_random_uuid(), expires_at = now() + interval '1 hour'"
            }
            Kind::MariaDb => "UPDATE versions SET owner = REPEAT('x', 16), expires_at = 8000000000000000",
            Kind::Sqlite => "UPDATE versions SET owner = randomblob(16), expires_at = 8000000000000000",
        };
        admin(kind, &url, taken).await;
        for _ in 0..2 {
            assert!(locks.read("a").try_now().await.expect("an answer").is_none(), "{kind:?}");
            assert!(locks.lock("a").try_now().await.expect("an answer").is_none(), "{kind:?}");
            locks.backend().release(&reader).await.expect("an answer");
        }
        let error = locks.permit("a", 2).try_now().await.expect_err("it is held by a mutex");
        assert_eq!(error.kind(), ErrorKind::KindClash, "{kind:?}");
        assert_eq!(locks.force_release("a").await.expect("an answer"), 1, "{kind:?}");
        locks
            .permit("a", 2)
            .try_now()
            .await
            .expect("an answer")
            .expect("free")
            .release()
            .await
            .expect("held");
    }
}

/// Only what a crash may empty is UNLOGGED.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_queue_is_unlogged_and_nothing_else() {
    let (kind, table) = (Kind::Postgres, "queued");
    let Some(url) = url(kind, table).await else { return };
    drop(client(kind, &url).await);
    let sql = "SELECT string_agg(relname || ' ' || relpersistence::text, ', ' ORDER BY relname) FROM pg_class
        WHERE relkind = 'r' AND relname LIKE 'queued%'";
    let found = admin(kind, &url, sql).await;
    assert_eq!(found.trim(), "queued p, queued_clients u, queued_members p, queued_waiters u");
}

/// A backup reads the tables of an earlier version for long: whoever wants to change them stops waiting before all others wait for
/// that, and says so. Those who use them go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_does_not_wait_for_long() {
    let (kind, table) = (Kind::Postgres, "backed_up");
    let Some(url) = url(kind, table).await else { return };
    let rename = |sql: &str| sql.replace("old_queue", "backed_up_queue").replace("old ", "backed_up ");
    admin(kind, &url, &rename(&old_tables(kind))).await;
    let mut backup = session(&url).await;
    sqlx::raw_sql("BEGIN; SELECT count(*) FROM backed_up").execute(&mut backup).await.expect("it reads");
    let began = std::time::Instant::now();
    let error = backend(kind, &format!("{url}&timeout=3s")).await.expect_err("the table is being read");
    println!("{:?}: {error:#}", began.elapsed());
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
    assert!(error.to_string().contains("schema_upgrade"), "{error:#}");
    assert!(began.elapsed() < Duration::from_secs(8));
    let taken = "UPDATE backed_up SET expires_at = now() + interval '1 hour' WHERE name = 'a' RETURNING 1";
    assert_eq!(admin(kind, &url, taken).await.trim(), "1");
    sqlx::raw_sql("COMMIT").execute(&mut backup).await.expect("it ends");
    let locks = client(kind, &url).await;
    assert!(locks.lock("a").try_now().await.expect("an answer").is_none(), "the earlier grant is known");
    locks.lock("b").await.expect("a free lock").release().await.expect("held");
}
