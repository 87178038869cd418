//! Releases that only some nodes confirm, and those of earlier rounds.

use std::time::{Duration, Instant};

use lockcore::ErrorKind;
use testbed::Redis;

use super::nodes;
use crate::asking::{claim, parts};
use crate::servers::{backend, client, on_disk, redlock_url, tell};

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

/// The hash of the script that claims are made with.
fn vote_script(node: &Redis) -> String {
    let log = tell(node, &["SLOWLOG", "GET", "-1"]);
    let words = parts(&log);
    let call = words.iter().position(|word| *word == "EVALSHA").expect("a claim was made");
    words[call + 1].to_owned()
}

#[tokio::test]
async fn a_vote_that_is_repeated_late_does_not_bring_its_round_back() {
    let Some(nodes) = nodes(3, &on_disk()).await else { return };
    let backend = backend(&redlock_url(&nodes)).await.expect("a connection");
    let (first, second) = (claim("a", Duration::from_secs(30)), claim("a", Duration::from_secs(30)));
    let acquire = async |claim| backend.acquire(claim).await.expect("an answer").expect("a free lock");
    let release = async |claim| backend.release(claim).await.expect("a majority");
    // The first call teaches the script to the nodes.
    acquire(&first).await;
    release(&first).await;
    let node = &nodes[0];
    tell(node, &["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    acquire(&second).await;
    let script = vote_script(node);
    release(&second).await;
    let owner = "0123456789abcdef0123456789abcdef";
    let [counter, lock, queue, seats] = ["token", "b", "queue", "seats"];
    let vote = |round: &str| {
        let claim = [owner, "30000", "label", "5", round, "", "1"];
        tell(
            node,
            &[&["EVALSHA", &script, "4", counter, lock, queue, seats, "60000000"], &claim[..]].concat(),
        )
    };
    let round = || {
        let value = tell(node, &["GET", lock]);
        value.rsplit(':').nth(1).expect("a round").to_owned()
    };
    let number = |answer: String| answer.split_whitespace().last().map(str::to_owned);
    let voted = |round| number(vote(round));
    assert_eq!(
        (voted("1"), voted("1"), round()),
        (Some("5".to_owned()), Some("5".to_owned()), "1".to_owned())
    );
    // The next round has a vote of its own, and a late request of the last one changes nothing.
    assert_eq!((voted("2"), round()), (Some("6".to_owned()), "2".to_owned()));
    assert!(vote("1").starts_with("*1\r\n*4\r\n:0\r\n"), "a vote for a round that is over");
    assert_eq!(round(), "2");
    assert_eq!(
        (voted("10"), voted("10"), round()),
        (Some("7".to_owned()), Some("7".to_owned()), "10".to_owned())
    );
}
