//! Names with several addresses.

use std::time::Instant;

#[cfg(feature = "tls")]
use lockwell_core::ErrorKind;
use lockwell_core::suite::set_lookup;
use testbed::{addresses_of, hung};

use crate::support::{backend, cluster, locks, options, secs, server, take};

fn name(addresses: &[std::net::SocketAddr]) -> String {
    set_lookup(addresses_of);
    testbed::name_of(addresses)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hung_first_address_is_passed_over() {
    let Some(etcd) = server(&options()).await else { return };
    let (_listener, first) = hung();
    let begun = Instant::now();
    let client = backend(&format!("etcd://{}", name(&[first, etcd.addr()]))).await.expect("a client");
    take(&client, "a", secs(60)).await;
    println!("{:?}", begun.elapsed());
}

/// The certificate is for the name, and for no address.
#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread")]
async fn the_name_is_verified_at_each_address() {
    let Some(files) = testbed::if_installed(testbed::Certificates::make()) else { return };
    let secure = options().tls(&files);
    let secure = secure.setting("cert-file", files.path("server.pem"));
    let secure = secure.setting("key-file", files.path("server.key"));
    let Some(etcd) = server(&secure).await else { return };
    let (_listener, first) = hung();
    let own =
        format!("ca={}&cert={}&key={}", files.path("ca.pem"), files.path("ours.pem"), files.path("ours.key"));
    let url = format!("etcds://{}?{own}", name(&[first, etcd.addr()]));
    take(&backend(&url).await.expect("a client"), "a", secs(60)).await;
}

/// Trust, and a name, that are not those of the server. Nobody waits, unless another server may come back.
#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_certificate_is_said() {
    let Some(files) = testbed::if_installed(testbed::Certificates::make()) else { return };
    let Some(etcd) = server(&options().tls(&files)).await else { return };
    let port = etcd.addr().port();
    let own = format!("cert={}&key={}", files.path("ours.pem"), files.path("ours.key"));
    for (host, ca, said) in [
        ("127.0.0.1", "ours.pem", "is not trusted; the option ca=FILE"),
        ("localhost", "ca.pem", "for other names"),
    ] {
        let (begun, trust) = (Instant::now(), format!("ca={}&{own}", files.path(ca)));
        let error =
            backend(&format!("etcds://{host}:{port}?{trust}&timeout=1m")).await.expect_err("untrusted");
        assert!(error.kind() == ErrorKind::Misconfigured && error.to_string().contains(said), "{error:#}");
        assert!(begun.elapsed() < secs(30), "{error:#}");
        let begun = Instant::now();
        backend(&format!("etcds://{host}:{port},127.0.0.1:1?{trust}&timeout=2s"))
            .await
            .expect_err("untrusted");
        assert!(begun.elapsed() > secs(1), "it was not tried again");
    }
}

/// All members of a cluster have one name, as those of a headless service have.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_hangs_behind_a_name_is_left() {
    let Some(cluster) = cluster().await else { return };
    let locks = locks(&format!("etcd://{}", name(&cluster.addresses()))).await.expect("a client");
    let guard = locks.lock("kept").ttl(secs(15)).await.expect("a free lock");
    // Each in turn, and so the one that the client uses.
    for member in cluster.members() {
        member.pause().expect("it runs");
        tokio::time::sleep(secs(16)).await;
        assert!(guard.is_held(), "{:?}", guard.lease_state());
        let next = locks.lock("another").ttl(secs(15)).wait(secs(20)).await.expect("an answer");
        next.release().await.expect("held");
        member.resume().expect("it is stopped");
        cluster.ready().await.expect("all three");
    }
    guard.release().await.expect("the lock is held");
}
