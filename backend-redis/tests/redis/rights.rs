//! The fewest rights that are enough, and what is said when one is missing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockwell_core::{Error, ErrorKind, Locks, Renewal, Requirement, Result};
use testbed::Redis;

use crate::logs;
use crate::servers::{
    backend, client, is_redis_6, is_redis_7, keys, on_disk, redis, redis_with, redlock_url, refusal, soon,
    tell, until,
};

/// The rights as docs/redis.md tells them.
const RIGHTS: &str = include_str!("minimal.acl");

const PASSWORD: &str = "canary-secret-123";

#[test]
fn the_guide_has_these_rights() {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/redis.md");
    assert!(std::fs::read_to_string(guide).expect("the guide").contains(RIGHTS.trim_end()));
}

fn rights() -> Vec<&'static str> {
    RIGHTS.split_whitespace().collect()
}

/// Whether the server says on connecting which rights a user has.
fn can_be_asked() -> bool {
    is_redis_7("answer to which rights a user has")
}

fn without(missing: &str) -> Vec<&'static str> {
    assert!(rights().contains(&missing), "{missing}");
    rights().into_iter().filter(|word| *word != missing).collect()
}

/// Makes a user with these rights and no others, and returns the server's address for it.
fn url_of(server: &Redis, user: &str, rights: &[&str]) -> String {
    let password = format!(">{PASSWORD}");
    let mut command = vec!["ACL", "SETUSER", user, "on", &password];
    command.extend(rights);
    tell(server, &command);
    format!("redis://{user}:{PASSWORD}@{}", server.addr())
}

fn redlock_url_of(nodes: &[Redis], user: &str, rights: &[&str]) -> String {
    for node in nodes {
        url_of(node, user, rights);
    }
    redlock_url(nodes).replace("://", &format!("://{user}:{PASSWORD}@"))
}

async fn three() -> Option<[Redis; 3]> {
    let options = on_disk();
    Some([redis_with(&options).await?, redis_with(&options).await?, redis_with(&options).await?])
}

/// Every operation that there is, with a wait that must be ended by a wake-up. Says how long the hand-over
/// took.
async fn everything(url: &str) -> Result<Duration> {
    let backend = backend(url).await?;
    let (one, two) = (Locks::new(Arc::clone(&backend)).expect("a keeper"), client(url).await);
    let guard = one.lock("a").await?;
    match backend.renew(&[guard.grant().clone()], soon()).await.remove(0) {
        Renewal::Renewed(_) => (),
        Renewal::Unknown(error) => return Err(error),
        other => panic!("{other:?}"),
    }
    assert!(two.lock("a").try_now().await?.is_none());
    let waiting = tokio::spawn(two.lock("a").into_future());
    while one.inspect("a").await?.waiters == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let given_up = two.lock("a").wait(Duration::from_millis(50)).await;
    assert_eq!(given_up.expect_err("held").kind(), ErrorKind::TimedOut);
    let start = Instant::now();
    guard.release().await?;
    let guard = waiting.await.expect("no panic")?;
    let took = start.elapsed();
    let waiting = tokio::spawn(two.lock("a").into_future());
    while one.inspect("a").await?.waiters == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(one.force_release("a").await?, 1);
    waiting.await.expect("no panic")?.release().await?;
    assert_eq!(guard.release().await.expect_err("not held").kind(), ErrorKind::Lost);
    every_mode(&one, &two).await?;
    Ok(took)
}

/// The same with readers, a writer that becomes one of them, and a semaphore.
async fn every_mode(one: &Locks, two: &Locks) -> Result<()> {
    let writer = one.write("a").await?;
    let waiting = tokio::spawn(two.read("a").into_future());
    while one.inspect("a").await?.waiters == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let reader = writer.downgrade().await?;
    let second = waiting.await.expect("no panic")?;
    let renewals = one.backend().renew(&[reader.grant().clone(), second.grant().clone()], soon()).await;
    assert!(renewals.iter().all(|one| matches!(one, Renewal::Renewed(_))), "{renewals:?}");
    second.release().await?;
    assert_eq!(one.force_release("a").await?, 1);
    assert_eq!(reader.release().await.expect_err("not held").kind(), ErrorKind::Lost);
    if one.capabilities().promises(Requirement::Permits) {
        let permits = [one.permit("a", 2).await?, two.permit("a", 2).await?];
        let given_up = two.permit("a", 2).wait(Duration::from_millis(50)).await;
        assert_eq!(given_up.expect_err("taken").kind(), ErrorKind::TimedOut);
        for permit in permits {
            permit.release().await?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_rights_are_enough() {
    let Some(server) = redis().await else { return };
    let url = url_of(&server, "app", &rights());
    let took = everything(&url).await.expect("allowed");
    assert!(took < Duration::from_millis(500), "{took:?}: nobody was woken");
    // The scripts are sent once more by their text.
    tell(&server, &["SCRIPT", "FLUSH"]);
    everything(&url).await.expect("allowed");
    until("nothing is left", || keys(&server).is_empty()).await;
    let guard = client(&url).await.lock("recorded").await.expect("allowed");
    guard.write_record("x").await.expect("allowed");
    assert_eq!(guard.read_record().await.expect("allowed").expect("it was written").value, b"x");
    let mut reset = vec!["~other:*", "resetchannels", "&other:*"];
    reset.splice(0..0, rights());
    let other = format!("{}?namespace=other:", url_of(&server, "other", &reset));
    everything(&other).await.expect("the namespace is the application's choice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_rights_are_enough_for_redlock() {
    let Some(nodes) = three().await else { return };
    let url = redlock_url_of(&nodes, "app", &[&rights()[..], &["+info", "+config|get"]].concat());
    let took = everything(&url).await.expect("allowed");
    assert!(took < Duration::from_millis(500), "{took:?}: nobody was woken");
    for node in &nodes {
        until("nothing is left", || keys(node).is_empty()).await;
    }
}

fn assert_refused(error: &Error, parts: &[&str]) {
    let text = format!("{error} {error:#} {error:?}");
    assert_eq!(error.kind(), ErrorKind::Refused, "{text}");
    assert!(!error.is_retryable(), "{text}");
    assert!(parts.iter().all(|part| error.to_string().contains(part)), "{parts:?}: {text}");
    assert!(!text.contains(PASSWORD), "{text}");
}

#[tokio::test]
async fn a_missing_right_is_named_when_a_client_connects() {
    if !can_be_asked() {
        return;
    }
    let Some(server) = redis().await else { return };
    let commands: Vec<_> = rights().into_iter().filter_map(|word| word.strip_prefix('+')).collect();
    assert!(commands.len() > 15);
    for command in commands {
        let url = url_of(&server, &format!("no-{command}"), &without(&format!("+{command}")));
        let error = refusal(&url).await;
        // What runs the others is named by the server, in its own words.
        let name = if command == "eval" { "'eval'" } else { &command.to_uppercase() };
        assert_refused(&error, &["lacks", name]);
        if command != "eval" {
            assert!(error.to_string().contains("~lockwell:*") && error.to_string().contains("&lockwell:*"));
        }
    }
    assert_eq!(tell(&server, &["DBSIZE"]), ":0\r\n", "looking at the rights leaves nothing");
}

#[tokio::test]
async fn keys_and_channels_are_rights_too() {
    if !can_be_asked() {
        return;
    }
    let Some(server) = redis().await else { return };
    let error = refusal(&url_of(&server, "no-keys", &without("~lockwell:*"))).await;
    assert_refused(&error, &["GET", "SET", "~lockwell:*"]);
    let error = refusal(&url_of(&server, "no-channels", &without("&lockwell:*"))).await;
    assert_refused(&error, &["SUBSCRIBE, PUBLISH", "&lockwell:*"]);
    let url = url_of(&server, "app", &rights());
    let error = refusal(&format!("{url}?namespace=")).await;
    assert_refused(&error, &["GET", "~*"]);
    let error = refusal(&format!("{url}?wait_replicas=1")).await;
    assert_refused(&error, &["WAIT"]);
    let url = url_of(&server, "waits", &[&rights()[..], &["+wait"]].concat());
    backend(&format!("{url}?wait_replicas=1")).await.expect("with the right to wait");
}

/// Nodes that refuse a client later are not called unreachable, however often it asks.
#[tokio::test]
async fn a_password_that_is_changed_later_is_a_refusal_by_redlock_too() {
    let Some(nodes) = three().await else { return };
    let url = redlock_url_of(&nodes, "app", &[&rights()[..], &["+info", "+config|get"]].concat());
    let locks = client(&url).await;
    locks.lock("a").await.expect("a free lock").release().await.expect("held");
    for node in &nodes {
        tell(node, &["ACL", "SETUSER", "app", "resetpass", ">another"]);
        tell(node, &["CLIENT", "KILL", "USER", "app"]);
    }
    for _ in 0..3 {
        let error = locks.lock("a").wait(Duration::from_secs(5)).await.expect_err("refused");
        assert_refused(&error, &["user or password is wrong"]);
    }
}

#[tokio::test]
async fn a_node_of_redlock_says_so_too() {
    if !can_be_asked() {
        return;
    }
    let Some(nodes) = three().await else { return };
    let mut url = redlock_url_of(&nodes, "app", &[&rights()[..], &["+info", "+config|get"]].concat());
    tell(&nodes[1], &["ACL", "SETUSER", "app", "-hset"]);
    assert_refused(&refusal(&url).await, &["HSET"]);
    url = url.replace("app:", "nobody:");
    assert_refused(&refusal(&url).await, &["user or password is wrong"]);
}

/// A list of all locks reads all keys, which the smallest set does not allow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listing_needs_scan() {
    let (Some(server), Some(nodes)) = (redis().await, three().await) else { return };
    let checked = [&rights()[..], &["+info", "+config|get"]].concat();
    let more = |rights: &[&'static str]| [rights, &["+scan"]].concat();
    for (minimal, scanning) in [
        (url_of(&server, "app", &rights()), url_of(&server, "lister", &more(&rights()))),
        (redlock_url_of(&nodes, "app", &checked), redlock_url_of(&nodes, "lister", &more(&checked))),
    ] {
        let (app, lister) = (client(&minimal).await, client(&scanning).await);
        let guard = app.lock("a").await.expect("a free lock");
        assert_refused(&app.held().await.expect_err("not allowed"), &["lacks a right", "scan"]);
        // Locks that it can name are shown all the same.
        assert!(app.inspect("a").await.expect("an answer").is_held());
        let held = lister.held().await.expect("allowed");
        assert_eq!(held.iter().map(|lock| lock.name.as_str()).collect::<Vec<_>>(), ["a"]);
        guard.release().await.expect("held");
    }
}

/// A right that is taken away later is missed by the operation that needs it, which names it where the server
/// does, and what it did is taken back as far as the rights go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_that_is_taken_away_later_is_named() {
    let Some(server) = redis().await else { return };
    let locks = client(&url_of(&server, "app", &rights())).await;
    for command in ["time", "exists", "set", "evalsha"] {
        tell(&server, &["ACL", "SETUSER", "app", &format!("-{command}")]);
        let error = locks.lock("a").await.expect_err("not allowed");
        let name = match command {
            "evalsha" => "'evalsha'",
            // Of a claim in a batch, Redis 6 names neither the command nor the line.
            _ if is_redis_6() => "",
            _ => &command.to_uppercase(),
        };
        assert_refused(&error, &["lacks a right", name, "acquire \"a\""]);
        tell(&server, &["ACL", "SETUSER", "app", &format!("+{command}")]);
        assert_eq!(keys(&server), [""; 0], "{command}");
    }
    let mut guard = locks.lock("a").await.expect("a free lock");
    for command in ["pttl", "get"] {
        tell(&server, &["ACL", "SETUSER", "app", &format!("-{command}")]);
        if command == "get" {
            let error = locks.lock("a").try_now().await.expect_err("not allowed");
            assert_refused(&error, &["lacks a right"]);
        }
        let error = locks.inspect("a").await.expect_err("not allowed");
        assert_refused(&error, &["lacks a right", &command.to_uppercase(), "inspect"]);
        tell(&server, &["ACL", "SETUSER", "app", &format!("+{command}")]);
    }
    for command in ["zadd", "zrange", "zrank", "hset", "pexpire"] {
        tell(&server, &["ACL", "SETUSER", "app", &format!("-{command}")]);
        let error = locks.lock("a").wait(Duration::from_secs(3)).await.expect_err("not allowed");
        assert_refused(&error, &["lacks a right"]);
        tell(&server, &["ACL", "SETUSER", "app", &format!("+{command}")]);
        until("the place in the queue is left", || keys(&server) == ["lockwell:a"]).await;
    }
    for command in ["del", "exists"] {
        tell(&server, &["ACL", "SETUSER", "app", &format!("-{command}")]);
        let error = guard.release().await.expect_err("not allowed");
        assert_refused(&error, &["lacks a right", "release \"a\""]);
        tell(&server, &["ACL", "SETUSER", "app", &format!("+{command}")]);
        until("the keeper frees it", || keys(&server).is_empty()).await;
        guard = locks.lock("a").await.expect("a free lock");
    }
    let backend = backend(&url_of(&server, "app", &rights())).await.expect("a connection");
    for command in ["pexpire", "get"] {
        tell(&server, &["ACL", "SETUSER", "app", &format!("-{command}")]);
        let renewal = backend.renew(&[guard.grant().clone()], soon()).await.remove(0);
        let Renewal::Unknown(error) = renewal else { panic!("{command}: {renewal:?}") };
        assert_refused(&error, &["lacks a right", &command.to_uppercase()]);
        tell(&server, &["ACL", "SETUSER", "app", &format!("+{command}")]);
    }
    guard.release().await.expect("held");
}

/// `INFO` is for the warnings alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_right_to_info_nothing_is_checked() {
    logs::keep();
    let Some(server) = redis().await else { return };
    let url = url_of(&server, "app", &rights());
    everything(&url).await.expect("allowed");
    assert!(logs::has("INFO", &["INFO is not allowed: the server is not checked"]));
    let error = refusal(&format!("{url}?strict=true")).await;
    assert_refused(&error, &["strict=true", "INFO"]);
    let url = url_of(&server, "careful", &[&rights()[..], &["+info"]].concat());
    let error = refusal(&format!("{url}?strict=true")).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
}

/// A node that does not say whether it keeps every change counts as one that has just forgotten all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redlock_without_the_right_to_config_has_to_wait() {
    logs::keep();
    for more in [&["+info"][..], &[]] {
        let Some(nodes) = three().await else { return };
        let url = redlock_url_of(&nodes, "app", &[&rights()[..], more].concat()) + "?longest_ttl=6s";
        let start = Instant::now();
        let locks = client(&url).await;
        let place = format!("{}", nodes[0].addr().port());
        assert!(logs::has("WARN", &["may have forgotten grants: no vote yet", &place]));
        let request = || locks.lock("a").ttl(Duration::from_secs(5));
        let error = request().try_now().await.expect_err("no votes");
        assert_eq!(error.kind(), ErrorKind::GracePeriod, "{error:#}");
        assert!(format!("{error:#}").contains("have no vote for "), "{error:#}");
        let guard = request().wait(Duration::from_secs(60)).await.expect("after the delay");
        assert!(start.elapsed() > Duration::from_millis(900), "{:?}", start.elapsed());
        guard.release().await.expect("held");
        request().try_now().await.expect("votes").expect("free").release().await.expect("held");
        let error = refusal(&format!("{url}&strict=true")).await;
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
        assert!(error.to_string().contains("INFO and CONFIG GET"), "{error:#}");
    }
}
