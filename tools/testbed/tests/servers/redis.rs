//! What the backend's tests need of a single Redis: passwords, replicas, its Unix socket, commands.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
};

use testbed::{Redis, if_installed};

use crate::{
    life::{eventually, whole_life},
    options, say,
};

#[tokio::test]
async fn redis_takes_commands() {
    let limits =
        options().setting("client-output-buffer-limit", "normal 1mb 1mb 7").setting("maxmemory", "9mb");
    let Some(redis) = if_installed(Redis::start_with(&limits).await) else { return };
    assert_eq!(say(&redis, &["SET", "a key", "its value"]), "+OK\r\n");
    assert_eq!(say(&redis, &["GET", "a key"]), "$9\r\nits value\r\n");
    assert!(say(&redis, &["CONFIG", "GET", "maxmemory"]).contains("9437184"));
    assert!(
        say(&redis, &["CONFIG", "GET", "client-output-buffer-limit"]).contains("normal 1048576 1048576 7")
    );
    assert!(say(&redis, &["INFO", "commandstats"]).contains("cmdstat_get:calls=1,"));
    assert!(say(&redis, &["NONSENSE"]).starts_with("-ERR unknown command"));
    assert!(say(&redis, &["ACL", "SETUSER", "alice", "on", ">secret", "~*", "+get"]).starts_with("+OK"));
    assert_eq!(
        redis.command_as("alice", "secret", &["GET", "a key"]).expect("an answer"),
        "$9\r\nits value\r\n"
    );
    let refused = redis.command_as("alice", "secret", &["SET", "a key", "x"]).expect("an answer");
    assert!(refused.starts_with("-NOPERM"), "{refused}");
}

#[tokio::test]
async fn redis_listens_on_a_unix_socket() {
    let Some(redis) = if_installed(Redis::start_with(&options()).await) else { return };
    assert!(redis.unix_socket().starts_with(redis.folder()));
    assert_eq!(ping(&redis), "+PONG\r\n+OK\r\n");
    redis.kill().expect("kills");
    redis.restart().await.expect("restarts");
    assert_eq!(ping(&redis), "+PONG\r\n+OK\r\n");

    let named = Redis::start_with(&options().setting("unixsocket", "other.sock")).await.expect("starts");
    assert!(named.unix_socket().ends_with("other.sock"));
    assert_eq!(ping(&named), "+PONG\r\n+OK\r\n");
}

fn ping(redis: &Redis) -> String {
    let mut stream = UnixStream::connect(redis.unix_socket()).expect("connects");
    stream.write_all(b"PING\r\nQUIT\r\n").expect("writes");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("reads");
    answer
}

#[tokio::test]
async fn a_redis_with_a_password_lives() {
    let Some(redis) = if_installed(Redis::start_with(&options().setting("requirepass", "two words")).await)
    else {
        return;
    };
    assert_eq!(say(&redis, &["SET", "kept", "word"]), "+OK\r\n");
    let refused = redis.command_as("default", "wrong", &["GET", "kept"]).expect("an answer");
    assert!(refused.starts_with("-NOAUTH"), "{refused}");
    let remembers = async || assert_eq!(say(&redis, &["GET", "kept"]), "$4\r\nword\r\n");
    whole_life(&redis, &remembers).await;
}

#[tokio::test]
async fn a_redis_takes_its_users_from_a_file() {
    let mut users = tempfile::NamedTempFile::new().expect("a file");
    writeln!(users, "user default on nopass -@all\nuser admin on >secret ~* &* +@all").expect("writes");
    let path = users.path().to_str().expect("text");
    let Some(redis) = if_installed(Redis::start_with(&options().setting("aclfile", path)).await) else {
        return;
    };
    assert!(say(&redis, &["GET", "a"]).starts_with("-NOPERM"));
    let admin = |words: &[&str]| redis.command_as("admin", "secret", words).expect("an answer");
    assert_eq!(admin(&["SET", "a", "b"]), "+OK\r\n");
    redis.kill().expect("kills");
    redis.restart().await.expect("restarts");
    assert_eq!(admin(&["GET", "a"]), "$1\r\nb\r\n");
}

#[tokio::test]
async fn a_redis_replica_follows() {
    for options in [options(), options().setting("requirepass", "secret")] {
        let Some(master) = if_installed(Redis::start_with(&options).await) else { return };
        assert_eq!(say(&master, &["SET", "early", "1"]), "+OK\r\n");
        let replica = Redis::start_replica(master.addr(), &options).await.expect("starts");
        assert_eq!(say(&replica, &["GET", "early"]), "$1\r\n1\r\n");
        assert!(say(&replica, &["SET", "early", "2"]).starts_with("-READONLY"));
        replica.kill().expect("kills");
        assert_eq!(say(&master, &["SET", "late", "2"]), "+OK\r\n");
        replica.restart().await.expect("restarts");
        eventually("it catches up", async || say(&replica, &["GET", "late"]) == "$1\r\n2\r\n").await;
    }
}
