//! Locks held at a majority of independent nodes.

mod addresses;
mod fresh_nodes;
mod last_runs;
mod minority;
mod readers;
mod reinstated;
mod releases;
mod restarts;
mod rivals;
mod rounds;
mod slow_nodes;
mod unpolled;

use futures_util::future::join_all;
use testbed::{Options, Redis};

use crate::asking::parts;
use crate::servers::{redis_with, tell};

/// So many nodes. `None` where the program is not installed.
pub(crate) async fn nodes(count: usize, options: &Options) -> Option<Vec<Redis>> {
    join_all((0..count).map(|_| redis_with(options))).await.into_iter().collect()
}

/// The address of a Redlock over nodes at these addresses.
fn url_of(addrs: &[std::net::SocketAddr]) -> String {
    let hosts: Vec<_> = addrs.iter().map(ToString::to_string).collect();
    format!("redlock://{}", hosts.join(","))
}

/// A script of the crate, with the parts that votes include.
fn assembled(script: &str) -> String {
    [
        ("clock", include_str!("../../../src/scripts/parts/clock.lua")),
        ("raise", include_str!("../../../src/scripts/parts/raise.lua")),
        ("vote", include_str!("../../../src/scripts/parts/vote.lua")),
        ("waiters", include_str!("../../../src/scripts/parts/waiters.lua")),
        ("group", include_str!("../../../src/scripts/parts/group.lua")),
        ("record", include_str!("../../../src/scripts/parts/record.lua")),
        ("each", include_str!("../../../src/scripts/parts/each.lua")),
    ]
    .iter()
    .fold(script.to_owned(), |script, (name, part)| script.replace(&format!("-- include {name}.lua"), part))
}

/// Asks a node for its vote by `scripts/redlock/claim.lua`. `None` if it has none for this round.
fn ask_for_vote(node: &Redis, lock: &str, claim: &[&str]) -> Option<u64> {
    let script = assembled(include_str!("../../../src/scripts/redlock/claim.lua"));
    let call = ["EVAL", &script, "6", lock, "queue", "waiters", "members", "details", "counter"];
    let answer = tell(node, &[&call[..], &["", "", "", "4000000"], claim].concat());
    let answer = parts(&answer);
    (answer[1] == ":1").then(|| answer[2].parse().expect("a number"))
}
