//! Tables, rights and bad addresses.

use lockwell_core::{ErrorKind, Locks, Mode};
use testbed::MariaDb;

use crate::servers::{Kind, backend, claim, client, postgres, url, wait_for};

const CANARY: &str = "canary-secret-123";

async fn refused(kind: Kind, url: &str) -> (ErrorKind, String) {
    let error = backend(kind, url).await.expect_err("refused");
    let text = format!("{error} {error:#} {error:?}");
    assert!(!text.contains(CANARY), "{text}");
    (error.kind(), text)
}

#[tokio::test]
async fn a_bad_table_name_is_refused_before_any_request() {
    for kind in [Kind::Sqlite, Kind::Postgres, Kind::MariaDb] {
        let scheme = match kind {
            Kind::Sqlite => "sqlite://x.db",
            Kind::Postgres => "postgres://-no-such-host.invalid/x",
            Kind::MariaDb => "mysql://-no-such-host.invalid/x",
        };
        for table in ["a'b", "a%22b", "a b", "a;b"] {
            let (why, text) = refused(kind, &format!("{scheme}?table={table}")).await;
            assert_eq!(why, ErrorKind::InvalidInput, "{text}");
        }
    }
}

#[tokio::test]
async fn nobody_there_is_said_in_time() {
    let start = std::time::Instant::now();
    for (kind, url) in [
        (Kind::Postgres, format!("postgres://a:{CANARY}@127.0.0.1:1/x?timeout=1s")),
        (Kind::MariaDb, format!("mysql://a:{CANARY}@127.0.0.1:1/x?timeout=1s")),
    ] {
        let (why, text) = refused(kind, &url).await;
        assert_eq!(why, ErrorKind::Unreachable, "{text}");
    }
    assert!(start.elapsed().as_secs() < 8);
}

#[tokio::test]
async fn missing_tables_are_said_and_the_printed_statements_make_them() {
    for kind in [Kind::Postgres, Kind::MariaDb, Kind::Sqlite] {
        let Some(url) = url(kind, "by_hand").await else { continue };
        if kind == Kind::Sqlite {
            drop(client(kind, &url.replace("by_hand", "other")).await);
        }
        let (why, text) = refused(kind, &format!("{url}&create=false")).await;
        assert_eq!(why, ErrorKind::Misconfigured, "{text}");
        assert!(text.contains("create_schema"), "{text}");
    }
    let Some(url) = url(Kind::Postgres, "by_hand").await else { return };
    let other = url.replace("by_hand", "elsewhere");
    let lock =
        lockwell_sql::PostgresLock::connect(&other.parse().expect("an address")).await.expect("connects");
    let server = postgres().await.expect("it runs");
    server.admin_sql(&lock.schema().replace("elsewhere", "by_hand")).await.expect("the statements work");
    let locks = client(Kind::Postgres, &format!("{url}&create=false")).await;
    locks.lock("a").await.expect("a free lock").release().await.expect("held");
}

/// Locks, queues, renews and releases with the documented rights alone.
async fn least(kind: Kind, url: &str) {
    let url = format!("{url}&create=false");
    let (one, two) = (client(kind, &url).await, client(kind, &url).await);
    let guard = one.lock("a").await.expect("a free lock");
    let waiting = tokio::spawn(two.lock("a").into_future());
    wait_for(&one, "a", 1).await;
    guard.release().await.expect("held");
    waiting.await.expect("no panic").expect("its turn").release().await.expect("held");

    let writer = one.write("a").await.expect("a free lock");
    let waiting = tokio::spawn(two.read("a").into_future());
    wait_for(&one, "a", 1).await;
    let reader = writer.downgrade().await.expect("held");
    waiting.await.expect("no panic").expect("readers meet").release().await.expect("held");

    let permits = [one.permit("b", 2).await.expect("a permit"), two.permit("b", 2).await.expect("a permit")];
    assert!(one.permit("b", 2).try_now().await.expect("an answer").is_none());
    let waiting = tokio::spawn(one.permit("b", 2).into_future());
    wait_for(&two, "b", 1).await;
    let held = two.held().await.expect("an answer");
    let held: Vec<_> = held.iter().map(|lock| (lock.name.as_str(), lock.holders.len())).collect();
    assert_eq!(held, [("a", 1), ("b", 2)]);
    for permit in permits {
        permit.release().await.expect("held");
    }
    waiting.await.expect("no panic").expect("a permit is free").release().await.expect("held");

    let guard = one.lock("c").await.expect("a free lock");
    guard.write_record("x").await.expect("held");
    assert_eq!(two.record("c").await.expect("an answer").expect("it was written").value, b"x");
    guard.release().await.expect("held");

    assert_eq!(two.force_release("a").await.expect("an answer"), 1);
    drop(reader);
    let dead = claim("a", Mode::Shared, std::time::Duration::from_millis(100));
    one.backend().acquire(&dead).await.expect("an answer").expect("a free lock");
    two.lock("a").await.expect("the lease of the dead ends").release().await.expect("held");
    assert!(!format!("{one:?} {two:?}").contains(CANARY));
}

async fn without_update(kind: Kind, url: &str) {
    let locks = Locks::new(backend(kind, &format!("{url}&create=false")).await.expect("reading is allowed"))
        .expect("a keeper");
    for request in [locks.lock("a"), locks.read("a"), locks.permit("a", 2)] {
        let error = request.await.expect_err("writing is not");
        assert_eq!(error.kind(), ErrorKind::Refused, "{error:#}");
    }
}

/// The statements of docs/production.md that grant the rights on this server, on tables with another name.
fn documented(server: &str, table: &str) -> String {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/production.md");
    let guide = std::fs::read_to_string(guide).expect("the guide");
    let (_, block) = guide.split_once(&format!("```sql\n-- rights: {server}\n")).expect("the rights");
    let (statements, _) = block.split_once("```").expect("the end of the block");
    statements.replace("lockwell_locks", table)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_rights_are_enough_on_postgres() {
    let Some(url) = url(Kind::Postgres, "rights").await else { return };
    drop(client(Kind::Postgres, &url).await);
    let server = postgres().await.expect("it runs");
    let sql = format!(
        "CREATE ROLE app LOGIN PASSWORD '{CANARY}'; CREATE ROLE reader LOGIN;
         {}
         GRANT SELECT ON rights, rights_waiters, rights_clients, rights_members, rights_state, rights_mark TO reader;",
        documented("postgres", "rights")
    );
    server.admin_sql(&sql).await.expect("an administrator");
    least(Kind::Postgres, &url.replace("postgres@", &format!("app:{CANARY}@"))).await;
    without_update(Kind::Postgres, &url.replace("postgres@", "reader@")).await;
    let (why, text) = refused(Kind::Postgres, &url.replace("/postgres?", "/nothing?")).await;
    assert_eq!(why, ErrorKind::Misconfigured, "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_rights_are_enough_on_mysql_and_mariadb() {
    for server in crate::mysql::servers().await {
        least_on(server).await;
    }
}

async fn least_on(server: &MariaDb) {
    let url = format!("{}?table=rights", server.url());
    drop(client(Kind::MariaDb, &url).await);
    let sql = format!(
        "CREATE USER app@'%' IDENTIFIED BY '{CANARY}'; CREATE USER reader@'%';
         {}
         GRANT SELECT ON lockwell.rights TO reader@'%';
         GRANT SELECT ON lockwell.rights_members TO reader@'%';
         GRANT SELECT ON lockwell.rights_waiters TO reader@'%';
         GRANT SELECT ON lockwell.rights_clients TO reader@'%';",
        documented("mysql", "lockwell.rights")
    );
    server.admin_sql(&sql).await.expect("an administrator");
    least(Kind::MariaDb, &url.replace("root@", &format!("app:{CANARY}@"))).await;
    without_update(Kind::MariaDb, &url.replace("root@", "reader@")).await;
    let (why, text) = refused(Kind::MariaDb, &url.replace("root@", "app:canary-wrong@")).await;
    assert_eq!(why, ErrorKind::Refused, "{text}");
    let (why, text) = refused(Kind::MariaDb, &url.replace("/lockwell?", "/nothing?")).await;
    assert_eq!(why, ErrorKind::Misconfigured, "{text}");
}
