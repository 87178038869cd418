//! Locks that several hold together: what can go wrong in tables.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lockwell_core::{Claim, ErrorKind, Grant, LockName, LockStatus, Locks, Mode, Released, Renewal, Wait};

use crate::servers::{ALL, Kind, admin, claim, client, count, permit, soon, through, url};

async fn status(locks: &Locks, name: &str) -> LockStatus {
    locks.inspect(name).await.expect("an answer")
}

/// Many who ask at once travel in one statement, and each gets its own answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_travel_together_are_told_apart() {
    for kind in ALL {
        let Some(url) = url(kind, "together").await else { continue };
        let (one, two) = (client(kind, &url).await, client(kind, &url).await);
        for round in 0..5 {
            let ask = |n: usize| {
                let locks = if n.is_multiple_of(2) { &one } else { &two };
                let request = match n % 4 {
                    0 | 1 => locks.read("book"),
                    2 => locks.permit("slots", 10),
                    _ => locks.permit(format!("new {round}"), 10),
                };
                tokio::spawn(async move { request.try_now().await })
            };
            let mut guards = Vec::new();
            for asked in (0..80).map(ask).collect::<Vec<_>>() {
                guards.extend(asked.await.expect("no panic").expect("an answer"));
            }
            let mut tokens: Vec<_> =
                guards.iter().map(|guard| (guard.name().clone(), guard.token())).collect();
            tokens.sort_unstable();
            tokens.dedup();
            assert_eq!(tokens.len(), guards.len(), "{kind:?}: two holders have one token");
            let held = |name: &str| guards.iter().filter(|guard| guard.name().as_str() == name).count();
            let new = format!("new {round}");
            assert_eq!((held("book"), held("slots"), held(&new)), (40, 10, 10), "{kind:?}");
            assert_eq!(status(&one, "book").await.holders.len(), 40, "{kind:?}");
            assert!(two.write("book").try_now().await.expect("an answer").is_none(), "{kind:?}");
            for name in ["slots", &new] {
                let eleventh = two.permit(name, 10).try_now().await.expect("an answer");
                assert!(eleventh.is_none(), "{kind:?}: one by itself");
            }
            let releases: Vec<_> = guards.into_iter().map(|guard| tokio::spawn(guard.release())).collect();
            for release in releases {
                release.await.expect("no panic").expect("held");
            }
            for name in ["book", "slots", &new] {
                let guard = one.lock(name).try_now().await.expect("nobody holds it").expect("it is free");
                guard.release().await.expect("held");
            }
        }
        assert_eq!(count(kind, &url, "together_members").await, "0", "{kind:?}");
    }
}

/// Readers, writers and readers again, of two clients: each comes in when all before it have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_queue_is_served_in_order_over_modes() {
    for kind in ALL {
        let Some(url) = url(kind, "in_order").await else { continue };
        let clients = [client(kind, &url).await, client(kind, &url).await];
        let guard = clients[0].write("book").await.expect("a free lock");
        let mut waiting = Vec::new();
        for (n, reads) in [true, true, false, true, false, false, true, true].into_iter().enumerate() {
            let locks = &clients[n % 2];
            let request = if reads { locks.read("book") } else { locks.write("book") };
            waiting.push(tokio::spawn(async move {
                let guard = request.wait(Duration::from_secs(30)).await.expect("its turn comes");
                tokio::time::sleep(Duration::from_millis(20)).await;
                let token = guard.token();
                guard.release().await.expect("held");
                token
            }));
            while status(&clients[0], "book").await.waiters <= n {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        guard.release().await.expect("held");
        let mut tokens = Vec::new();
        for one in waiting {
            tokens.push(one.await.expect("no panic"));
        }
        // Readers who stand together come in together, in whatever order.
        tokens[..2].sort_unstable();
        tokens[6..].sort_unstable();
        assert!(tokens.is_sorted(), "{kind:?}: {tokens:?}");
    }
}

/// Claims that travel together and reserve several tokens each have them for themselves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_of_tokens_do_not_overlap() {
    const BLOCK: NonZeroU32 = NonZeroU32::new(1000).expect("not zero");
    for kind in ALL {
        let Some(url) = url(kind, "blocks").await else { continue };
        let locks = client(kind, &url).await;
        let mut last: Vec<(String, u64)> = Vec::new();
        for round in 0..4 {
            let tasks: Vec<_> = (0..24)
                .map(|n| {
                    let (mode, name) = match n % 3 {
                        0 => (Mode::Exclusive, format!("name {n}")),
                        1 => (Mode::Shared, "book".to_owned()),
                        _ => (permit(8), "slots".to_owned()),
                    };
                    let backend = Arc::clone(locks.backend());
                    let mine = claim(&name, mode, Duration::from_secs(20)).reserving(BLOCK);
                    tokio::spawn(async move {
                        let grant = backend.acquire(&mine).await.expect("an answer").expect("a free lock");
                        (name, mine, grant.token().get(), grant.last_token().get())
                    })
                })
                .collect();
            let mut blocks = Vec::new();
            for task in tasks {
                blocks.push(task.await.expect("no task fails"));
            }
            blocks.sort_by_key(|(.., token, _)| *token);
            for (name, mine, first, end) in blocks {
                assert_eq!(end - first, 999, "{kind:?}");
                let before = last.iter().filter(|(one, _)| *one == name).map(|(_, end)| *end).max();
                assert!(
                    Some(first) > before,
                    "{kind:?}, round {round}: {first} of {name:?} after {before:?}"
                );
                last.push((name, end));
                assert_eq!(locks.backend().release(&mine).await.expect("an answer"), Released::Released);
            }
        }
    }
}

/// Asked again after a lost answer, a member has the same token, and its lease begins anew as its validity
/// does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_asks_again_stays_one_member() {
    for kind in ALL {
        let Some(url) = url(kind, "again").await else { continue };
        let (one, two) = (client(kind, &url).await, client(kind, &url).await);
        for (name, mode) in [("book", Mode::Shared), ("slots", permit(2))] {
            let mine = claim(name, mode, Duration::from_secs(20));
            let first = one.backend().acquire(&mine).await.expect("an answer").expect("a free lock");
            tokio::time::sleep(Duration::from_millis(300)).await;
            let before = status(&one, name).await.holders[0].ttl_left;
            for locks in [&one, &two] {
                let again = locks.backend().acquire(&mine).await.expect("an answer").expect("a member");
                assert_eq!(again.token(), first.token(), "{kind:?}");
            }
            let shown = status(&two, name).await;
            assert_eq!(shown.holders.len(), 1, "{kind:?}: {shown:?}");
            assert!(
                shown.holders[0].ttl_left > before,
                "{kind:?}: a lease that is older than the validity of its grant"
            );
            assert!(shown.holders[0].held_for >= Duration::from_millis(250), "{kind:?}: {shown:?}");
            assert_eq!(two.backend().release(&mine).await.expect("an answer"), Released::Released);
            assert_eq!(two.backend().release(&mine).await.expect("an answer"), Released::NotHeld);
            assert!(matches!(two.backend().renew(&[first], soon()).await[..], [Renewal::Lost]), "{kind:?}");
            assert!(!status(&one, name).await.is_held(), "{kind:?}");
        }
    }
}

/// A name that somebody has waited for: the claim asks together with a place in the queue. A member that asks
/// so again gets no place, which nothing would delete, and behind which all others would wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_asks_again_stands_in_nobodys_way() {
    for kind in ALL {
        let Some(url) = url(kind, "no_place").await else { continue };
        let (one, two) = (client(kind, &url).await, client(kind, &url).await);
        for (name, mode) in [("book", Mode::Shared), ("slots", permit(1))] {
            let guard = one.lock(name).await.expect("a free lock");
            let waiting = tokio::spawn(two.lock(name).wait(Duration::from_mins(1)).into_future());
            while status(&one, name).await.waiters == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            guard.release().await.expect("held");
            waiting.await.expect("no panic").expect("its turn comes").release().await.expect("held");
            let name_of = LockName::new(name).expect("a good name");
            let ttl = Duration::from_secs(20);
            let mine = Claim::new(name_of, mode, ttl, Wait::Forever, "again".into());
            let first = two.backend().acquire(&mine).await.expect("an answer").expect("a free lock");
            let again = two.backend().acquire(&mine).await.expect("an answer").expect("a member");
            assert_eq!(again.token(), first.token(), "{kind:?}");
            assert_eq!(status(&one, name).await.waiters, 0, "{kind:?}: a member is no waiter");
            assert_eq!(two.backend().release(&mine).await.expect("an answer"), Released::Released);
            let next = one.lock(name).wait(Duration::from_secs(10)).await;
            next.unwrap_or_else(|error| panic!("{kind:?}: {error:#}")).release().await.expect("held");
        }
    }
}

/// A writer that does not know of its downgrade is freed like the reader that it is.
#[tokio::test]
async fn a_release_finds_what_was_downgraded() {
    for kind in ALL {
        let Some(url) = url(kind, "downgraded").await else { continue };
        let locks = client(kind, &url).await;
        let writer = claim("book", Mode::Exclusive, Duration::from_secs(20));
        let grant: Grant = locks.backend().acquire(&writer).await.expect("an answer").expect("a free lock");
        for _ in 0..2 {
            let reader = locks.backend().downgrade(&grant).await.expect("a writer becomes a reader");
            assert_eq!((reader.token(), reader.claim().mode()), (grant.token(), Mode::Shared));
        }
        // A request of the writer that the network kept until now changes nothing.
        assert!(locks.backend().acquire(&writer).await.expect("an answer").is_none(), "{kind:?}");
        assert!(matches!(
            locks.backend().renew(std::slice::from_ref(&grant), soon()).await[..],
            [Renewal::Lost]
        ));
        let other = locks.read("book").try_now().await.expect("an answer").expect("readers meet");
        assert_eq!(locks.backend().release(&writer).await.expect("an answer"), Released::Released);
        other.release().await.expect("held");
        let error = locks.backend().downgrade(&grant).await.expect_err("it holds nothing");
        assert_eq!(error.kind(), ErrorKind::Lost, "{kind:?}");
        locks
            .lock("book")
            .try_now()
            .await
            .expect("an answer")
            .expect("a free lock")
            .release()
            .await
            .expect("held");
    }
}

/// Who wants a name in different ways at the same time waits for nobody for ever, meets no other kind, and
/// leaves nothing behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kinds_take_turns_and_leave_nothing_behind() {
    const ROUNDS: u32 = 15;
    for kind in ALL {
        let Some(url) = url(kind, "kinds").await else { continue };
        let clients = [client(kind, &url).await, client(kind, &url).await];
        let inside = Arc::<[AtomicU32; 3]>::default();
        let tasks: Vec<_> = (0..12)
            .map(|n: u32| {
                let (locks, inside) = (clients[n as usize % 2].clone(), Arc::clone(&inside));
                tokio::spawn(async move {
                    let which = n as usize % 3;
                    for _ in 0..ROUNDS {
                        let request = match which {
                            0 => locks.lock("name"),
                            1 => locks.permit("name", 2),
                            _ => locks.permit("name", 3),
                        };
                        let guard = request.wait(Duration::from_mins(1)).await.expect("its turn comes");
                        inside[which].fetch_add(1, Ordering::SeqCst);
                        tokio::time::sleep(Duration::from_millis(1)).await;
                        let met: Vec<_> = inside.iter().map(|many| many.load(Ordering::SeqCst)).collect();
                        let others = (0..3).filter(|&other| other != which && met[other] > 0).count();
                        assert!(others == 0 && met[which] <= [1, 2, 3][which], "{kind:?}: {met:?}");
                        inside[which].fetch_sub(1, Ordering::SeqCst);
                        guard.release().await.expect("held");
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no task fails");
        }
        let shown = status(&clients[0], "name").await;
        assert!(!shown.is_held() && shown.waiters == 0, "{kind:?}: {shown:?}");
    }
}

/// Members whose leases have ended are deleted with the idle rows; those who live are not.
#[tokio::test]
async fn a_purge_takes_the_dead_only() {
    for kind in ALL {
        let Some(url) = url(kind, "purged").await else { continue };
        let locks = client(kind, &url).await;
        let reader = locks.read("book").await.expect("a free lock");
        for name in ["book", "left"] {
            let dead = claim(name, Mode::Shared, Duration::from_millis(50));
            locks.backend().acquire(&dead).await.expect("an answer").expect("readers meet");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(count(kind, &url, "purged_members").await, "3", "{kind:?}");
        let rows = admin(kind, &url, "SELECT * FROM purged").await;
        let members = admin(kind, &url, "SELECT * FROM purged_members").await;
        assert_eq!(purge(kind, &url).await, 1, "{kind:?}: one lock is idle: {rows}, {members}");
        assert_eq!(count(kind, &url, "purged_members").await, "1", "{kind:?}");
        assert_eq!(count(kind, &url, "purged").await, "1", "{kind:?}");
        assert!(locks.write("book").try_now().await.expect("an answer").is_none(), "{kind:?}");
        reader.release().await.expect("the purge spared it");
        let writer = locks.write("book").try_now().await.expect("an answer");
        writer.expect("a free lock").release().await.expect("held");
    }
}

async fn purge(kind: Kind, url: &str) -> u64 {
    let url = url.parse().expect("an address");
    let purged = match kind {
        Kind::Sqlite => {
            lockwell_sql::SqliteLock::connect(&url).await.expect("connects").purge(Duration::ZERO).await
        }
        Kind::Postgres => {
            lockwell_sql::PostgresLock::connect(&url).await.expect("connects").purge(Duration::ZERO).await
        }
        Kind::MariaDb => {
            lockwell_sql::MySqlLock::connect(&url).await.expect("connects").purge(Duration::ZERO).await
        }
    };
    purged.expect("an answer")
}

/// The reply to the k-th request is lost, wherever that is in the life of a reader that was a writer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_replies_leave_nothing_behind() {
    for kind in ALL {
        let Some(url) = url(kind, "lost").await else { continue };
        let Some(proxy) = crate::servers::proxy(kind).await else { continue };
        let other = client(kind, &url).await;
        let one = client(kind, &through(&url, &proxy)).await;
        let mut dropped = 0;
        for k in 1..=24 {
            let before = proxy.dropped_replies();
            proxy.drop_reply(k);
            let name = format!("name {}", k % 3);
            let reader = one.read(&name).wait(Duration::from_secs(20)).await.expect("a free lock");
            let second = one.permit("slots", 2).wait(Duration::from_secs(20)).await.expect("a free lock");
            assert_eq!(status(&other, &name).await.holders.len(), 1, "{kind:?}, k = {k}");
            reader.release().await.expect("held");
            let writer = one.write(&name).wait(Duration::from_secs(20)).await.expect("a free lock");
            let reader = writer.downgrade().await.expect("held");
            assert_eq!(status(&other, "slots").await.holders.len(), 1, "{kind:?}, k = {k}");
            reader.release().await.expect("held");
            second.release().await.expect("held");
            proxy.drop_reply(0);
            dropped += proxy.dropped_replies() - before;
            for name in [name.as_str(), "slots"] {
                let guard = other.lock(name).try_now().await.expect("nobody holds it").expect("it is free");
                guard.release().await.expect("held");
            }
            assert_eq!(count(kind, &url, "lost_members").await, "0", "{kind:?}, k = {k}");
        }
        assert!(dropped > 5, "{kind:?}: {dropped} replies were lost");
    }
}
