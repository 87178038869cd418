//! Releases that only some nodes confirm, and those of earlier rounds.

use std::time::{Duration, Instant};

use lockwell_core::ErrorKind;
use testbed::Redis;

use super::{ask_for_vote, assembled, nodes};
use crate::servers::{client, on_disk, redlock_url, tell, until};

#[tokio::test]
async fn a_majority_of_mixed_answers_is_enough_and_no_node_is_waited_for() {
    let Some(nodes) = nodes(5, &on_disk()).await else { return };
    let locks = client(&redlock_url(&nodes)).await;
    for node in &nodes[..2] {
        node.kill().expect("it runs");
    }
    for lost in 0..=3 {
        let guard = locks.lock("a").await.expect("a majority");
        for node in &nodes[2..2 + lost] {
            tell(node, &["DEL", "lockwell:a"]);
        }
        let start = Instant::now();
        let answer = guard.release().await;
        // A dead node takes five seconds to be sure of.
        assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
        // The two that are silent may have held it, too.
        match answer {
            Ok(()) => assert!(lost < 3),
            Err(error) => assert!(lost == 3 && error.kind() == ErrorKind::Lost, "lost at {lost}: {error:#}"),
        }
    }
}

#[tokio::test]
async fn a_vote_that_is_repeated_late_does_not_bring_its_round_back() {
    let Some(nodes) = nodes(1, &on_disk()).await else { return };
    let node = &nodes[0];
    let owner = "0123456789abcdef0123456789abcdef";
    let vote =
        |round: &str| ask_for_vote(node, "b", &[owner, "30000", "label", "1", "0", "", "5", round, ""]);
    let round = || {
        let value = tell(node, &["GET", "b"]);
        value.rsplit(':').nth(1).expect("a round").to_owned()
    };
    assert_eq!((vote("1"), vote("1"), round()), (Some(6), Some(6), "1".to_owned()));
    // The next round has a vote of its own, and a late request of the last one changes nothing.
    assert_eq!((vote("2"), round()), (Some(7), "2".to_owned()));
    assert_eq!((vote("1"), round()), (None, "2".to_owned()), "a vote for a round that is over");
    assert_eq!((vote("10"), vote("10"), round()), (Some(8), Some(8), "10".to_owned()));
    // The script for the usual case leaves all of that to this one.
    let short = assembled(include_str!("../../../src/scripts/redlock/vote.lua"));
    for (owner, answer) in [(owner, ":0\r\n"), ("another", ":1\r\n")] {
        let told = tell(node, &["EVAL", &short, "2", "b", "counter", owner, "30000", "label", "5", "9", "1"]);
        assert_eq!((&*told, round()), (answer, "10".to_owned()));
    }
}

/// The others may be about to vote for it, so that it is the holder by the time at which its vote is deleted.
#[tokio::test]
async fn a_forced_release_counts_a_claim_that_has_one_vote() {
    let Some(nodes) = nodes(3, &on_disk()).await else { return };
    let locks = client(&redlock_url(&nodes)).await;
    let guard = locks.lock("a").ttl(Duration::from_secs(20)).await.expect("a majority");
    let is_there = |node: &Redis| tell(node, &["EXISTS", "lockwell:a"]) == ":1\r\n";
    until("all nodes have answered", || nodes.iter().all(is_there)).await;
    for node in &nodes[1..] {
        tell(node, &["DEL", "lockwell:a"]);
    }
    assert!(!locks.inspect("a").await.expect("an answer").is_held());
    assert_eq!(locks.force_release("a").await.expect("an answer"), 1);
    assert_eq!(tell(&nodes[0], &["EXISTS", "lockwell:a"]), ":0\r\n");
    assert_eq!(guard.release().await.expect_err("freed").kind(), ErrorKind::Lost);
    // Of two that have votes, one can be the holder.
    for (node, owner) in [("1", &nodes[0]), ("2", &nodes[1])].map(|(digit, node)| (node, digit.repeat(32))) {
        tell(node, &["SET", "lockwell:a", &format!("{owner}:5:5:1:label"), "PX", "20000"]);
    }
    assert_eq!(locks.force_release("a").await.expect("an answer"), 1);
    assert_eq!(locks.force_release("a").await.expect("an answer"), 0);
}
