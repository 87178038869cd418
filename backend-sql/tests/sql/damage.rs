//! Rows that somebody has changed from outside, for example by a partial restore.

use std::time::Duration;

use lockwell_core::{Locks, Mode};

use crate::servers::{ALL, admin, claim, client, count, ends, permit, url};

const LONG: Duration = Duration::from_secs(30);

async fn takes(locks: &Locks, name: &str, mode: Mode) -> bool {
    let claim = claim(name, mode, LONG);
    locks.backend().acquire(&claim).await.expect("an answer").is_some()
}

/// A group whose members have no rows holds nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_count_without_members_holds_nothing() {
    for kind in ALL {
        let Some(url) = url(kind, "counted").await else { continue };
        let locks = client(kind, &url).await;
        for (n, wanted) in [Mode::Exclusive, Mode::Shared, permit(2), permit(3)].into_iter().enumerate() {
            for held in [Mode::Shared, permit(2)] {
                // Asked at once, and with a place in the queue.
                for waits in [false, true] {
                    let name = format!("{n} {held} {waits}");
                    assert!(takes(&locks, &name, held).await && takes(&locks, &name, held).await);
                    admin(kind, &url, "DELETE FROM counted_members").await;
                    let request = match wanted {
                        Mode::Shared => locks.read(name.as_str()),
                        Mode::Permit { limit } => locks.permit(name.as_str(), limit.get()),
                        _ => locks.lock(name.as_str()),
                    };
                    let wait = if waits { LONG } else { Duration::ZERO };
                    let guard = request.wait(wait).await;
                    let guard =
                        guard.unwrap_or_else(|error| panic!("{kind:?} {wanted} after {held}: {error:#}"));
                    guard.release().await.expect("held");
                    // Another reader need not be refused, and then the count stays.
                    let writer = locks.lock(name.as_str()).try_now().await.expect("an answer");
                    writer
                        .unwrap_or_else(|| panic!("{kind:?} {wanted} after {held}"))
                        .release()
                        .await
                        .expect("held");
                    let free = format!(
                        "counted WHERE name = '{name}' AND members = 0 AND mode = 0 AND {} IS NULL",
                        ends(kind)
                    );
                    assert_eq!(count(kind, &url, &free).await, "1", "{kind:?} {wanted} after {held}");
                }
            }
        }
    }
}

/// What a free row says about a group means nothing, whether one claim comes or several in one statement.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_free_row_says_nothing_about_a_group() {
    for kind in ALL {
        let Some(url) = url(kind, "leftover").await else { continue };
        let locks = client(kind, &url).await;
        for together in [false, true] {
            for wanted in [Mode::Exclusive, Mode::Shared, permit(2)] {
                let name = format!("{wanted} {together}");
                locks.lock(name.as_str()).await.expect("a free lock").release().await.expect("held");
                let damage = format!("UPDATE leftover SET mode = 3, members = 2 WHERE name = '{name}'");
                admin(kind, &url, &damage).await;
                let claims: Vec<_> = (0..3).map(|_| claim(&name, wanted, LONG)).collect();
                let mut held = 0;
                if together {
                    let answers = locks.backend().acquire_each(&claims).await;
                    for answer in answers {
                        held += usize::from(answer.expect("an answer").is_some());
                    }
                } else {
                    for claim in &claims {
                        let answer = locks.backend().acquire(claim).await;
                        held += usize::from(
                            answer.unwrap_or_else(|error| panic!("{kind:?} {wanted}: {error:#}")).is_some(),
                        );
                    }
                }
                let most = match wanted {
                    Mode::Exclusive => 1,
                    Mode::Permit { .. } => 2,
                    _ => 3,
                };
                assert_eq!(held, most, "{kind:?} {wanted}, together: {together}");
                let status = locks.inspect(name.as_str()).await.expect("an answer");
                assert_eq!(status.holders.len(), most, "{kind:?} {wanted}: {status:?}");
                assert!(status.holders.iter().all(|holder| holder.mode == wanted), "{kind:?}: {status:?}");
                for claim in &claims {
                    locks.backend().release(claim).await.expect("an answer");
                }
                assert!(
                    !locks.inspect(name.as_str()).await.expect("an answer").is_held(),
                    "{kind:?} {wanted}"
                );
            }
        }
    }
}

/// The member of a group that its lock's row does not know leaves: another who holds the lock holds it still.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forgotten_member_frees_nothing() {
    for kind in ALL {
        let Some(url) = url(kind, "forgotten").await else { continue };
        let locks = client(kind, &url).await;
        let (forgotten, known) = (claim("book", Mode::Shared, LONG), claim("book", Mode::Shared, LONG));
        locks.backend().acquire(&forgotten).await.expect("an answer").expect("a free lock");
        let damage = format!("UPDATE forgotten SET {} = NULL, mode = 0, members = 0", ends(kind));
        admin(kind, &url, &damage).await;
        locks.backend().acquire(&known).await.expect("an answer").expect("a free lock");
        locks.backend().release(&forgotten).await.expect("an answer");
        assert!(!takes(&locks, "book", Mode::Exclusive).await, "{kind:?}: a writer beside a reader");
        locks.backend().release(&known).await.expect("an answer");
        assert!(takes(&locks, "book", Mode::Exclusive).await, "{kind:?}: nobody holds it");
    }
}
