//! Users and roles, and TLS.

use lockwell_core::{DistributedLock, ErrorKind, LockConfig, LockName, RecordKind, RecordWrite};
use lockwell_etcd::{EtcdGuarded, EtcdLock};
use testbed::{Certificates, Etcd, if_installed};

use crate::support::{backend, claim, options, secs, server, take};

/// A user `locks` who may write below `lockwell/`, and one who may not.
pub(crate) fn with_users(etcd: &Etcd) {
    // The beginning of the keys and the end of them, in Base64: `lockwell/` and `lockwell0`.
    let role = "{\"name\":\"locks\",\"perm\":{\"permType\":2,\"key\":\"bG9ja3dlbGwv\",\"range_end\":\"bG9ja3dlbGww\"}}";
    for (path, json) in [
        ("/v3/auth/user/add", "{\"name\":\"root\",\"password\":\"boss\"}"),
        ("/v3/auth/user/grant", "{\"user\":\"root\",\"role\":\"root\"}"),
        ("/v3/auth/role/add", "{\"name\":\"locks\"}"),
        ("/v3/auth/role/grant", role),
        ("/v3/auth/user/add", "{\"name\":\"locks\",\"password\":\"secret\"}"),
        ("/v3/auth/user/grant", "{\"user\":\"locks\",\"role\":\"locks\"}"),
        ("/v3/auth/user/add", "{\"name\":\"nobody\",\"password\":\"secret\"}"),
        ("/v3/auth/enable", "{}"),
    ] {
        let answer = etcd.call(path, json).expect("an answer");
        assert!(answer.contains("header"), "{path}: {answer}");
    }
}

/// Sets the password of a user. What the user has logged in with before is forgotten, also if it is the same.
pub(crate) fn set_password(etcd: &Etcd, user: &str, password: &str) {
    let login = "{\"name\":\"root\",\"password\":\"boss\"}";
    let answer = etcd.call("/v3/auth/authenticate", login).expect("an answer");
    let token = answer.split("\"token\":\"").nth(1).and_then(|rest| rest.split('"').next());
    let change = format!("{{\"name\":\"{user}\",\"password\":\"{password}\"}}");
    let answer = etcd.call_as(token.expect("a token"), "/v3/auth/user/changepw", &change);
    assert!(answer.expect("an answer").contains("header"));
}

/// The permission that docs/etcd.md names is enough for everything.
#[tokio::test(flavor = "multi_thread")]
async fn a_role_needs_its_keys_and_nothing_else() {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/etcd.md");
    let guide = std::fs::read_to_string(guide).expect("the guide");
    assert!(guide.contains("role grant-permission locks --prefix=true readwrite lockwell/"));
    let Some(etcd) = server(&options()).await else { return };
    with_users(&etcd);
    let at = |login: &str, path: &str| format!("etcd://{login}{}/{path}?timeout=2s", etcd.addr());
    let client = backend(&at("locks:secret@", "lockwell")).await.expect("a client");
    let grant = take(&client, "mine", secs(30)).await;
    let write = RecordWrite { kind: RecordKind::Value, number: 1, value: b"x" };
    client.write_record(&grant, write).await.expect("allowed");
    assert_eq!(client.records(RecordKind::Value).await.expect("allowed").len(), 1);
    let reader = client.downgrade(&grant).await.expect("an answer");
    assert_eq!(client.names().await.expect("an answer").len(), 1);
    assert!(client.inspect(&LockName::new("mine").expect("a name")).await.expect("an answer").is_held());
    assert!(!client.examine().await.expect("an answer").is_empty());
    let renewals =
        client.renew(std::slice::from_ref(&reader), lockwell_core::Moment::now().after(secs(3))).await;
    assert!(matches!(renewals[..], [lockwell_core::Renewal::Renewed(_)]), "{renewals:?}");
    // The tokens of logins are forgotten with the server.
    etcd.stop().await.expect("it ends");
    etcd.restart().await.expect("it starts");
    assert_eq!(client.force_release(&LockName::new("mine").expect("a name")).await.expect("an answer"), 1);
    let again = take(&client, "mine", secs(30)).await;
    client.release(again.claim()).await.expect("an answer");
    for (url, word) in [
        (at("locks:wrong@", "lockwell"), "credentials"),
        (at("", "lockwell"), "wants a user"),
        (at("nobody:secret@", "lockwell"), "readwrite"),
        (at("locks:secret@", "elsewhere"), "readwrite"),
    ] {
        let error = backend(&url).await.expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Refused, "{url}: {error:#}");
        assert!(error.to_string().contains(word), "{url}: {error:#}");
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    }
}

/// The password is read again for each connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_password_may_change() {
    let Some(etcd) = server(&options()).await else { return };
    with_users(&etcd);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("password");
    std::fs::write(&file, "secret\n").expect("our file");
    let url = format!("etcd://locks@{}/lockwell", etcd.addr());
    let config = LockConfig::new(&url).password_file(file.to_str().expect("a text"));
    let (url, _) = config.resolve().expect("an address");
    let client = EtcdLock::connect(&url).await.expect("a client");
    let grant = take(&client, "mine", secs(60)).await;
    set_password(&etcd, "locks", "changed");
    std::fs::write(&file, "changed\n").expect("our file");
    etcd.stop().await.expect("it ends");
    etcd.restart().await.expect("it starts");
    client.release(grant.claim()).await.expect("the new password");
}

/// A server that does not know the token of a login any more has executed nothing.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_in_doubt_when_a_login_has_expired() {
    let Some(etcd) = server(&options()).await else { return };
    with_users(&etcd);
    let url = format!("etcd://locks:secret@{}/lockwell?timeout=2s", etcd.addr());
    let client = backend(&url).await.expect("a client");
    let grant = take(&client, "mine", secs(60)).await;
    let expire = || set_password(&etcd, "locks", "secret");
    expire();
    let write = grant.guarded().expect("a grant of etcd").put("lockwell/row", "1");
    write.commit().await.expect("it is sent with a new token");
    expire();
    let next = take(&client, "another", secs(60)).await;
    assert!(next.claim().in_doubt_until().is_none(), "nothing was sent twice");
}

/// With client certificates.
#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread")]
async fn connections_are_encrypted() {
    let files = Certificates::make().expect("certificates");
    let Some(etcd) = if_installed(Etcd::start_with(&options().tls(&files)).await) else { return };
    let (ca, cert, key) = (files.path("ca.pem"), files.path("ours.pem"), files.path("ours.key"));
    let base = format!("etcds://{}/lockwell?timeout=2s&ca={ca}", etcd.addr());
    let client = backend(&format!("{base}&cert={cert}&key={key}")).await.expect("a client");
    let grant = take(&client, "safe", secs(30)).await;
    client.release(grant.claim()).await.expect("an answer");
    for url in [base, format!("etcd://{}?timeout=2s", etcd.addr())] {
        let error = backend(&url).await.expect_err("no certificate");
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{url}: {error:#}");
    }
}

/// The files are read again for each connection, and one that is just being written refuses nothing for good.
#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread")]
async fn certificates_may_change() {
    let files = Certificates::make().expect("certificates");
    let foreign = Certificates::make().expect("certificates");
    let Some(etcd) = if_installed(Etcd::start_with(&options().tls(&files)).await) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let put = |from: &Certificates| {
        for name in ["ours.pem", "ours.key"] {
            std::fs::copy(from.file(name), path(name)).expect("our file");
        }
    };
    put(&files);
    let (ca, cert, key) = (files.path("ca.pem"), path("ours.pem"), path("ours.key"));
    let url = format!("etcds://{}/lockwell?timeout=2s&ca={ca}&cert={cert}&key={key}", etcd.addr());
    let client = backend(&url).await.expect("a client");
    let grant = take(&client, "mine", secs(60)).await;
    let name = grant.claim().name();
    put(&foreign);
    etcd.stop().await.expect("it ends");
    etcd.restart().await.expect("it starts");
    let error = client.inspect(name).await.expect_err("a certificate of others");
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:#}");
    std::fs::write(&cert, "").expect("our file");
    let error = client.inspect(name).await.expect_err("no certificate");
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:#}");
    assert!(format!("{error:#}").contains(&cert), "{error:#}");
    put(&files);
    assert!(client.inspect(name).await.expect("an answer").is_held());
    client.release(grant.claim()).await.expect("an answer");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_without_users_is_refused() {
    let Some(etcd) = server(&options()).await else { return };
    let error = backend(&format!("etcd://ann:secret@{}", etcd.addr())).await.expect_err("no users");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:#}");
    assert!(error.to_string().contains("must name none"), "{error:#}");
    let client = backend(&etcd.url()).await.expect("a client");
    assert!(client.acquire(&claim("free", secs(30))).await.expect("an answer").is_some());
}
