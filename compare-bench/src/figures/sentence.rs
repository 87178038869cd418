//! What locks without a lease cost, in one sentence.

use super::cell;
use super::runs::Run;
use crate::record::PeerResult;

/// The backend beside which each was measured, its name there, and its name for people.
const SESSION_LOCKS: [(&str, &str, &str); 3] = [
    ("postgres", "pg-advisory-lock", "an advisory lock of PostgreSQL"),
    ("mariadb", "get-lock", "`GET_LOCK` of MariaDB"),
    ("sqlite", "flock", "`flock`"),
];

/// Of a free one, of a hand-over, and after its holder was killed where that was measured.
pub(super) fn session_locks(run: &Run) -> String {
    let one = |(backend, name, known): (&str, &str, &str)| {
        let of = |workload: &str| -> Option<String> {
            let result = run.last(backend, workload)?;
            let peer = result.peers.iter().find(|peer: &&PeerResult| peer.name == name)?;
            let shown = || match workload {
                "recovery" => cell::their_range(peer),
                _ => cell::theirs(peer, result.quantity),
            };
            peer.error.is_none().then(shown)
        };
        let killed = of("recovery").map_or_else(String::new, |time| format!(" ({time} after a kill)"));
        Some(format!("{known} {} and {}{killed}", of("uncontended")?, of("handoff")?))
    };
    format!("{}.\n", SESSION_LOCKS.into_iter().filter_map(one).collect::<Vec<_>>().join("; "))
}
