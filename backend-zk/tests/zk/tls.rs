//! TLS with a real server: who trusts whom.

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use lockwell_core::{ErrorKind, LeaseState, Moment};
use testbed::{Certificates, Proxy, ZooKeeper, if_installed};

use crate::rights::refusal;
use crate::servers::{client, hold, lasting, options, single};
use crate::sessions::becomes;

fn certificates() -> Option<Certificates> {
    if_installed(Certificates::make())
}

/// The options of an address: trust in `ca`, and our own certificate if we show it.
fn trust(files: &Certificates, ca: &str, show: bool) -> String {
    let own = format!("&cert={}&key={}", files.path("ours.pem"), files.path("ours.key"));
    // The first handshakes of a Java machine take their time.
    format!("ca={}{}&timeout=30s", files.path(ca), if show { &own } else { "" })
}

/// A server that also takes connections by TLS, on the second port, from clients who show a certificate, or
/// from all.
async fn secure(files: &Certificates, client_auth: &str) -> Option<(ZooKeeper, u16)> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    // The server wants both in one file.
    let both = ["server.key", "server.pem"].map(|name| std::fs::read(files.file(name)).expect("a file"));
    std::fs::write(files.file("keystore.pem"), both.concat()).expect("a file");
    let options = options()
        .setting("serverCnxnFactory", "org.apache.zookeeper.server.NettyServerCnxnFactory")
        .setting("secureClientPort", port.to_string())
        .setting("secureClientPortAddress", "127.0.0.1")
        .setting("ssl.keyStore.location", files.path("keystore.pem"))
        .setting("ssl.trustStore.location", files.path("ca.pem"))
        .setting("ssl.clientAuth", client_auth);
    let server = single(&options).await?;
    let end = Moment::now().after(Duration::from_secs(30));
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(!end.has_passed(), "no TLS: {}", server.log_tail());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Some((server, port))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_show_certificates() {
    let Some(files) = certificates() else { return };
    let Some((server, port)) = secure(&files, "need").await else { return };
    let ours = trust(&files, "ca.pem", true);
    let url = format!("zk://localhost:{port}/hers?acl=creator&{ours}");
    let (one, two) = (client(&url).await, client(&url).await);
    let guard = hold(&one, "a").await;
    assert!(two.lock("a").try_now().await.expect("an answer").is_none(), "both hold");
    // The certificate is an identity: who does not show it may not touch the nodes.
    let error = refusal(&format!("zk://{}/hers", server.addr())).await;
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:#}");
    guard.release().await.expect("held");
    hold(&two, "a").await.release().await.expect("held");

    let (unreachable, untrusted) = (ErrorKind::Unreachable, ErrorKind::Misconfigured);
    let other = trust(&files, "ours.pem", true);
    let plain = server.addr().port();
    for (kind, said, url) in [
        // We show none.
        (unreachable, "TLS", format!("zk://localhost:{port}?{}", trust(&files, "ca.pem", false))),
        (untrusted, "is not trusted; the option ca=FILE", format!("zk://localhost:{port}?{other}")),
        (untrusted, "for other names", format!("zk://127.0.0.1:{port}?{ours}")),
        // Another server may become reachable.
        (unreachable, "TLS", format!("zk://127.0.0.1:{port},localhost:{plain}?{ours}")),
        (unreachable, "TLS", format!("zk://localhost:{plain}?{ours}")),
    ] {
        let error = refusal(&url).await;
        assert!(error.kind() == kind && error.to_string().contains(said), "{url}: {error:#}");
    }
    let error = refusal(&format!("zk://localhost:{port}")).await;
    assert_eq!(error.kind(), ErrorKind::Unreachable, "we do not speak TLS: {error:#}");
    for (missing, text) in [("nothing.pem", "nothing.pem"), ("cnf", "cnf")] {
        let error = refusal(&format!("zk://localhost:{port}?{}", trust(&files, missing, true))).await;
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:#}");
        assert!(error.to_string().contains(text), "{error:#}");
    }
}

/// Only the server shows one. A connection that breaks is made anew, by TLS again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_shows_a_certificate() {
    let Some(files) = certificates() else { return };
    let Some((_server, port)) = secure(&files, "none").await else { return };
    let proxy = Proxy::start(([127, 0, 0, 1], port).into()).await.expect("a proxy");
    let url = format!("zk://localhost:{}?{}", proxy.addr().port(), trust(&files, "ca.pem", false));
    let locks = lasting(&url).await;
    let guard = locks.lock("a").ttl(Duration::from_secs(20)).await.expect("a free lock");
    for (cut, wanted) in [(true, LeaseState::Suspect), (false, LeaseState::Held)] {
        if cut {
            proxy.cut();
        } else {
            proxy.heal();
        }
        becomes(&guard, wanted, Duration::from_secs(10)).await;
    }
    guard.release().await.expect("held");
    hold(&locks, "a").await.release().await.expect("held");
}
