//! TLS with real servers: certificates on both sides.

use std::net::TcpListener;
use std::time::Duration;

use lockwell_core::ErrorKind;
use testbed::{Certificates, Options, Proxy, Redis, RedisCluster, RedisSentinel, if_installed};

use crate::asking::queued;
use crate::servers::{client, in_memory, on_disk, redis_with, refusal};

fn certificates() -> Option<Certificates> {
    if_installed(Certificates::make())
}

/// A server that takes TLS connections on the second port: from those who show a certificate, or from all.
async fn secure(files: &Certificates, options: &Options, auth_clients: &str) -> Option<(Redis, u16)> {
    secure_with(files, "server", options, auth_clients).await
}

/// The same for a server that shows this certificate.
async fn secure_with(
    files: &Certificates,
    shown: &str,
    options: &Options,
    auth_clients: &str,
) -> Option<(Redis, u16)> {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("a port").port();
    let options = options
        .clone()
        .setting("tls-port", free.to_string())
        .setting("tls-cert-file", files.path(&format!("{shown}.pem")))
        .setting("tls-key-file", files.path(&format!("{shown}.key")))
        .setting("tls-ca-cert-file", files.path("ca.pem"))
        .setting("tls-auth-clients", auth_clients);
    Some((redis_with(&options).await?, free))
}

/// Trust in `ca`, and our own certificate if we show it.
fn options(files: &Certificates, ca: &str, show: bool) -> String {
    let own = format!("&cert={}&key={}", files.path("ours.pem"), files.path("ours.key"));
    format!("timeout=1s&ca={}{}", files.path(ca), if show { &own } else { "" })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_show_certificates() {
    let Some(files) = certificates() else { return };
    let Some((server, port)) = secure(&files, &in_memory(), "yes").await else { return };
    let ours = options(&files, "ca.pem", true);
    let url = format!("rediss://localhost:{port}?{ours}");
    let (one, two) = (client(&url).await, client(&url).await);
    let guard = one.lock("a").await.expect("a free lock");
    assert!(two.lock("a").try_now().await.expect("an answer").is_none(), "both hold");
    // Wake-ups come through, too.
    let waiting = tokio::spawn(two.lock("a").into_future());
    queued(&one, "a", 1).await;
    guard.release().await.expect("held");
    waiting.await.expect("no panic").expect("its turn comes").release().await.expect("held");

    for (why, url) in [
        ("we show no certificate", format!("rediss://localhost:{port}?{}", options(&files, "ca.pem", false))),
        ("we do not trust", format!("rediss://localhost:{port}?{}", options(&files, "ours.pem", true))),
        ("we trust the public authorities only", format!("rediss://localhost:{port}?timeout=1s")),
        ("the certificate is for another name", format!("rediss://127.0.0.1:{port}?{ours}")),
        ("the port does not speak TLS", format!("rediss://localhost:{}?{ours}", server.addr().port())),
        ("we do not speak TLS", format!("redis://localhost:{port}?timeout=1s")),
    ] {
        let error = refusal(&url).await;
        assert!(
            matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Misconfigured),
            "{why}: {error:#}"
        );
        println!("{why}: {error:#}");
        let untrusted = ["we do not trust", "we trust the public", "the certificate is for"];
        if untrusted.iter().any(|one| why.starts_with(one)) {
            assert!(
                error.kind() == ErrorKind::Misconfigured && error.to_string().contains("ca=FILE"),
                "{error:#}"
            );
        }
    }
    let error = refusal(&format!("redis://localhost:{port}?timeout=1s")).await;
    assert!(format!("{error:#}").contains("rediss://"), "{error:#}");
    for bad in [files.path("nothing.pem"), files.path("cnf"), files.path("ours.key")] {
        let error = refusal(&format!("rediss://localhost:{port}?ca={bad}")).await;
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:#}");
        assert!(error.to_string().contains(&bad), "{error:#}");
    }
}

/// Trust in the certificate that the server shows is no cure if that is an authority's, as one that signs itself
/// often is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_a_certificate_is_said() {
    let Some(files) = certificates() else { return };
    for (shown, host, part) in [
        ("ca", "localhost", "basicConstraints=CA:FALSE"),
        ("expired", "127.0.0.1", "not valid at this time"),
        ("server", "127.0.0.1", "for other names"),
    ] {
        let Some((_server, port)) = secure_with(&files, shown, &in_memory(), "no").await else { return };
        let error = refusal(&format!("rediss://{host}:{port}?{}", options(&files, "ca.pem", false))).await;
        assert!(error.kind() == ErrorKind::Misconfigured && error.to_string().contains(part), "{error:#}");
    }
}

/// A connection that breaks is made anew, by TLS again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_outlives_its_connection() {
    let Some(files) = certificates() else { return };
    let Some((_server, port)) = secure(&files, &in_memory(), "no").await else { return };
    let proxy = Proxy::start(([127, 0, 0, 1], port).into()).await.expect("a proxy");
    let options = options(&files, "ca.pem", false);
    let locks = client(&format!("rediss://localhost:{}?{options}", proxy.addr().port())).await;
    let guard = locks.lock("a").ttl(Duration::from_secs(3)).await.expect("a free lock");
    for _ in 0..4 {
        proxy.cut();
        tokio::time::sleep(Duration::from_millis(200)).await;
        proxy.heal();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(guard.is_held());
    }
    guard.release().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redlock_over_three_nodes() {
    let Some(files) = certificates() else { return };
    let (mut nodes, mut hosts) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let Some((node, port)) = secure(&files, &on_disk(), "yes").await else { return };
        hosts.push(format!("localhost:{port}"));
        nodes.push(node);
    }
    let url = format!("redlocks://{}?{}", hosts.join(","), options(&files, "ca.pem", true));
    let (one, two) = (client(&url).await, client(&url).await);
    for _ in 0..2 {
        let guard = one.lock("a").await.expect("a majority");
        assert!(two.lock("a").try_now().await.expect("an answer").is_none(), "both hold");
        guard.release().await.expect("held");
        // The second time without this one.
        nodes[0].kill().expect("it runs or not");
    }
}

/// Sentinels show certificates as the master does, and the new master after a failover is known by its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_behind_sentinels() {
    let Some(files) = certificates() else { return };
    let Some(group) = if_installed(RedisSentinel::start_with(&in_memory().tls(&files)).await) else { return };
    let url = |ca: &str, show: bool| format!("{}?{}", group.url(), options(&files, ca, show));
    for (why, url) in [
        ("we do not trust", url("ours.pem", true)),
        ("we trust the public authorities only", format!("{}?timeout=1s", group.url())),
        ("we show no certificate", url("ca.pem", false)),
        ("we do not speak TLS", format!("{}?timeout=1s", group.url().replace("rediss", "redis"))),
    ] {
        let error = refusal(&url).await;
        assert!(
            matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Misconfigured),
            "{why}: {error:#}"
        );
    }
    let url = url("ca.pem", true);
    let (one, two) = (client(&url).await, client(&url).await);
    let guard = one.lock("a").await.expect("a free lock");
    let waiting = tokio::spawn(two.lock("a").into_future());
    queued(&one, "a", 1).await;
    guard.release().await.expect("held");
    waiting.await.expect("no panic").expect("its turn comes").release().await.expect("held");
    group.master().kill().expect("it runs");
    let at_last = async {
        loop {
            if let Ok(guard) = one.lock("b").wait(Duration::from_secs(5)).await {
                return guard;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let guard = tokio::time::timeout(Duration::from_secs(60), at_last).await.expect("a new master");
    guard.release().await.expect("held");
}

/// The nodes of a cluster name themselves, by the name in their certificates, and each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_whose_nodes_are_called_by_their_names() {
    let Some(files) = certificates() else { return };
    if !testbed::is_installed(RedisCluster::installed()) {
        return;
    }
    let by_name = |kind: &str| {
        in_memory()
            .tls(&files)
            .setting("tls-cert-file", files.path("server.pem"))
            .setting("tls-key-file", files.path("server.key"))
            .setting("tls-ca-cert-file", files.path("ca.pem"))
            .setting("tls-auth-clients", "no")
            .setting("cluster-announce-hostname", "localhost")
            .setting("cluster-preferred-endpoint-type", kind)
    };
    let url = |cluster: &RedisCluster| {
        let nodes: Vec<_> =
            cluster.addresses().iter().map(|addr| format!("localhost:{}", addr.port())).collect();
        format!("rediss+cluster://{}?{}", nodes.join(","), options(&files, "ca.pem", false))
    };
    // Where a node names no host, the others are at the host where it was asked.
    for kind in ["hostname", "unknown-endpoint"] {
        let Some(cluster) = if_installed(RedisCluster::start(3, &by_name(kind)).await) else { return };
        let (one, two) = (client(&url(&cluster)).await, client(&url(&cluster)).await);
        for n in 0..12 {
            let guard = one.lock(format!("{n}")).await.expect("a free lock");
            let waiting = tokio::spawn(two.lock(format!("{n}")).into_future());
            queued(&one, &format!("{n}"), 1).await;
            guard.release().await.expect("held");
            waiting.await.expect("no panic").expect("its turn comes").release().await.expect("held");
        }
    }
    // By its address it is another server than the certificate says.
    let cluster = RedisCluster::start(3, &by_name("ip")).await.expect("a cluster starts");
    let error = refusal(&url(&cluster)).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
}

/// The certificate is for the name, and for no address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_name_is_verified_at_each_address() {
    let Some(files) = certificates() else { return };
    let Some((_server, port)) = secure(&files, &in_memory(), "no").await else { return };
    let (_listener, first) = testbed::hung();
    let name = crate::addresses::name_of(&[first, ([127, 0, 0, 1], port).into()]);
    let locks = client(&format!("rediss://{name}?ca={}", files.path("ca.pem"))).await;
    locks.lock("a").await.expect("a free lock").release().await.expect("held");
}
