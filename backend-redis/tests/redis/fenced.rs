//! Writes that only the latest holder can make.

use std::time::Duration;

use lockwell_core::{Error, ErrorKind, FencingToken, Grant, Moment};
use lockwell_redis::FencedWrite;
use redis::aio::MultiplexedConnection;
use testbed::Redis;

use crate::asking::claim;
use crate::servers::{client, redis, tell};

const FENCE: &str = "{report}\u{1f}fence";

/// What a holder has in hand that was granted this token.
fn granted(token: u64) -> Grant {
    Grant::new(&claim("report", Duration::from_secs(10)), FencingToken::new(token), Moment::now())
}

async fn connect(server: &Redis) -> MultiplexedConnection {
    let client = redis::Client::open(server.url()).expect("an address");
    client.get_multiplexed_async_connection().await.expect("a connection")
}

async fn write(value: &str, grant: &Grant, conn: &mut MultiplexedConnection) -> Result<(), Error> {
    FencedWrite::new("report", value).run(grant, conn).await
}

/// What is in the data key and in the fence.
fn stored(server: &Redis) -> (String, String) {
    (tell(server, &["GET", "report"]), tell(server, &["GET", FENCE]))
}

/// It is refused, and nothing changes.
async fn refused(server: &Redis, grant: &Grant, conn: &mut MultiplexedConnection) {
    let before = stored(server);
    let error = write("stale", grant, conn).await.expect_err("a later holder has written");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error:#}");
    assert_eq!(stored(server), before);
}

#[tokio::test]
async fn the_latest_holder_writes_and_a_stale_one_does_not() {
    let Some(server) = redis().await else { return };
    let (one, two) = (client(&server.url()).await, client(&server.url()).await);
    let mut conn = connect(&server).await;
    let stale = one.lock("report").await.expect("a free lock");
    write("one", stale.grant(), &mut conn).await.expect("the latest");
    write("one again", stale.grant(), &mut conn).await.expect("the same holder");
    two.force_release("report").await.expect("an answer");
    let latest = two.lock("report").await.expect("free");
    // Nobody has written since: the data cannot know of the new holder.
    write("one once more", stale.grant(), &mut conn).await.expect("the highest that has written");
    write("two", latest.grant(), &mut conn).await.expect("the latest");
    refused(&server, stale.grant(), &mut conn).await;
    tell(&server, &["SCRIPT", "FLUSH"]);
    refused(&server, stale.grant(), &mut conn).await;
    tell(&server, &["SCRIPT", "FLUSH"]);
    write("two again", latest.grant(), &mut conn).await.expect("the latest");
    assert_eq!(stored(&server).0, "$9\r\ntwo again\r\n");
}

#[tokio::test]
async fn an_equal_token_of_another_hold_is_refused() {
    let Some(server) = redis().await else { return };
    let mut conn = connect(&server).await;
    let (mine, other) = (granted(42), granted(42));
    write("mine", &mine, &mut conn).await.expect("the first");
    refused(&server, &other, &mut conn).await;
    write("mine again", &mine, &mut conn).await.expect("the same holder");
    let fence = stored(&server).1;
    assert!(fence.contains(&format!("42:{}", mine.hold_id())), "{fence}");
    // From an unknown hold.
    tell(&server, &["SET", FENCE, "42:"]);
    refused(&server, &mine, &mut conn).await;
    write("later", &granted(43), &mut conn).await.expect("the latest");
}

#[tokio::test]
async fn tokens_are_compared_as_numbers_of_any_length() {
    let Some(server) = redis().await else { return };
    let mut conn = connect(&server).await;
    // Beyond 2^53 a script's own numbers are not exact.
    let exact = 1_u64 << 53;
    for (lower, higher) in
        [(1, 2), (9, 10), (999, 1000), (1000, 1001), (exact, exact + 1), (u64::MAX - 1, u64::MAX)]
    {
        tell(&server, &["FLUSHALL"]);
        let (stale, latest) = (granted(lower), granted(higher));
        write("stale", &stale, &mut conn).await.expect("the first");
        write("latest", &latest, &mut conn).await.expect("higher");
        refused(&server, &stale, &mut conn).await;
        write("latest again", &latest, &mut conn).await.expect("the same holder");
    }
}

#[tokio::test]
async fn data_that_expires_does_not_let_a_stale_holder_in() {
    let Some(server) = redis().await else { return };
    let mut conn = connect(&server).await;
    let short = FencedWrite::new("report", "soon gone").expires_after(Duration::from_millis(30));
    short.run(&granted(7), &mut conn).await.expect("the first");
    tokio::time::sleep(Duration::from_millis(60)).await;
    assert_eq!(stored(&server).0, "$-1\r\n");
    assert_eq!(tell(&server, &["PTTL", FENCE]), ":-1\r\n");
    refused(&server, &granted(6), &mut conn).await;
    tell(&server, &["DEL", "report"]);
    refused(&server, &granted(6), &mut conn).await;
    write("for good", &granted(8), &mut conn).await.expect("the latest");
    assert_eq!(tell(&server, &["PTTL", "report"]), ":-1\r\n");
}

#[tokio::test]
async fn several_data_keys_can_share_a_fence() {
    let Some(server) = redis().await else { return };
    let mut conn = connect(&server).await;
    let write = |key: &str, value: &str| FencedWrite::new(key, value).fence_key("reports");
    write("january", "1").run(&granted(7), &mut conn).await.expect("the first");
    write("february", "2").run(&granted(8), &mut conn).await.expect("the latest");
    let error = write("january", "3").run(&granted(7), &mut conn).await.expect_err("stale");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error:#}");
    assert_eq!(tell(&server, &["GET", "january"]), "$1\r\n1\r\n");
}

#[tokio::test]
async fn a_fence_key_of_another_kind_refuses_the_write() {
    let Some(server) = redis().await else { return };
    let mut conn = connect(&server).await;
    for spoil in [&["LPUSH", FENCE, "x"][..], &["SET", FENCE, "something else"], &["SET", FENCE, "x:y"]] {
        tell(&server, &["FLUSHALL"]);
        tell(&server, spoil);
        let error = write("mine", &granted(7), &mut conn).await.expect_err("no fence");
        assert_eq!(error.kind(), ErrorKind::KindClash, "{spoil:?}: {error:#}");
        assert_eq!(tell(&server, &["GET", "report"]), "$-1\r\n", "nothing is written");
    }
}

#[tokio::test]
async fn a_failed_connection_leaves_the_outcome_open_and_the_write_can_be_repeated() {
    let Some(server) = redis().await else { return };
    let mut conn = connect(&server).await;
    let grant = granted(7);
    write("first", &grant, &mut conn).await.expect("the first");
    tell(&server, &["CLIENT", "KILL", "TYPE", "normal"]);
    let error = write("second", &grant, &mut conn).await.expect_err("no connection");
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error:#}");
    let mut conn = connect(&server).await;
    write("second", &grant, &mut conn).await.expect("repeated");
}
