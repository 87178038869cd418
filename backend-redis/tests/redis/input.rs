//! Names, labels, namespaces and values that are odd.

use std::time::Duration;

use lockwell_core::{ErrorKind, Locks};
use testbed::Redis;

use crate::asking::queued;
use crate::redlock::nodes;
use crate::servers::{
    backend, client, in_memory, keys, on_disk, redis, redis_with, redlock_url, refusal, tell, until,
};

const ODD_NAMES: [&str; 29] = [
    "a",
    "A",
    "a ",
    " a",
    "a/b",
    "a/../a",
    "..",
    "{a}",
    "{b}a",
    "{}",
    "}{",
    "a:1",
    "a:1:2:3:4",
    "*",
    "[a]",
    "?",
    "'; --",
    "\"",
    "\\",
    "%",
    "%41",
    "\u{e9}",
    "e\u{301}",
    "🔒",
    "\u{200d}",
    "token",
    "queue",
    "waiters",
    "-1",
];

async fn redlock() -> Option<(Vec<Redis>, String)> {
    let nodes = nodes(3, &on_disk()).await?;
    let url = redlock_url(&nodes);
    Some((nodes, url))
}

/// All of them are held at once, waited for and handed over.
async fn odd_names(url: &str, servers: &[Redis]) {
    let (one, two) = (client(url).await, client(url).await);
    let mut names: Vec<_> = ODD_NAMES.map(str::to_owned).into();
    names.extend(["x".repeat(512), "\u{e9}".repeat(256), "{".repeat(512)]);
    let mut guards = Vec::new();
    for name in &names {
        guards.push(one.lock(name).try_now().await.expect("an answer").expect("no other name is this one"));
    }
    let mut expected: Vec<_> = names.iter().map(|name| format!("lockwell:{name}")).collect();
    expected.sort();
    until("every name is its key", || servers.iter().all(|server| keys(server) == expected)).await;
    let waiting: Vec<_> = names.iter().map(|name| tokio::spawn(two.lock(name).into_future())).collect();
    for name in &names {
        queued(&one, name, 1).await;
    }
    for (guard, waiting) in guards.into_iter().zip(waiting) {
        let (name, before) = (guard.name().clone(), guard.token());
        guard.release().await.expect("held");
        let guard = waiting.await.expect("no panic").expect("its turn");
        assert!(*guard.name() == name && guard.token() > before, "{guard:?}");
        guard.release().await.expect("held");
    }
    until("nothing is left", || servers.iter().all(|server| keys(server).is_empty())).await;
    for name in [String::new(), "a\nb".to_owned(), "\0".to_owned(), "\u{1f}token".to_owned(), "x".repeat(513)]
    {
        let error = one.lock(&name).await.expect_err("no name");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:#}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_names_are_different_locks() {
    let Some(server) = redis().await else { return };
    odd_names(&server.url(), &[server]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_names_are_different_locks_of_redlock() {
    let Some((nodes, url)) = redlock().await else { return };
    odd_names(&url, &nodes).await;
}

/// A label stands at the end of the lock's value, and must not be taken for other parts of it.
async fn odd_labels(locks: &Locks) {
    for label in ["", ":", ":1:2:3:", "1:2:3", "worker: 7", "🔒 %d %s", "a\\nb", &"\u{e9}".repeat(127)] {
        let guard = locks.lock("a").label(label).ttl(Duration::from_secs(1)).await.expect("a free lock");
        let status = locks.inspect("a").await.expect("an answer");
        assert_eq!((&*status.holders[0].label, status.holders[0].token), (label, guard.token()));
        assert!(locks.lock("a").label(label).try_now().await.expect("an answer").is_none());
        let renewed = locks.stats().renewals;
        until("it is renewed", || locks.stats().renewals > renewed).await;
        let status = locks.inspect("a").await.expect("an answer");
        assert_eq!((&*status.holders[0].label, status.holders[0].token), (label, guard.token()));
        guard.release().await.expect("held");
    }
    for label in ["a\nb".to_owned(), "x".repeat(256)] {
        let error = locks.lock("a").label(label).await.expect_err("no label");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:#}");
    }
}

#[tokio::test]
async fn odd_labels_are_kept() {
    let Some(server) = redis().await else { return };
    odd_labels(&client(&server.url()).await).await;
    assert_eq!(keys(&server), [""; 0]);
}

#[tokio::test]
async fn odd_labels_are_kept_by_redlock() {
    let Some((nodes, url)) = redlock().await else { return };
    odd_labels(&client(&url).await).await;
    until("nothing is left", || nodes.iter().all(|node| keys(node).is_empty())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn namespaces_do_not_see_each_other() {
    let Some(server) = redis().await else { return };
    let long = "n".repeat(256);
    let namespaces = ["", "a", "a:", "{x}", "}{", "*", "%2A%2A", "with+space", "%C3%A9%3A", &long];
    let mut held = Vec::new();
    for namespace in namespaces {
        let url = format!("{}?namespace={namespace}", server.url());
        let (one, two) = (client(&url).await, client(&url).await);
        let guard = one.lock("lock").try_now().await.expect("an answer").expect("free in this namespace");
        let waiting = tokio::spawn(two.lock("lock").into_future());
        queued(&one, "lock", 1).await;
        guard.release().await.expect("held");
        held.push(waiting.await.expect("no panic").expect("its turn"));
    }
    let mut expected = ["", "a", "a:", "{x}", "}{", "*", "**", "with space", "\u{e9}:", &long]
        .map(|namespace| format!("{namespace}lock"));
    expected.sort();
    assert_eq!(keys(&server), expected);
    // The key is the lock: whoever arrives at the same one is kept out.
    let locks = client(&format!("{}?namespace=", server.url())).await;
    assert!(locks.lock("a:lock").try_now().await.expect("an answer").is_none());
    for guard in held {
        guard.release().await.expect("held");
    }
    assert_eq!(keys(&server), [""; 0]);
}

/// Whatever stands at the key, it is held by somebody, can be looked at and can be freed.
#[tokio::test]
async fn odd_values_are_locks_of_another_program() {
    let Some(server) = redis().await else { return };
    let locks = client(&server.url()).await;
    let owner = "0123456789abcdef0123456789abcdef";
    let long = "v".repeat(100_000);
    let values = [
        "1",
        "null",
        ":::::",
        owner,
        &format!("{owner}:"),
        &format!("{owner}:1:2"),
        "\u{1f}",
        "🔒",
        &long,
        &format!("{owner}:99999999999999999999999:1:0:x"),
        &format!("{owner}:-1:1:0:x"),
        "abc:1:2:0:x",
    ];
    for value in values {
        tell(&server, &["SET", "lockwell:a", value]);
        assert!(locks.lock("a").try_now().await.expect("an answer").is_none(), "{value}");
        let waiting = locks.lock("a").wait(Duration::from_millis(60));
        assert_eq!(waiting.await.expect_err("held").kind(), ErrorKind::TimedOut, "{value}");
        let status = locks.inspect("a").await.expect("an answer");
        assert_eq!((status.holders.len(), &*status.holders[0].label), (1, "another program"), "{value}");
        assert_eq!(status.holders[0].ttl_left, Duration::MAX, "{value}");
        assert_eq!(locks.force_release("a").await.expect("an answer"), 1, "{value}");
        locks.lock("a").await.expect("a free lock").release().await.expect("held");
        until("nothing is left", || keys(&server).is_empty()).await;
    }
}

/// Places that nobody can have taken are passed over and tidied up.
#[tokio::test]
async fn odd_places_in_a_queue_keep_nobody_out() {
    let Some(server) = redis().await else { return };
    let (queue, waiters) = ("lockwell:\u{1f}queue\u{1f}a", "lockwell:\u{1f}waiters\u{1f}a");
    let locks = client(&server.url()).await;
    for text in [
        "",
        "x",
        "1:lockwell:x:1",
        "-1:x:1",
        "99999999999999999999999:x",
        "99999999999999999999999:lockwell:x:1",
        "1e99:x:y",
    ] {
        tell(&server, &["ZADD", queue, "-inf", "nobody", "0", "none"]);
        tell(&server, &["HSET", waiters, "nobody", text]);
        locks.lock("a").try_now().await.expect("an answer").expect("free").release().await.expect("held");
        assert_eq!(keys(&server), [""; 0], "{text}");
    }
}

#[tokio::test]
async fn odd_addresses() {
    let options = in_memory().setting("requirepass", "p@ss/w:rd?&#%[]é");
    let Some(server) = redis_with(&options).await else { return };
    let password = "p%40ss%2Fw%3Ard%3F%26%23%25%5B%5D%C3%A9";
    let port = server.addr().port();
    let socket = server.unix_socket();
    for url in [
        format!("redis://:{password}@127.0.0.1:{port}"),
        format!("redis://default:{password}@localhost:{port}/2?timeout=2s"),
        format!("REDIS://default:{password}@127.0.0.1:{port}/?db=3"),
        format!("redis+unix://:{password}@{}?db=1", socket.display()),
    ] {
        let locks = client(&url).await;
        locks.lock("a").await.expect("a free lock").release().await.expect("held");
        assert!(!format!("{locks:?}").contains("rd?"), "{locks:?}");
    }
}

#[tokio::test]
async fn what_an_address_cannot_say() {
    let many: Vec<_> = (1..66).map(|port| format!("h:{port}")).collect();
    let long = "n".repeat(257);
    for (url, part) in [
        ("redis://127.0.0.1:1?strict=maybe", "true or false"),
        ("redis://127.0.0.1:1?wait_replicas=-1", "a number of replicas"),
        ("redis://127.0.0.1:1?wait_replicas=some", "a number of replicas"),
        ("redis://127.0.0.1:1?timeout=soon", "duration"),
        ("redis://127.0.0.1:1?node_timeout=1s", "no option \"node_timeout\""),
        ("redlock://a,b,c?wait_replicas=1", "no option \"wait_replicas\""),
        ("redis://127.0.0.1:1?db=-1", "db"),
        ("redis://127.0.0.1:1?db=x", "db"),
        (&format!("redis://127.0.0.1:1?namespace={long}"), "256 bytes"),
        (&format!("redlock://{}", many.join(",")), "at most 63 nodes"),
    ] {
        let error = refusal(url).await;
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}: {error:#}");
        assert!(error.to_string().contains(part), "{url}: {error:#}");
    }
    let Some((nodes, _)) = redlock().await else { return };
    let port = nodes[0].addr().port();
    let url = format!("redlock://127.0.0.1:{port},{},localhost:{port}", nodes[1].addr());
    let error = refusal(&url).await;
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:#}");
    assert!(error.to_string().contains("named twice"), "{error:#}");
    let locks = Locks::new(backend(&redlock_url(&nodes)).await.expect("a connection")).expect("a keeper");
    let error = locks.permit("a", 3).await.expect_err("not offered");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:#}");
    assert!(nodes.iter().all(|node| keys(node).is_empty()));
}
