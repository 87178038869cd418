//! The verbs that only read make nothing at a server: no table, no node, no key. For files, see the tests of
//! `status`.

use crate::support::{finish, lockwell};

const HANDLE: &str = "lw1.0.00000000000000000000000000000001.1.a";

const VERBS: [&[&str]; 14] = [
    &["status"],
    &["status", "--json", "a"],
    &["why"],
    &["why", "a"],
    &["top", "--once", "--every", "100ms", "a"],
    &["wait", "a", "--for", "1s"],
    &["record", "a"],
    &["jobs"],
    &["jobs", "a"],
    &["doctor", "--look-only"],
    &["doctor"],
    &["grace", "--yes"],
    &["release", HANDLE],
    &["release", "--force", "--yes", "a"],
];

/// What the verbs say of a server that has nothing of lockwell.
#[derive(Clone, Copy)]
pub(crate) enum Fresh {
    /// What a lock needs is missing, and this says so.
    #[cfg(any(feature = "postgres", feature = "mysql", feature = "zk"))]
    Lacks(&'static str),
    /// A lock needs nothing: there is none.
    #[cfg(feature = "redis")]
    HasNoLocks,
}

/// Runs each verb on a server that has nothing of lockwell. `made`: what there is of lockwell at the server,
/// or `0`.
pub(crate) async fn make_nothing(url: &str, fresh: Fresh, made: impl AsyncFn() -> String) {
    let schemes: &[&str] = match url.split_once("://").expect("an address").0 {
        "postgres" => &["postgres", "postgresql"],
        "mysql" => &["mysql", "mariadb"],
        _ => &[""],
    };
    assert_eq!(made().await, "0", "before");
    for (scheme, verb) in schemes.iter().flat_map(|scheme| VERBS.map(|verb| (scheme, verb))) {
        let place = url.split_once("://").expect("an address").1;
        let url = if scheme.is_empty() { url.to_owned() } else { format!("{scheme}://{place}") };
        // The trial of a doctor takes a lock, whose counter of tokens stays.
        #[cfg(feature = "redis")]
        if matches!(fresh, Fresh::HasNoLocks) && verb == ["doctor"] {
            continue;
        }
        let run = finish(lockwell(verb).env("LOCKWELL_URL", &url));
        let doctor = verb[0] == "doctor";
        match fresh {
            #[cfg(any(feature = "postgres", feature = "mysql", feature = "zk"))]
            Fresh::Lacks(text) => {
                assert_eq!(run.status, if doctor { 2 } else { 70 }, "{url} {verb:?}: {run:?}");
                let said = format!("{}{}", run.out, run.err);
                assert!(said.contains(text), "{url} {verb:?}: {run:?}");
            }
            #[cfg(feature = "redis")]
            Fresh::HasNoLocks => {
                let status = match verb[0] {
                    "release" => 76,
                    "grace" => 64,
                    "record" | "jobs" if url.starts_with("redlock") => 64,
                    "record" => 1,
                    _ => 0,
                };
                assert!(run.status == status || doctor, "{url} {verb:?}: {run:?}");
            }
        }
        assert_eq!(made().await, "0", "{url} {verb:?}");
    }
    // What they would have made.
    assert_eq!(finish(lockwell(&["run", "a", "--", "true"]).env("LOCKWELL_URL", url)).status, 0);
    assert_ne!(made().await, "0", "{url}");
}
