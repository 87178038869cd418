//! Redis with Sentinel.

use testbed::{RedisSentinel, if_installed};

use crate::{
    life::{assert_gone, eventually, traces},
    options, say,
};

#[tokio::test]
async fn sentinels_move_the_master() {
    let Some(group) =
        if_installed(RedisSentinel::start_with(&options().setting("requirepass", "secret")).await)
    else {
        return;
    };
    let (master, replica) = (group.master(), group.replica());
    let [a, b, c] = &*group.addresses() else { panic!("three sentinels") };
    assert_eq!(group.url(), format!("redis+sentinel://{a},{b},{c}/mymaster"));
    assert_eq!(group.present_master().await.expect("a master"), master.addr());
    assert_eq!(say(master, &["SET", "kept", "1"]), "+OK\r\n");
    assert_eq!(say(master, &["WAIT", "1", "5000"]), ":1\r\n");

    master.kill().expect("kills");
    let moved = async || group.present_master().await.is_ok_and(|addr| addr == replica.addr());
    eventually("the replica becomes the master", moved).await;
    assert_eq!(say(replica, &["SET", "late", "2"]), "+OK\r\n");
    assert_eq!(say(replica, &["GET", "kept"]), "$1\r\n1\r\n");

    // A sentinel remembers over a restart.
    group.sentinels()[0].kill().expect("kills");
    group.sentinels()[0].restart().await.expect("restarts");
    master.restart().await.expect("restarts");
    group.ready().await.expect("the old master is a replica");
    assert_eq!(group.present_master().await.expect("a master"), replica.addr());
    assert_eq!(say(master, &["GET", "late"]), "$1\r\n2\r\n");
    assert!(say(master, &["SET", "late", "3"]).starts_with("-READONLY"));

    // Both have written down what they are now.
    for node in [replica, master] {
        node.kill().expect("kills");
        node.restart().await.expect("restarts");
    }
    assert!(say(master, &["ROLE"]).contains("slave"));
    assert!(say(replica, &["ROLE"]).contains("master"));
}

#[tokio::test]
async fn a_sentinel_group_takes_settings_and_goes() {
    let options = options().setting("min-replicas-to-write", "1").setting("min-replicas-max-lag", "2");
    let Some(group) = if_installed(RedisSentinel::start_with(&options).await) else { return };
    assert_eq!(say(group.master(), &["SET", "a", "1"]), "+OK\r\n");
    group.replica().kill().expect("kills");
    assert!(say(group.master(), &["SET", "a", "2"]).starts_with("-NOREPLICAS"));
    group.replica().restart().await.expect("restarts");
    group.ready().await.expect("it is back");
    eventually("writes again", async || say(group.master(), &["SET", "a", "3"]) == "+OK\r\n").await;

    // A paused sentinel has no say.
    group.sentinels()[0].pause().expect("pauses");
    assert_eq!(group.present_master().await.expect("a master"), group.master().addr());

    let mut traces = vec![traces(group.master()), traces(group.replica())];
    traces.extend(group.sentinels().iter().map(|sentinel| crate::life::traces(sentinel)));
    drop(group);
    for (pid, folder) in traces {
        assert_gone(pid, &folder);
    }
}
