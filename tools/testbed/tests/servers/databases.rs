//! Postgres and `MariaDB`.

use std::{
    fs,
    net::TcpStream,
    path::Path,
    time::{Duration, Instant},
};

use testbed::{
    Durability, Error, MariaDb, Options, PgBouncer, Postgres, Proxy, Release, if_fetched, if_installed,
};

use crate::life::{assert_gone, eventually, whole_life};

const TABLE: &str = "CREATE TABLE kept (word varchar(20)); INSERT INTO kept VALUES ('first'), ('second');";
const SELECT: &str = "SELECT word, 7 FROM kept ORDER BY word";

#[tokio::test]
async fn postgres_lives() {
    let Some(postgres) = if_installed(Postgres::start().await) else { return };
    postgres.admin_sql(TABLE).await.expect("a table");
    let remembers = async || {
        let rows = postgres.admin_sql(SELECT).await.expect("rows");
        assert_eq!(rows, "first|7\nsecond|7\n");
    };
    whole_life(&postgres, &remembers).await;

    let proxy = Proxy::start(postgres.addr()).await.expect("a proxy");
    assert_eq!(postgres.url(), format!("postgres://postgres@{}/postgres", postgres.addr()));
    assert_eq!(postgres.url_via(proxy.addr()), format!("postgres://postgres@{}/postgres", proxy.addr()));
    let error = postgres.admin_sql("SELECT 1; SELECT nothing;").await.expect_err("no such column");
    assert!(error.to_string().contains("nothing"), "{error}");

    // A clone keeps it alive, and the last one takes it away.
    let (pid, folder) = (postgres.pid().expect("runs"), postgres.folder().to_owned());
    let clone = postgres.clone();
    drop(postgres);
    clone.admin_sql("SELECT 1").await.expect("still there");
    drop(clone);
    assert_gone(pid, &folder);
}

#[tokio::test]
async fn pgbouncer_lives() {
    let options = Options::new().durability(Durability::Fast);
    let postgres = Postgres::start_with(&options).await.expect("starts");
    let Some(pooler) = if_installed(PgBouncer::start_with(&postgres, &Options::new()).await) else { return };
    assert_eq!(pooler.url(), postgres.url_via(pooler.addr()));
    let is_there = async || assert!(TcpStream::connect(pooler.addr()).is_ok());
    whole_life(&pooler, &is_there).await;

    let (pid, folder) = (pooler.pid().expect("runs"), pooler.folder().to_owned());
    drop(pooler);
    assert_gone(pid, &folder);
    assert!(postgres.pid().is_some(), "the server behind it is another");
}

#[tokio::test]
async fn mariadb_lives() {
    let Some(mariadb) = if_installed(MariaDb::start().await) else { return };
    mariadb.admin_sql(TABLE).await.expect("a table");
    let remembers = async || {
        let rows = mariadb.admin_sql(SELECT).await.expect("rows");
        assert_eq!(rows, "first\t7\nsecond\t7\n");
    };
    whole_life(&mariadb, &remembers).await;

    assert_eq!(mariadb.url(), format!("mysql://root@{}/lockwell", mariadb.addr()));
    let error = mariadb.admin_sql("SELECT nothing").await.expect_err("no such column");
    assert!(error.to_string().contains("nothing"), "{error}");

    let (pid, folder) = (mariadb.pid().expect("runs"), mariadb.folder().to_owned());
    drop(mariadb);
    assert_gone(pid, &folder);
}

/// Postgres puts each client's process into a session of its own: they have to stop with the first one.
#[tokio::test(flavor = "multi_thread")]
async fn a_paused_postgres_does_nothing() {
    let options = Options::new().durability(Durability::Fast).parent("/dev/shm");
    let Some(postgres) = if_installed(Postgres::start_with(&options).await) else { return };
    assert!(postgres.folder().starts_with("/dev/shm"));
    postgres.admin_sql("CREATE TABLE t (n int)").await.expect("a table");
    let busy = postgres.clone();
    let busy = tokio::spawn(async move {
        let block = "BEGIN FOR n IN 1..100 LOOP INSERT INTO t VALUES (n); COMMIT; PERFORM pg_sleep(0.05); END LOOP; END";
        busy.admin_sql(&format!("DO $$ {block} $$")).await
    });
    let counts = async || postgres.admin_sql("SELECT count(*) FROM t").await.expect("rows") != "0\n";
    eventually("the other client works", counts).await;

    postgres.pause().expect("pauses");
    let states = states_of_tree(postgres.pid().expect("runs"));
    assert!(states.len() > 5, "postmaster, helpers and the client's: {states:?}");
    // A zombie does nothing either.
    assert!(states.iter().all(|state| state == "T" || state == "Z"), "{states:?}");
    let begun = Instant::now();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!busy.is_finished());
    postgres.resume().expect("resumes");
    busy.await.expect("the task").unwrap_or_else(|error| panic!("after {:?}: {error}", begun.elapsed()));
    assert_eq!(postgres.admin_sql("SELECT count(*) FROM t").await.expect("rows"), "100\n");
}

#[tokio::test]
async fn settings_arrive_and_failures_show_the_log() {
    let options = Options::new().durability(Durability::OsCache).setting("max_connections", "7");
    let Some(postgres) = if_installed(Postgres::start_with(&options).await) else { return };
    let shown = postgres.admin_sql("SHOW max_connections; SHOW fsync; SHOW synchronous_commit").await;
    assert_eq!(shown.expect("rows"), "7\noff\non\n");
    let options = Options::new().durability(Durability::Fast).setting("max_connections", "77");
    let Some(mariadb) = if_installed(MariaDb::start_with(&options).await) else { return };
    let shown = mariadb.admin_sql("SELECT @@max_connections, @@innodb_flush_log_at_trx_commit").await;
    assert_eq!(shown.expect("rows"), "77\t0\n");

    let options = Options::new().setting("no_such_setting", "1");
    for error in [
        Postgres::start_with(&options).await.map(drop).expect_err("no such setting"),
        MariaDb::start_with(&options).await.map(drop).expect_err("no such setting"),
    ] {
        assert!(matches!(error, Error::Startup { .. }) && !error.is_not_installed(), "{error}");
        assert!(
            error.to_string().contains("no_such_setting") || error.to_string().contains("no-such"),
            "{error}"
        );
    }
    let error = Postgres::start_with(&Options::new().parent("/no/such/folder")).await.expect_err("no folder");
    assert!(error.to_string().contains("/no/such/folder"), "{error}");
}

/// What `initdb` says.
const INITDB: &str = "performing post-bootstrap initialization";

#[tokio::test]
async fn a_data_folder_is_made_once_and_copied_unless_the_server_is_measured() {
    let options = || Options::new().durability(Durability::Fast);
    let Some(first) = if_installed(Postgres::start_with(&options()).await) else { return };
    let second = Postgres::start_with(&options().setting("max_connections", "7")).await.expect("starts");
    assert!(!second.log_tail().contains(INITDB), "{}", second.log_tail());
    let measured = Postgres::start_with(&options().measured()).await.expect("starts");
    assert!(measured.log_tail().contains(INITDB), "{}", measured.log_tail());

    first.admin_sql(TABLE).await.expect("a table");
    for other in [&second, &measured] {
        other.admin_sql(TABLE).await.expect("no such table yet");
        let rows = other.admin_sql("SHOW data_directory; SHOW server_encoding; SELECT usename FROM pg_user");
        let data = other.folder().join("data").display().to_string();
        assert_eq!(rows.await.expect("rows"), format!("{data}\nUTF8\npostgres\n"));
    }
}

#[tokio::test]
async fn each_mysql_has_an_id_of_its_own() {
    let options = Options::new().durability(Durability::Fast).release(Release::named("mysql9"));
    let mut ids = Vec::new();
    for options in [options.clone(), options.clone(), options.measured()] {
        let Some(server) = if_fetched(MariaDb::start_with(&options).await) else { return };
        ids.push(server.admin_sql("SELECT @@server_uuid").await.expect("rows"));
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 3, "{ids:?}");
}

/// The states of a process and its descendants.
fn states_of_tree(root: u32) -> Vec<String> {
    let mut found = vec![root.to_string()];
    let mut states = Vec::new();
    let mut next = 0;
    while let Some(pid) = found.get(next).cloned() {
        next += 1;
        let stat = fs::read_to_string(Path::new("/proc").join(&pid).join("stat")).unwrap_or_default();
        let fields = stat.rsplit(") ").next().unwrap_or_default();
        states.extend(fields.split(' ').next().map(str::to_owned));
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        found.extend(children.split_whitespace().map(str::to_owned));
    }
    states
}
