//! What all tests rely on and would not notice: a server that is paused, killed or cut off is so as a whole,
//! settings arrive, and nothing is left behind.

use std::{
    fs,
    future::Future,
    net::{TcpListener, TcpStream},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use testbed::{
    Durability, Error, MariaDb, Options, PgBouncer, Postgres, Redis, Release, Server, ZooKeeper,
    ZooKeeperEnsemble, if_fetched, if_installed,
};

/// Long enough for a slow machine.
const TIMEOUT: Duration = Duration::from_secs(30);

const TABLE: &str = "CREATE TABLE kept (word varchar(20)); INSERT INTO kept VALUES ('first'), ('second');";

/// Takes a server through stop, kill, pause and restart. `remembers` fails if the data are not there; it is
/// called when the server runs.
async fn whole_life<F: Future<Output = ()>>(server: &Server, remembers: impl Fn() -> F) {
    let (folder, addr) = (server.folder().to_owned(), server.addr());
    remembers().await;
    assert!(server.restart().await.is_err(), "it runs, so it can not be started");

    let first = server.pid().expect("it runs");
    server.stop().await.expect("stops");
    assert!(server.pid().is_none() && !exists(first), "stopped");
    assert!(TcpStream::connect(addr).is_err(), "stopped, so nobody listens");
    assert!(server.pause().is_err(), "nothing to pause");
    server.stop().await.expect("stopping twice does no harm");
    server.restart().await.expect("restarts");
    assert_ne!(server.pid(), Some(first));
    assert_eq!(server.addr(), addr);
    remembers().await;

    let second = server.pid().expect("it runs");
    server.kill().expect("kills");
    assert!(!exists(second), "killed");
    server.kill().expect("killing twice does no harm");
    // It does not take somebody else on its port for the server, and waits until they have gone.
    let stranger = TcpListener::bind(addr).expect("killed, so the port is free");
    let leaves = thread::spawn(move || {
        thread::sleep(Duration::from_millis(700));
        drop(stranger);
    });
    server.restart().await.expect("restarts when the stranger has gone");
    leaves.join().expect("the stranger has gone");
    remembers().await;

    // A paused server can be stopped and killed too.
    server.pause().expect("pauses");
    assert!(TcpStream::connect(addr).is_ok(), "the kernel takes connections for a paused server");
    server.stop().await.expect("stops a paused server");
    server.restart().await.expect("restarts");
    server.pause().expect("pauses");
    server.kill().expect("kills a paused server");
    server.restart().await.expect("restarts");
    remembers().await;
    assert!(folder.is_dir());
}

/// Waits until something holds, and fails if that takes too long.
async fn eventually(what: &str, holds: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !holds().await {
        assert!(Instant::now() < deadline, "not within {TIMEOUT:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Fails if anything is left of a server that has been dropped.
fn assert_gone(pid: u32, folder: &Path) {
    let deadline = Instant::now() + TIMEOUT;
    while exists(pid) || folder.exists() {
        assert!(Instant::now() < deadline, "left behind: {pid} or {}", folder.display());
        thread::sleep(Duration::from_millis(10));
    }
}

fn exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[tokio::test]
async fn a_postgres_with_its_pooler_lives() {
    let Some(postgres) = if_installed(Postgres::start().await) else { return };
    postgres.admin_sql(TABLE).await.expect("a table");
    let remembers = async || {
        let rows = postgres.admin_sql("SELECT word, 7 FROM kept ORDER BY word").await.expect("rows");
        assert_eq!(rows, "first|7\nsecond|7\n");
    };
    whole_life(&postgres, &remembers).await;
    let error = postgres.admin_sql("SELECT 1; SELECT nothing;").await.expect_err("no such column");
    assert!(error.to_string().contains("nothing"), "{error}");
    if let Some(pooler) = if_installed(PgBouncer::start_with(&postgres, &Options::new()).await) {
        let is_there = async || assert!(TcpStream::connect(pooler.addr()).is_ok());
        whole_life(&pooler, &is_there).await;
    }

    // A clone keeps it alive, and the last one takes it away.
    let (pid, folder) = (postgres.pid().expect("runs"), postgres.folder().to_owned());
    let clone = postgres.clone();
    drop(postgres);
    clone.admin_sql("SELECT 1").await.expect("still there");
    drop(clone);
    assert_gone(pid, &folder);
}

#[tokio::test]
async fn a_redis_lives() {
    let options = Options::new().setting("requirepass", "two words");
    let Some(redis) = if_installed(Redis::start_with(&options).await) else { return };
    assert_eq!(redis.command(&["SET", "kept", "word"]).expect("an answer"), "+OK\r\n");
    let remembers =
        async || assert_eq!(redis.command(&["GET", "kept"]).expect("an answer"), "$4\r\nword\r\n");
    whole_life(&redis, &remembers).await;
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
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!busy.is_finished());
    postgres.resume().expect("resumes");
    busy.await.expect("the task").expect("it goes on");
    assert_eq!(postgres.admin_sql("SELECT count(*) FROM t").await.expect("rows"), "100\n");
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
    let options = Options::new().release(Release::named("valkey9"));
    Postgres::start_with(&options).await.expect_err("a Valkey is no Postgres");
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

#[tokio::test]
async fn a_zookeeper_reads_the_classes_of_an_earlier_one_unless_it_is_measured() {
    let options = Options::new().durability(Durability::OsCache);
    let Some(first) = if_installed(ZooKeeper::start_with(&options).await) else { return };
    let measured = ZooKeeper::start_with(&options.measured()).await.expect("starts");
    let maps = |server: &ZooKeeper| {
        let pid = server.pid().expect("runs");
        fs::read_to_string(format!("/proc/{pid}/maps")).expect("what it has in its memory")
    };
    let file = "/target/testbed/zookeeper-";
    assert!(maps(&first).contains(file), "{}", first.log_tail());
    assert!(!maps(&measured).contains(file));
}

#[tokio::test]
async fn a_server_of_an_ensemble_is_cut_off_and_comes_back() {
    let options = Options::new().durability(Durability::OsCache);
    let Some(ensemble) = if_installed(ZooKeeperEnsemble::start_with_links(3, &options).await) else { return };
    let leader = ensemble.leader().await.expect("a leader");
    let follower = ensemble.followers().await.expect("followers")[0];

    // A follower: the others do not care, and clients reach it.
    ensemble.isolate(follower).expect("has links");
    let lonely = async || !ensemble.followers().await.expect("followers").contains(&follower);
    eventually("it follows no longer", lonely).await;
    let answer = ensemble.servers()[follower].four_letter("srvr").expect("clients reach it");
    assert!(answer.contains("not currently serving"), "{answer}");
    ensemble.rejoin(follower).expect("has links");
    ensemble.ready().await.expect("it is back");

    // The leader: the others choose one of them.
    ensemble.isolate(leader).expect("has links");
    eventually("another one leads", async || ensemble.leader().await.is_ok_and(|new| new != leader)).await;
    ensemble.rejoin(leader).expect("has links");
    ensemble.ready().await.expect("all are there");
}
