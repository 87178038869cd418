//! SASL with a real server that knows its users.

use std::time::Duration;

use lockwell_core::ErrorKind;
use testbed::{Proxy, ZooKeeper};

use crate::rights::refusal;
use crate::servers::{client, hold, options, single};

/// A server that knows a user.
async fn server() -> Option<ZooKeeper> {
    let folder = tempfile::tempdir().expect("a folder");
    let users = folder.path().join("jaas.conf");
    let module = "org.apache.zookeeper.server.auth.DigestLoginModule";
    std::fs::write(&users, format!("Server {{\n{module} required\nuser_ann=\"s3cret\";\n}};\n"))
        .expect("a file");
    let options = options()
        .setting("authProvider.sasl", "org.apache.zookeeper.server.auth.SASLAuthenticationProvider")
        .setting("-Djava.security.auth.login.config", users.display().to_string());
    // The file has been read by the time that the server is up.
    single(&options).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_belongs_to_a_user_of_the_server() {
    let Some(server) = server().await else { return };
    let proxy = Proxy::start(server.addr()).await.expect("a proxy");
    let hers = |password: &str, host: std::net::SocketAddr| {
        format!("zk://ann:{password}@{host}/hers?auth=sasl&acl=creator")
    };
    let (one, two) =
        (client(&hers("s3cret", proxy.addr())).await, client(&hers("s3cret", server.addr())).await);
    let guard = one.lock("a").ttl(Duration::from_secs(20)).await.expect("a free lock");
    assert!(two.lock("a").try_now().await.expect("an answer").is_none(), "both hold");
    for (stranger, password) in [
        (hers("wr0ng", server.addr()), "wr0ng"),
        (format!("zk://ann:s3cret@{}/hers", server.addr()), "s3cret"),
        (format!("zk://{}/hers", server.addr()), "s3cret"),
    ] {
        let error = refusal(&stranger).await;
        assert_eq!(error.kind(), ErrorKind::Refused, "{error:#}");
        assert!(!format!("{error:#} {error:?}").contains(password), "{error:#}");
    }
    // A new connection says again who we are.
    let before = proxy.accepted();
    proxy.cut_existing();
    guard.release().await.expect("held");
    assert!(proxy.accepted() > before, "no new connection");
    hold(&two, "a").await.release().await.expect("held");
    hold(&one, "a").await.release().await.expect("held");
}

/// Such a server would take us for anybody, and say nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_know_sasl() {
    let Some(server) = single(&options()).await else { return };
    let error = refusal(&format!("zk://ann:s3cret@{}/hers?auth=sasl", server.addr())).await;
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:#}");
    assert!(error.to_string().contains("SASL"), "{error:#}");
}
