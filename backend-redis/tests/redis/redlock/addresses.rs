//! Which sets of nodes are refused.

use lockwell_core::ErrorKind;

use super::nodes;
use crate::servers::{client, in_memory, on_disk, redlock_url, refusal};

#[tokio::test]
async fn too_few_an_even_number_and_twice_the_same_are_refused() {
    let Some(nodes) = nodes(4, &in_memory()).await else { return };
    let twice = [nodes[0].clone(), nodes[1].clone(), nodes[0].clone()];
    for (nodes, part) in [
        (&nodes[..1], "at least 3"),
        (&nodes[..2], "at least 3"),
        (&nodes[..], "odd number"),
        (&twice, "twice"),
    ] {
        let error = refusal(&redlock_url(nodes)).await;
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:#}");
        assert!(error.to_string().contains(part), "{error:#}");
    }
}

#[tokio::test]
async fn one_server_under_two_addresses_is_refused() {
    let Some(nodes) = nodes(2, &on_disk()).await else { return };
    let [one, two] = [nodes[0].addr(), nodes[1].addr()];
    for hosts in [
        format!("{one},{two},localhost:{}", one.port()),
        format!("localhost:{},{two},{one}", one.port()),
        format!("{two},{one},localhost:{}", two.port()),
    ] {
        let error = refusal(&format!("redlock://{hosts}")).await;
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{hosts}: {error:#}");
        assert!(error.to_string().contains("twice"), "{hosts}: {error:#}");
    }
}

#[tokio::test]
async fn a_majority_must_answer() {
    let Some(nodes) = nodes(3, &on_disk()).await else { return };
    let url = format!("{}?timeout=1s", redlock_url(&nodes));
    nodes[0].kill().expect("it runs");
    let locks = client(&url).await;
    locks.lock("a").await.expect("a majority").release().await.expect("a majority");
    nodes[1].kill().expect("it runs");
    let error = refusal(&url).await;
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:#}");
    assert!(error.to_string().contains("1 of 3 nodes"), "{error:#}");
    let error = locks.lock("a").await.expect_err("no majority");
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:#}");
    nodes[1].restart().await.expect("it starts again");
    locks.lock("a").await.expect("a majority").release().await.expect("a majority");
}
