//! SQLite files on a disk that refuses to sync, and on hosts that have started again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockwell_core::{DistributedLock, ErrorKind, Mode, Moment, Renewal};
use testbed::preloaded_syncs;

use crate::record::available;
use crate::servers::{Kind, admin, backend, claim, soon, url};
use crate::sqlite_child::command;

const SHORT: Duration = Duration::from_secs(5);
/// What the tables assume of leases until a claim asks for more.
const LONGEST: Duration = Duration::from_secs(30);

/// What the child does whose syncs fail as long as a file exists.
pub(crate) async fn on_a_sick_disk(url: &str) {
    let fails = std::env::var("LOCKWELL_SYNC_FAILS").expect("a path");
    let one = backend(Kind::Sqlite, url).await.expect("a file");
    let exclusive = |name: &str, ttl| claim(name, Mode::Exclusive, ttl);
    let held = one.acquire(&exclusive("a", SHORT)).await.expect("an answer").expect("free");
    std::fs::write(&fails, "").expect("a file");
    // Grants wait for no disk.
    one.acquire(&exclusive("b", SHORT)).await.expect("an answer").expect("free");
    let failed = Instant::now();
    let error =
        one.acquire(&exclusive("c", LONGEST + SHORT)).await.expect_err("this one raises the longest ttl");
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:#}");
    // The volume may be in use by another host already, so no lease may go on.
    let renewed = one.renew(std::slice::from_ref(&held), Moment::now().after(SHORT / 8)).await;
    assert!(matches!(renewed[..], [Renewal::Unknown(_)]), "{renewed:?}");
    std::fs::remove_file(&fails).expect("the file");
    let renewed = one.renew(std::slice::from_ref(&held), soon()).await;
    assert!(matches!(renewed[..], [Renewal::Renewed(_)]), "{renewed:?}");
    let mut refused = 0;
    loop {
        let claimed = one.acquire(&exclusive("d", SHORT)).await;
        match claimed {
            Ok(grant) => break drop(grant.expect("free")),
            Err(error) => {
                assert!(error.to_string().contains("failed to sync"), "{error:#}");
                refused += 1;
            }
        }
        // What is held can be given back all the while.
        one.release(held.claim()).await.expect("an answer");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(failed.elapsed() >= LONGEST && refused > 10, "{:?}, {refused}", failed.elapsed());
    println!("=> granted");
    std::process::exit(0);
}

#[tokio::test]
async fn a_disk_that_does_not_sync_grants_nothing_for_a_while() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(library) = available(preloaded_syncs(folder.path())) else { return };
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let file = place.path().join("locks.db").display().to_string();
    let mut child = command("sick-disk", &format!("sqlite://{file}?durability=grace"));
    child.env("LD_PRELOAD", library).env("LOCKWELL_SYNC_FAILS", folder.path().join("fails"));
    let output =
        tokio::task::spawn_blocking(move || child.output().expect("it runs")).await.expect("no panic");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("=> granted"), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

/// In the file are the locks of processes that are gone. Their tokens are not given again, and the bound of
/// tokens comes to the disk first.
#[tokio::test]
async fn after_a_start_of_the_host_tokens_are_above_the_bound() {
    for mode in [Mode::Exclusive, Mode::Shared] {
        let url = url(Kind::Sqlite, "booted").await.expect("no server is needed");
        let one = backend(Kind::Sqlite, &url).await.expect("a file");
        let before = one.acquire(&claim("a", mode, SHORT)).await.expect("an answer").expect("free");
        one.release(before.claim()).await.expect("an answer");
        let bound = admin(Kind::Sqlite, &url, "SELECT CAST(token_bound AS TEXT) FROM booted_state").await;
        let bound: u64 = bound.parse().expect("a number");
        assert!(bound > before.token().get() + 3_000_000_000, "an hour ahead");
        admin(Kind::Sqlite, &url, "UPDATE booted_state SET boot = 'another', raised_at = 0").await;
        // Reading tells nothing about it, and changes nothing.
        assert!(!one.inspect(before.claim().name()).await.expect("an answer").is_held());
        let after = one.acquire(&claim("a", mode, SHORT)).await.expect("an answer").expect("free");
        assert!(after.token().get() > bound, "{after:?}, {bound}");
        let other = one.acquire(&claim("b", mode, SHORT)).await.expect("an answer").expect("free");
        assert!(other.token().get() > bound, "a lock that has no row");
    }
}

/// The address of new tables that do not sync their grants, and a client of them. `None`: not on this host.
async fn with_grace(table: &str) -> Option<(String, Arc<dyn DistributedLock>)> {
    let url = url(Kind::Sqlite, table).await.expect("no server is needed") + "&durability=grace";
    let Ok(one) = backend(Kind::Sqlite, &url).await else {
        testbed::cannot_run("", "this host has no durability=grace");
        return None;
    };
    Some((url, one))
}

/// A volume that another host had, which still runs: its last grants may be in its memory only.
#[tokio::test]
async fn after_a_move_to_another_host_nothing_is_granted_for_a_while() {
    let Some((url, one)) = with_grace("moved").await else { return };
    let acquire = async |name: &str, mode, ttl| one.acquire(&claim(name, mode, ttl)).await;
    let granted = acquire("a", Mode::Exclusive, LONGEST * 2).await.expect("an answer").expect("free");
    let unknown_for = async || one.inspect(granted.claim().name()).await.expect("an answer").unknown_for;
    // This host was running already when the state was raised in the other boot; or its id is another one.
    let host = admin(Kind::Sqlite, &url, "SELECT host FROM moved_state").await;
    let moves =
        [("boot = '1'", Mode::Exclusive), ("boot = '2', raised_at = 0, host = 'another'", Mode::Shared)];
    for (moved, mode) in moves.into_iter().take(if host.is_empty() { 1 } else { 2 }) {
        admin(Kind::Sqlite, &url, &format!("UPDATE moved_state SET {moved}")).await;
        let error = acquire("b", mode, SHORT).await.expect_err("nothing is granted");
        assert_eq!(error.kind(), ErrorKind::GracePeriod, "{error:#}");
        let left = unknown_for().await.expect("holders may be missing");
        assert!(left > LONGEST * 2 && left < LONGEST * 4, "{left:?}");
        admin(Kind::Sqlite, &url, "UPDATE moved_state SET opens_at = 1").await;
        acquire(moved, mode, SHORT).await.expect("an answer").expect("it is over");
        assert_eq!(unknown_for().await, None);
    }
    // What is synced is not lost.
    admin(Kind::Sqlite, &url, "UPDATE moved_state SET boot = '3'").await;
    let synced = backend(Kind::Sqlite, &url.replace("grace", "disk")).await.expect("a file");
    synced.acquire(&claim("d", Mode::Exclusive, SHORT)).await.expect("an answer").expect("free");
}

/// Beside a process that cannot read the id of the boot, as in a container with an id of its own: they raise
/// the state of the tables in turn, and no host has lost anything.
#[tokio::test]
async fn a_process_without_an_id_of_the_boot_closes_the_file_to_nobody() {
    let Some((url, one)) = with_grace("beside").await else { return };
    let bound = async || {
        let bound = admin(Kind::Sqlite, &url, "SELECT CAST(token_bound AS TEXT) FROM beside_state").await;
        bound.parse::<u64>().expect("a number")
    };
    let first = claim("a", Mode::Exclusive, SHORT);
    one.acquire(&first).await.expect("an answer").expect("free");
    for (name, mode) in [("b", Mode::Exclusive), ("c", Mode::Shared), ("d", Mode::Exclusive)] {
        admin(Kind::Sqlite, &url, "UPDATE beside_state SET boot = '', host = 'another'").await;
        // Its grants had tokens up to this one.
        let before = bound().await;
        let granted = one.acquire(&claim(name, mode, SHORT)).await.expect("an answer").expect("free");
        assert!(granted.token().get() > before, "{granted:?}, {before}");
        assert!(bound().await - before < 60_000_000, "they go ahead by a second each time");
        assert_eq!(one.inspect(first.name()).await.expect("an answer").unknown_for, None);
    }
}

/// Claims that arrive together are granted together, also if the first of them finds another boot.
#[tokio::test]
async fn a_batch_finds_another_boot() {
    let url = url(Kind::Sqlite, "batch").await.expect("no server is needed");
    let one = backend(Kind::Sqlite, &url).await.expect("a file");
    let claims: Vec<_> = (0..9).map(|n| claim(&format!("a{n}"), Mode::Exclusive, SHORT)).collect();
    for boot in ["one", "two"] {
        admin(Kind::Sqlite, &url, &format!("UPDATE batch_state SET boot = '{boot}', raised_at = 0")).await;
        let grants = one.acquire_each(&claims).await;
        let tokens = grants.into_iter().map(|grant| grant.expect("an answer").expect("free").token());
        assert_eq!(tokens.count(), 9);
        for claim in &claims {
            one.release(claim).await.expect("an answer");
        }
    }
    // A row that somebody has deleted is made again.
    admin(Kind::Sqlite, &url, "DELETE FROM batch_state").await;
    one.acquire(&claims[0]).await.expect("an answer").expect("free");
    // A longer lease is known before it is granted.
    one.acquire(&claim("long", Mode::Exclusive, LONGEST * 3)).await.expect("an answer").expect("free");
    let longest = admin(Kind::Sqlite, &url, "SELECT CAST(longest_ttl AS TEXT) FROM batch_state").await;
    assert_eq!(longest, (LONGEST * 3).as_micros().to_string());
}
