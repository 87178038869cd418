//! Redis and `ZooKeeper`.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
};

use testbed::{Durability, Options, Redis, ZooKeeper, if_installed};

use crate::life::{TIMEOUT, assert_gone, whole_life};

#[tokio::test]
async fn redis_lives() {
    let Some(redis) = if_installed(Redis::start().await) else { return };
    let addr = redis.addr();
    assert_eq!(redis.url(), format!("redis://{addr}"));
    assert_eq!(ask(addr, "SET kept word\r\nQUIT\r\n"), "+OK\r\n+OK\r\n");
    let remembers = async || assert_eq!(ask(addr, "GET kept\r\nQUIT\r\n"), "$4\r\nword\r\n+OK\r\n");
    whole_life(&redis, &remembers).await;

    let (pid, folder) = (redis.pid().expect("runs"), redis.folder().to_owned());
    drop(redis);
    assert_gone(pid, &folder);
}

#[tokio::test]
async fn a_fast_redis_forgets() {
    let options = Options::new().durability(Durability::Fast).setting("maxclients", "17");
    let Some(redis) = if_installed(Redis::start_with(&options).await) else { return };
    let addr = redis.addr();
    assert!(ask(addr, "SET lost word\r\nCONFIG GET maxclients\r\nQUIT\r\n").contains("17"));
    redis.kill().expect("kills");
    redis.restart().await.expect("restarts");
    assert_eq!(ask(addr, "GET lost\r\nQUIT\r\n"), "$-1\r\n+OK\r\n");
}

#[tokio::test]
async fn zookeeper_lives() {
    let options = Options::new().setting("-Duser.name", "somebody");
    let Some(zookeeper) = if_installed(ZooKeeper::start_with(&options).await) else { return };
    let addr = zookeeper.addr();
    assert!(zookeeper.four_letter("envi").expect("an answer").contains("user.name=somebody"));
    assert_eq!(zookeeper.url(), format!("zk://{addr}"));
    assert!(zookeeper.four_letter("srvr").expect("an answer").contains("Mode: standalone"));
    let answers = async || assert_eq!(ask(addr, "ruok"), "imok");
    whole_life(&zookeeper, &answers).await;

    let (pid, folder) = (zookeeper.pid().expect("runs"), zookeeper.folder().to_owned());
    drop(zookeeper);
    assert_gone(pid, &folder);
}

#[tokio::test]
async fn a_zookeeper_reads_the_classes_of_an_earlier_one_unless_it_is_measured() {
    let options = Options::new().durability(Durability::OsCache);
    let Some(first) = if_installed(ZooKeeper::start_with(&options).await) else { return };
    let measured = ZooKeeper::start_with(&options.measured()).await.expect("starts");
    let maps = |server: &ZooKeeper| {
        let pid = server.pid().expect("runs");
        std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("what it has in its memory")
    };
    let file = "/target/testbed/zookeeper-";
    assert!(maps(&first).contains(file), "{}", first.log_tail());
    assert!(!maps(&measured).contains(file));
}

fn ask(addr: SocketAddr, question: &str) -> String {
    let mut stream = TcpStream::connect(addr).expect("connects");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    stream.write_all(question.as_bytes()).expect("writes");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("reads");
    answer
}
