//! An ensemble of `ZooKeeper`s.

use testbed::{ZooKeeperEnsemble, if_installed};

use crate::{
    life::{assert_gone, eventually, traces},
    options,
};

#[tokio::test]
async fn zookeeper_ensemble_lives() {
    let Some(ensemble) =
        if_installed(ZooKeeperEnsemble::start(3, &options().setting("tickTime", "400")).await)
    else {
        return;
    };
    let servers = ensemble.servers();
    let [a, b, c] = &*ensemble.addresses() else { panic!("three servers") };
    assert_eq!(ensemble.url(), format!("zk://{a},{b},{c}"));
    assert!(servers[1].four_letter("conf").expect("an answer").contains("tickTime=400"));
    assert!(ensemble.isolate(0).is_err(), "it has no links");
    let old = ensemble.leader().await.expect("a leader");
    assert_eq!(ensemble.followers().await.expect("followers").len(), 2);

    servers[old].kill().expect("kills");
    eventually("another one leads", async || ensemble.leader().await.is_ok_and(|new| new != old)).await;
    servers[old].restart().await.expect("restarts");
    ensemble.ready().await.expect("all are there");
    assert_ne!(ensemble.leader().await.expect("a leader"), old);

    let traces: Vec<_> = servers.iter().map(|server| traces(server)).collect();
    drop(ensemble);
    for (pid, folder) in traces {
        assert_gone(pid, &folder);
    }
}

#[tokio::test]
async fn a_server_is_cut_off_and_comes_back() {
    let Some(ensemble) = if_installed(ZooKeeperEnsemble::start_with_links(3, &options()).await) else {
        return;
    };
    let leader = ensemble.leader().await.expect("a leader");
    let follower = ensemble.followers().await.expect("followers")[0];

    // A follower: the others do not care.
    ensemble.isolate(follower).expect("has links");
    let lonely = async || !ensemble.followers().await.expect("followers").contains(&follower);
    eventually("it follows no longer", lonely).await;
    let answer = ensemble.servers()[follower].four_letter("srvr").expect("clients reach it");
    assert!(answer.contains("not currently serving"), "{answer}");
    eventually("the leader leads on", async || ensemble.leader().await.is_ok_and(|now| now == leader)).await;
    eventually("one follows", async || ensemble.followers().await.is_ok_and(|them| them.len() == 1)).await;
    ensemble.rejoin(follower).expect("has links");
    ensemble.ready().await.expect("it is back");
    assert_eq!(ensemble.leader().await.expect("a leader"), leader);

    // The leader: the others choose one of them, and it learns that it is none any more.
    ensemble.isolate(leader).expect("has links");
    eventually("another one leads", async || ensemble.leader().await.is_ok_and(|new| new != leader)).await;
    ensemble.rejoin(leader).expect("has links");
    ensemble.ready().await.expect("all are there");
    assert_ne!(ensemble.leader().await.expect("a leader"), leader);
}
