//! What `strict` and `wait_replicas` demand of a master and its sentinels, and sentinels that ask for a
//! password.

use std::time::Duration;

use lockwell_core::ErrorKind;
use testbed::{Redis, RedisSentinel, if_installed};

use crate::logs;
use crate::servers::{client, in_memory, keys, on_disk, redis_with, refusal, tell, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_replica_has_to_confirm() {
    let Some(master) = redis_with(&on_disk()).await else { return };
    let replicas = [
        Redis::start_replica(master.addr(), &in_memory()).await.expect("a replica"),
        Redis::start_replica(master.addr(), &in_memory()).await.expect("a replica"),
    ];
    for few in ["", "&wait_replicas=1"] {
        let error = refusal(&format!("{}?strict=true{few}", master.url())).await;
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
        assert!(error.to_string().contains("it has replicas, 2 just now"), "{error:#}");
    }
    let locks = client(&format!("{}?strict=true&wait_replicas=2", master.url())).await;
    let guard = locks.lock("a").await.expect("confirmed");
    for replica in &replicas {
        assert!(keys(replica).contains(&"lockwell:a".to_owned()), "the replica has it");
    }
    guard.release().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strict_and_replicas_that_confirm_work_behind_sentinels() {
    let Some(group) = if_installed(RedisSentinel::start_with(&on_disk()).await) else { return };
    let error = refusal(&format!("{}?strict=true", group.url())).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
    assert!(error.to_string().contains("wait_replicas"), "{error:#}");
    let url = format!("{}?strict=true&wait_replicas=1", group.url());
    let locks = client(&url).await;
    let guard = locks.lock("a").ttl(Duration::from_secs(2)).await.expect("confirmed");
    assert!(keys(group.replica()).contains(&"lockwell:a".to_owned()), "the replica has it");
    // Longer than the lease lasts: renewals are confirmed, too.
    tokio::time::sleep(Duration::from_secs(3)).await;
    guard.release().await.expect("held");
    // The new master is looked at as well.
    tell(group.replica(), &["CONFIG", "SET", "appendfsync", "everysec"]);
    group.master().kill().expect("it runs");
    let refused = async {
        loop {
            match locks.lock("a").await {
                Err(error) if error.kind() == ErrorKind::Misconfigured => return error,
                outcome => assert!(outcome.is_err(), "no replica can confirm"),
            }
        }
    };
    let error = tokio::time::timeout(Duration::from_secs(30), refused).await.expect("a new master");
    assert!(error.to_string().contains("before its change is on the disk"), "{error:#}");
}

const OF_MASTER: &str = "canary-master";
const OF_SENTINELS: &str = "canary-sentinel";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_that_ask_for_a_password() {
    logs::keep();
    let options = in_memory().setting("requirepass", OF_MASTER);
    let Some(group) = if_installed(RedisSentinel::start_protected(&options, OF_SENTINELS).await) else {
        return;
    };
    let url = group.url().replace("://", &format!("://:{OF_MASTER}@"));
    let start = std::time::Instant::now();
    for (url, part) in [
        (url.clone(), "sentinel_password"),
        (group.url(), "sentinel_password"),
        (format!("{url}?sentinel_password=canary-wrong"), "sentinel_password"),
        (format!("{url}?sentinel_user=canary&sentinel_password={OF_SENTINELS}"), "sentinel_password"),
        (format!("{}?sentinel_password={OF_SENTINELS}", group.url()), "the server asks for a password"),
    ] {
        let error = refusal(&url).await;
        assert_eq!(error.kind(), ErrorKind::Refused, "{error:#}");
        assert!(error.to_string().contains(part), "{error:#}");
        let shown = format!("{error:#} {error:?}").replace(part, "");
        assert!(!shown.contains("canary"), "{shown}");
    }
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    for user in ["", "&sentinel_user=default"] {
        let locks = client(&format!("{url}?sentinel_password={OF_SENTINELS}{user}")).await;
        locks.lock("a").await.expect("a free lock").release().await.expect("held");
        assert!(!format!("{locks:?} {:?}", locks.backend()).contains("canary"));
    }
    // The file is read for each connection. A failover is followed.
    let file = tempfile::NamedTempFile::new().expect("a file");
    let url = format!("{url}?sentinel_password_file={}", file.path().display());
    std::fs::write(&file, "canary-wrong\n").expect("our file");
    let error = refusal(&url).await;
    assert!(error.kind() == ErrorKind::Refused && !format!("{error:?}").contains("canary"), "{error:?}");
    std::fs::write(&file, format!("{OF_SENTINELS}\n")).expect("our file");
    let locks = client(&url).await;
    group.master().kill().expect("it runs");
    until_it_locks(&locks).await;
    assert!(!logs::lines().join("\n").contains("canary"));
}

/// The rights that docs/production.md names: at the servers beside the usual ones, and at the sentinels.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_rights_are_enough_behind_sentinels() {
    const AT_SERVERS: &str = "+role";
    const AT_SENTINELS: &str = "+sentinel|get-master-addr-by-name";
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/production.md");
    let guide = std::fs::read_to_string(guide).expect("the guide");
    let (_, section) = guide.split_once("## Redis behind Sentinel").expect("a section");
    for right in [AT_SERVERS, AT_SENTINELS] {
        assert!(section.split("\n## ").next().is_some_and(|text| text.contains(&format!("`{right}`"))));
    }
    let Some(group) = if_installed(RedisSentinel::start_protected(&in_memory(), OF_SENTINELS).await) else {
        return;
    };
    for server in [group.master(), group.replica()] {
        let mut command = vec!["ACL", "SETUSER", "app", "on", ">canary-app"];
        command.extend(include_str!("minimal.acl").split_whitespace());
        command.push(AT_SERVERS);
        tell(server, &command);
    }
    let allow = |right: &str| {
        for sentinel in group.sentinels() {
            tell(sentinel, &["ACL", "SETUSER", "finder", "on", ">canary-finder", "-@all", right]);
        }
    };
    let url = group.url().replace("://", "://app:canary-app@");
    let url = format!("{url}?sentinel_user=finder&sentinel_password=canary-finder");
    allow("+ping");
    assert_eq!(refusal(&url).await.kind(), ErrorKind::Refused);
    allow(AT_SENTINELS);
    let locks = client(&url).await;
    locks.lock("a").await.expect("a free lock").release().await.expect("held");
    // A failover is followed with the same rights.
    group.master().kill().expect("it runs");
    until_it_locks(&locks).await;
}

/// The usual case: one password for all of them. It is sent to those sentinels only that ask for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_with_the_password_of_the_master() {
    let options = in_memory().setting("requirepass", OF_MASTER);
    let Some(group) = if_installed(RedisSentinel::start_protected(&options, OF_MASTER).await) else { return };
    let locks = client(&group.url().replace("://", &format!("://:{OF_MASTER}@"))).await;
    locks.lock("a").await.expect("a free lock").release().await.expect("held");
    drop(group);
    // Sentinels that ask for none do not mind one that is given.
    let group = RedisSentinel::start_with(&options).await.expect("the group starts");
    let url = group.url().replace("://", &format!("://:{OF_MASTER}@"));
    for more in ["", "?sentinel_password=canary-needless"] {
        let locks = client(&format!("{url}{more}")).await;
        locks.lock("a").await.expect("a free lock").release().await.expect("held");
    }
    let asked = tell(&group.sentinels()[0], &["INFO", "commandstats"]);
    assert!(!asked.contains("cmdstat_auth"), "no password was sent: {asked}");
}

/// A minority of the sentinels that hangs costs nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hung_sentinel_is_no_obstacle() {
    let Some(group) = if_installed(RedisSentinel::start_with(&in_memory()).await) else { return };
    group.sentinels()[0].pause().expect("it runs");
    let start = std::time::Instant::now();
    let locks = client(&group.url()).await;
    locks.lock("a").await.expect("a free lock").release().await.expect("held");
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    tell(group.master(), &["CLIENT", "KILL", "TYPE", "normal"]);
    locks.lock("a").await.expect("a free lock").release().await.expect("held");
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    until("nothing is left", || keys(group.master()).is_empty()).await;
}

async fn until_it_locks(locks: &lockwell_core::Locks) {
    let locked = async {
        loop {
            match locks.lock("b").await {
                Ok(guard) => return guard,
                Err(error) => assert!(error.is_retryable(), "{error:#}"),
            }
        }
    };
    let guard = tokio::time::timeout(Duration::from_secs(30), locked).await.expect("a new master");
    guard.release().await.expect("held");
}
