//! Fetched releases run beside those of the machine.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use testbed::{
    Durability, Error, MariaDb, Options, PgBouncer, Postgres, Redis, RedisCluster, RedisSentinel, Release,
    ZooKeeper, if_fetched,
};

/// Options for a release. `None` if it was not fetched, which is nobody's duty.
fn options(name: &str) -> Option<(Options, String)> {
    let release = Release::named(name);
    let version = if_fetched(release.version())?;
    Some((Options::new().durability(Durability::OsCache).release(release), version))
}

#[tokio::test]
async fn redis_and_valkey() {
    for name in ["redis6", "redis8", "valkey9"] {
        let Some((options, version)) = options(name) else { continue };
        let redis = Redis::start_with(&options).await.expect("it starts");
        let info = redis.command(&["INFO", "server"]).expect("an answer");
        assert!(info.contains(&format!("_version:{version}\r\n")), "{version} in {info}");
        redis.command(&["SET", "a", "1"]).expect("an answer");
        redis.kill().expect("it runs");
        redis.restart().await.expect("it starts again");
        assert_eq!(redis.command(&["GET", "a"]).expect("an answer"), "$1\r\n1\r\n");
        match RedisCluster::start(3, &options).await {
            Err(error) => assert!(matches!(error, Error::TooOld(_)) && name == "redis6", "{name}: {error}"),
            Ok(_) => assert_ne!(name, "redis6"),
        }
        let group = RedisSentinel::start_with(&options).await.expect("a group");
        let info = group.sentinels()[0].command(&["INFO", "server"]).expect("an answer");
        assert!(info.contains(&format!("_version:{version}\r\n")), "{version} in {info}");
    }
}

#[tokio::test]
async fn mariadb_and_mysql() {
    for name in ["mariadb11", "mysql9"] {
        let Some((options, version)) = options(name) else { continue };
        let server = MariaDb::start_with(&options).await.expect("it starts");
        let said = server.admin_sql("SELECT VERSION(); CREATE TABLE t (a INT)").await.expect("an answer");
        assert!(said.starts_with(&version), "{version} in {said}");
        server.kill().expect("it runs");
        server.restart().await.expect("it starts again");
        assert_eq!(server.admin_sql("SELECT COUNT(*) FROM t").await.expect("an answer"), "0\n");
    }
}

#[tokio::test]
async fn postgres_and_pgbouncer() {
    let (Some((server, version)), Some((pooler, _))) = (options("postgres18"), options("pgbouncer1.26"))
    else {
        return;
    };
    let server = Postgres::start_with(&server).await.expect("it starts");
    let said = server.admin_sql("SHOW server_version; CREATE TABLE t (a INT)").await.expect("an answer");
    assert!(said.starts_with(&version), "{version} in {said}");
    server.kill().expect("it runs");
    server.restart().await.expect("it starts again");
    assert_eq!(server.admin_sql("SELECT COUNT(*) FROM t").await.expect("an answer"), "0\n");
    PgBouncer::start_with(&server, &pooler).await.expect("it starts");
}

#[tokio::test]
async fn zookeeper() {
    let Some((options, version)) = options("zookeeper3.9") else { return };
    let server = ZooKeeper::start_with(&options).await.expect("it starts");
    let said = server.four_letter("srvr").expect("an answer");
    assert!(said.contains(&format!("version: {version}")), "{version} in {said}");
    // A session, by an old form of the request that servers still take: version, zxid, timeout, id and
    // password.
    let mut request = vec![0, 0, 0, 44, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0];
    request.extend([0; 8]);
    request.extend([0, 0, 0, 16]);
    request.extend([0; 16]);
    let mut stream = TcpStream::connect(server.addr()).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a limit");
    stream.write_all(&request).expect("it listens");
    stream.read_exact(&mut [0; 4]).expect("an answer to a client");
}

#[tokio::test]
async fn a_release_of_another_server_is_refused() {
    let options = Options::new().release(Release::named("valkey9"));
    Postgres::start_with(&options).await.expect_err("a Valkey is no Postgres");
}
