//! Who may do what, and what is said when something is not right.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockwell_core::{DistributedLock, Error, ErrorKind, LockConfig, Locks, Moment};
use lockwell_zk::{ZkGuarded, ZkLock};
use tracing::Level;
use tracing::subscriber::DefaultGuard;
use zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, Permission};

use crate::servers::{client, connect, ensemble, hold, options, single};

/// The error of a client that cannot connect, which does not take for ever.
pub(crate) async fn refusal(url: &str) -> Error {
    let began = Moment::now();
    let error = ZkLock::connect(&url.parse().expect("an address")).await.map(drop).expect_err(url);
    assert!(Moment::now().since(began) < Duration::from_secs(40), "{url} took too long");
    error
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_belongs_to_its_creator() {
    let Some(server) = single(&options()).await else { return };
    let host = server.addr();
    let ann = client(&format!("zk://ann:secret@{host}/hers?acl=creator")).await;
    let again = client(&format!("zk://ann:secret@{host}/hers?acl=creator")).await;
    let guard = hold(&ann, "a").await;
    assert!(again.lock("a").try_now().await.expect("an answer").is_none());
    for stranger in [format!("zk://{host}/hers"), format!("zk://ann:wrong@{host}/hers?acl=creator")] {
        let error = refusal(&stranger).await;
        assert_eq!(error.kind(), ErrorKind::Refused, "{error:#}");
        assert!(!format!("{error:#}").contains("wrong"), "{error:#}");
    }
    guard.release().await.expect("held");
    hold(&again, "a").await.release().await.expect("held");
    let locks = client(&format!("zk://ann:secret@{host}/hers?acl=creator")).await;
    let guard = hold(&locks, "a").await;
    guard.guarded().expect("ours").create("/data", b"hers").commit().await.expect("held");
    let stranger = Client::connect(&host.to_string()).await.expect("a client");
    assert!(stranger.set_data("/data", b"his", None).await.is_err(), "the node is hers");
    guard.release().await.expect("held");
}

/// Every mode, with a queue, a loss by force and a downgrade.
async fn everything(url: &str) {
    let (one, two) = (client(url).await, client(url).await);
    let guard = one.lock("a").await.expect("a free lock");
    let waiting = tokio::spawn(two.lock("a").into_future());
    while one.inspect("a").await.expect("an answer").waiters == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    guard.release().await.expect("held");
    waiting.await.expect("no panic").expect("its turn").release().await.expect("held");
    let writer = one.write("b").await.expect("a free lock");
    let reader = two.read("b").into_future();
    let (downgraded, reader) = tokio::join!(writer.downgrade(), reader);
    downgraded.expect("held").release().await.expect("held");
    reader.expect("readers meet").release().await.expect("held");
    let (first, second) =
        (one.permit("c", 2).await.expect("a permit"), two.permit("c", 2).await.expect("a permit"));
    first.release().await.expect("held");
    assert_eq!(one.force_release("c").await.expect("an answer"), 1);
    drop(second);
    let all = one.lock_all(["a", "b"]).await.expect("free locks");
    all.release().await.expect("held");
    for locks in [&one, &two] {
        let guard = locks.lock("d").await.expect("a free lock");
        guard.write_record("x").await.expect("held");
        guard.release().await.expect("held");
    }
    assert_eq!(one.record("d").await.expect("an answer").expect("it was written").value, b"x");
}

/// The rights on the base path that docs/zookeeper.md names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_rights_are_enough() {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/zookeeper.md");
    let guide = std::fs::read_to_string(guide).expect("the guide");
    for row in
        ["| CREATE | everything |", "| READ | the list of all locks", "| DELETE | to delete the folder"]
    {
        assert!(guide.contains(row), "{row}");
    }
    let Some(server) = single(&options()).await else { return };
    let host = server.addr();
    let admin =
        Client::connector().with_auth("digest", b"ann:secret").connect(&host.to_string()).await.expect("ann");
    // Newer servers say whether a node is there only to those who may read it.
    let closed = [Acl::new(Permission::CREATE | Permission::ADMIN, AuthId::authed())];
    admin.set_acl("/", &closed, None).await.expect("the root");
    let rights = [
        ("/create", Permission::CREATE),
        ("/read", Permission::CREATE | Permission::READ),
        ("/delete", Permission::READ | Permission::DELETE | Permission::WRITE),
    ];
    for (base, rights) in rights {
        let acl = [Acl::new(rights, AuthId::authed())];
        let made = CreateMode::Persistent.with_acls(Acls::new(&acl));
        admin.create(base, b"", &made).await.expect("a node");
        for more in ["", "?acl=creator"] {
            let url = format!("zk://ann:secret@{host}{base}{more}");
            if !rights.has(Permission::CREATE) {
                assert_eq!(refusal(&url).await.kind(), ErrorKind::Refused, "{base}{more}");
                continue;
            }
            everything(&url).await;
            let listed = client(&url).await.held().await;
            match listed {
                Ok(held) => {
                    assert!(rights.has(Permission::READ) && held.is_empty(), "{base}{more}: {held:?}");
                }
                Err(error) => {
                    assert!(!rights.has(Permission::READ), "{base}{more}: {error:#}");
                    assert_eq!(error.kind(), ErrorKind::Refused, "{error:#}");
                }
            }
        }
        // Those who are not ann may do nothing there.
        assert_eq!(refusal(&format!("zk://{host}{base}")).await.kind(), ErrorKind::Refused, "{base}");
    }
    // A base path that is missing is made.
    let locks = client(&format!("zk://ann:secret@{host}/new")).await;
    locks.lock("a").await.expect("a free lock").release().await.expect("held");
    // A heartbeat needs no right.
    let locks = client(&format!("zk://ann:secret@{host}/create")).await;
    let guard = locks.lock("long").ttl(Duration::from_secs(4)).await.expect("a free lock");
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert!(guard.is_held(), "{:?}", guard.lease_state());
    guard.release().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_right_is_said() {
    let Some(server) = single(&options()).await else { return };
    let host = server.addr();
    let admin = Client::connect(&host.to_string()).await.expect("a client");
    let closed = CreateMode::Persistent.with_acls(Acls::anyone_read());
    admin.create("/closed", b"", &closed).await.expect("a node");
    for (url, kind) in [
        (format!("zk://{host}/closed"), ErrorKind::Refused),
        (format!("zk://{host}/closed/below"), ErrorKind::Refused),
        (format!("zk://{host}/missing?create=false"), ErrorKind::Misconfigured),
        (format!("zk://{host}/zookeeper/x"), ErrorKind::InvalidInput),
        (format!("zk://{host}/a/../b"), ErrorKind::InvalidInput),
        (format!("zk://{host}/a?tabel=x"), ErrorKind::InvalidInput),
        ("zk://-no-such-host.invalid".to_owned(), ErrorKind::Unreachable),
        ("zk://127.0.0.1:1".to_owned(), ErrorKind::Unreachable),
        ("zk://".to_owned(), ErrorKind::InvalidInput),
    ] {
        let error = refusal(&url).await;
        assert_eq!(error.kind(), kind, "{url}: {error:#}");
    }
    // Who may not create nodes can look, and is told by `doctor`.
    let (reader, lock) = connect(&format!("zk://{host}/closed?create=false")).await;
    assert!(!reader.inspect("a").await.expect("an answer").is_held());
    assert!(reader.held().await.expect("an answer").is_empty());
    let findings = lock.examine().await.expect("an answer");
    let rights = findings.iter().find(|finding| finding.subject == "rights").expect("a finding");
    assert!(rights.message.contains("CREATE"), "{rights:?}");
    let error = reader.lock("a").wait(Duration::from_secs(5)).await.map(drop).expect_err("no right");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:#}");
    // One of two servers is enough.
    hold(&client(&format!("zk://127.0.0.1:1,{host}")).await, "one of two")
        .await
        .release()
        .await
        .expect("held");
}

/// Where the name of a lock is an ephemeral node of somebody else, it cannot have a queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_no_folder() {
    let Some(server) = single(&options()).await else { return };
    let (locks, other) = (client(&server.url()).await, Client::connect(&server.addr().to_string()).await);
    let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    other.as_ref().expect("a client").create("/lockwell/a", b"", &ephemeral).await.expect("a node");
    let error = locks.lock("a").try_now().await.expect_err("no folder");
    assert_eq!(error.kind(), ErrorKind::KindClash, "{error:#}");
}

/// What is logged on this thread until the end of the test.
fn log() -> (Arc<Mutex<Vec<u8>>>, DefaultGuard) {
    struct Lines(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no panic").write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let lines = Arc::new(Mutex::new(Vec::new()));
    let writer = Arc::clone(&lines);
    let subscriber =
        tracing_subscriber::fmt().with_max_level(Level::WARN).with_writer(move || Lines(Arc::clone(&writer)));
    (lines, tracing::subscriber::set_default(subscriber.finish()))
}

/// A server that has lost its leader serves its clients for `syncLimit` ticks more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_that_an_island_outlives() {
    let options = options().setting("tickTime", "500").setting("syncLimit", "5");
    let Some(servers) = ensemble(&options).await else { return };
    let (lines, _guard) = log();
    let said = || String::from_utf8(std::mem::take(&mut *lines.lock().expect("no panic"))).expect("text");
    let usual = client(&servers.url()).await;
    assert_eq!(usual.capabilities().min_ttl(), Duration::from_secs(1));
    assert!(said().contains("WARN") && !said().contains("WARN"), "no warning, or it is repeated");
    for (strict, least) in [("true", 3000), ("4s", 4500)] {
        let strict = client(&format!("{}?strict={strict}", servers.url())).await;
        assert_eq!(strict.capabilities().min_ttl(), Duration::from_millis(least));
        let error = strict.lock("a").ttl(Duration::from_secs(2)).await.expect_err("too short");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:#}");
    }
    assert_eq!(said(), "", "strict needs no warning");
    let error = refusal(&format!("{}?strict=10m", servers.url())).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
}

/// Servers that do not tell what `strict` needs to know.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strict_is_not_guessed() {
    let options = options().setting("4lw.commands.whitelist", "srvr,ruok");
    let Some(servers) = ensemble(&options).await else { return };
    let error = refusal(&format!("{}?strict=true", servers.url())).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
    assert!(error.to_string().contains("4lw.commands.whitelist"), "{error:#}");
    let strict = client(&format!("{}?strict=3s", servers.url())).await;
    assert!(strict.capabilities().min_ttl() > Duration::from_secs(3));
    hold(&strict, "a").await.release().await.expect("held");
}

/// The folder of a lock is a container, which the server deletes, unless others want it to stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folders_stay_if_they_shall() {
    let options = options().setting("-Dznode.container.checkIntervalMs", "200");
    let Some(server) = single(&options).await else { return };
    let reader = Client::connect(&server.addr().to_string()).await.expect("a client");
    for suffix in ["/b?folders=persistent", "/a"] {
        let locks = client(&format!("{}{suffix}", server.url())).await;
        hold(&locks, "x").await.release().await.expect("held");
    }
    let end = Moment::now().after(Duration::from_secs(30));
    while reader.check_stat("/a/x").await.expect("an answer").is_some() {
        assert!(!end.has_passed(), "the server deletes no containers");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(reader.check_stat("/b/x").await.expect("an answer").is_some(), "the folder went");
}

/// Writes that the lock guards are done by its holder alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guarded_writes() {
    let Some(server) = single(&options()).await else { return };
    let locks = client(&server.url()).await;
    let other = client(&server.url()).await;
    let guard = hold(&locks, "data").await;
    let write = guard.guarded().expect("ours");
    let (shown, owner) =
        (format!("{write:?}"), uuid::Uuid::from_u128(guard.grant().claim().owner().as_u128()));
    for owner in [owner.simple().to_string(), owner.hyphenated().to_string()] {
        assert!(!shown.to_lowercase().contains(&owner), "whoever knows the owner can release: {shown}");
    }
    write.create("/data", b"one").set("/data", b"two", None).commit().await.expect("held");
    let refused = guard.guarded().expect("ours").set("/data", b"three", Some(7)).create("/more", b"");
    assert_eq!(refused.commit().await.expect_err("another version").kind(), ErrorKind::InvalidInput);
    assert_eq!(other.force_release("data").await.expect("an answer"), 1);
    let error = guard.guarded().expect("ours").set("/data", b"four", None).commit().await;
    assert_eq!(error.expect_err("stolen").kind(), ErrorKind::Lost);
    let reader = Client::connect(&server.addr().to_string()).await.expect("a client");
    assert_eq!(reader.get_data("/data").await.expect("a node").0, b"two");
    assert!(reader.check_stat("/more").await.expect("an answer").is_none());
}

/// A write that the lock guards is refused when the lock has gone to another task of the process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guarded_write_belongs_to_one_task() {
    let Some(server) = single(&options()).await else { return };
    let lock = connect(&server.url()).await.1;
    let long = Duration::from_secs(60);
    let locks = Locks::new(Arc::clone(&lock) as Arc<_>).expect("a keeper").hand_off(1000, long);
    let mut guard = hold(&locks, "data").await;
    for bound in [false, true] {
        loop {
            let before = guard.grant().clone();
            let write = bound.then(|| before.guarded().expect("it is held").create("/late", b""));
            let mut next = Box::pin(locks.lock("data").wait(long).into_future());
            assert!(tokio::time::timeout(Duration::ZERO, &mut next).await.is_err(), "it is held");
            let next = tokio::spawn(next);
            drop(guard);
            guard = next.await.expect("no panic").expect("its turn comes");
            let error = match write {
                Some(write) => write.commit().await.expect_err("a late write"),
                None if guard.grant().claim().owner() == before.claim().owner() => {
                    before.guarded().expect_err("it was handed on")
                }
                // On a machine that is busy, it may have come from the server.
                None => continue,
            };
            assert_eq!(error.kind(), ErrorKind::Lost, "{error:#}");
            break;
        }
    }
    guard.release().await.expect("held");
}

/// The password is read for each session. Another password is another identity.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_session_has_the_present_password() {
    let Some(server) = single(&options()).await else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("password");
    std::fs::write(&file, "secret-one").expect("our file");
    let url = format!("zk://ann@{}/hers?acl=creator", server.addr());
    let config = LockConfig::new(url).password_file(file.to_str().expect("a text"));
    let (url, config) = config.resolve().expect("an address");
    let backend = Arc::new(ZkLock::connect(&url).await.expect("a client"));
    let locks = Locks::with_config(backend, &config).expect("a keeper");
    let guard = hold(&locks, "a").await;
    std::fs::write(&file, "secret-two").expect("our file");
    // Another lease needs another session.
    let longer = || locks.lock("b").ttl(Duration::from_secs(40)).wait(Duration::from_secs(20));
    let error = longer().await.expect_err("another user");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:#}");
    std::fs::write(&file, "").expect("our file");
    let missing = ZkLock::connect(&url).await.map(drop).expect_err("no password");
    assert_eq!(missing.kind(), ErrorKind::Unreachable, "{missing:#}");
    assert!(missing.to_string().contains("password_file"), "{missing:#}");
    assert!(!format!("{error:?} {missing:?} {locks:?}").contains("secret"));
    std::fs::write(&file, "secret-one").expect("our file");
    let guards = [guard, locks.lock("b").ttl(Duration::from_secs(80)).await.expect("the same user")];
    for guard in guards {
        guard.release().await.expect("held");
    }
}
