//! Several locks at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::stage::{Stage, assert_within, done, free_by, holder, millis, pause, queued, release, secs};
use super::time::{now, timeout};
use lockwell_core::{ErrorKind, LockName, Mode};

/// All or none: one that is held keeps all others free.
pub(super) async fn several_locks_are_taken_together(stage: Stage) {
    let [one, two] = stage.clients().await;
    let names: Vec<LockName> = ["c", "a", "b", "a"].iter().map(|which| stage.name(which)).collect();
    let [c, a, b, _] = &names[..] else { unreachable!("four of them") };
    let all = one.lock_all(&names).await.expect("free locks");
    assert_eq!(all.guards().len(), 3, "a name that comes twice counts once");
    let sorted: Vec<_> = all.guards().iter().map(|guard| guard.name().clone()).collect();
    assert_eq!(sorted, [a.clone(), b.clone(), c.clone()]);
    for name in &names {
        assert_eq!(holder(&two, name).await, all.token(name), "{name}");
    }
    assert!(two.lock_all([b, c]).try_now().await.expect("an answer").is_none());
    all.release().await.expect("they are held");
    let held = two.lock(b).await.expect("a free lock");
    assert!(one.lock_all(&names).try_now().await.expect("an answer").is_none());
    let began = now();
    let error = one.lock_all(&names).wait(millis(300)).await.expect_err("b is held");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error:#}");
    assert_within(began, secs(2), || "a wait of 300 ms for all together ended".to_owned());
    for name in [a, c] {
        let (guard, _) = free_by(&two, name, secs(2), "after a wait in vain").await;
        release(guard).await;
    }
    queued(&two, b, 0, secs(2)).await;
    let waiting = tokio::spawn(one.lock_all(&names).wait(secs(20)).into_future());
    queued(&two, b, 1, secs(5)).await;
    // All are asked for at first, in no order; what came behind the one that is held is given back.
    release(free_by(&two, c, secs(2), "while an earlier one is waited for").await.0).await;
    assert!(holder(&two, c).await.is_none(), "a later lock is held while an earlier one is waited for");
    release(held).await;
    let all = done("all locks", secs(5), waiting).await.expect("no panic").expect("their turn comes");
    assert!(all.is_held());
    drop(all);
    for name in [a, b, c] {
        let (guard, _) = free_by(&two, name, secs(2), "after a drop").await;
        release(guard).await;
    }
    assert!(one.lock_all(Vec::<LockName>::new()).await.expect("nothing to wait for").is_held());
}

/// Tasks that want the same locks in opposite orders all get them.
pub(super) async fn opposite_orders_do_not_deadlock(stage: Stage) {
    let clients: [_; 2] = stage.clients().await;
    let names: Vec<LockName> = (0..4).map(|which| stage.name(which)).collect();
    let inside: Arc<Vec<AtomicU64>> = Arc::new(names.iter().map(|_| AtomicU64::new(0)).collect());
    let mut tasks = Vec::new();
    for task in 0..8_usize {
        let (locks, names, inside) = (clients[task % 2].clone(), names.clone(), Arc::clone(&inside));
        tasks.push(tokio::spawn(async move {
            for round in 0..6 {
                let (first, second) = ((task + round) % 4, (task * 3 + 1 + round * 2) % 4);
                let all = locks.lock_all([&names[first], &names[second]]).wait(secs(60)).await;
                let all = all.expect("their turn comes");
                for guard in all.guards() {
                    let at = names.iter().position(|name| name == guard.name()).expect("one of them");
                    assert_eq!(inside[at].fetch_add(1, Ordering::SeqCst), 0, "two hold {}", guard.name());
                }
                pause(1).await;
                for guard in all.guards() {
                    let at = names.iter().position(|name| name == guard.name()).expect("one of them");
                    inside[at].fetch_sub(1, Ordering::SeqCst);
                }
                all.release().await.expect("they are held");
            }
        }));
    }
    for task in tasks {
        done("a task that locks two", secs(90), task).await.expect("no panic");
    }
}

/// A caller that leaves at any moment leaves nothing behind.
pub(super) async fn several_locks_can_be_dropped_anywhere(stage: Stage) {
    let [one, two] = stage.clients().await;
    let names: Vec<LockName> = (0..3).map(|which| stage.name(which)).collect();
    for delay in [0, 0, 1, 2, 4, 8] {
        let held = two.lock(&names[1]).wait(secs(5)).await.expect("its turn comes");
        drop(timeout(millis(delay), one.lock_all(&names).into_future()).await);
        release(held).await;
        for name in &names {
            let (guard, _) = free_by(&two, name, secs(3), "after a dropped request").await;
            release(guard).await;
        }
    }
}

/// The loss of one lock is reported with its name.
pub(super) async fn the_loss_of_one_of_several_is_reported(stage: Stage) {
    let [one, two] = stage.clients().await;
    let names: Vec<LockName> = (0..3).map(|which| stage.name(which)).collect();
    let ttl = super::stage::ttl_of(&one, super::stage::KEPT);
    let all = one.lock_all(&names).ttl(ttl).await.expect("free locks");
    assert_eq!(two.force_release(&names[1]).await.expect("an answer"), 1);
    let (name, _) = done("the news", ttl + secs(3), all.lost()).await;
    assert_eq!(name, names[1]);
    assert!(!all.is_held() && all.guards()[0].is_held() && all.guards()[2].is_held());
    assert_eq!(all.release().await.expect_err("one was lost").kind(), ErrorKind::Lost);
    for name in &names {
        let (guard, _) = free_by(&two, name, secs(2), "after a release").await;
        release(guard).await;
    }
}

/// Readers among several locks share theirs with other readers, and keep writers out.
pub(super) async fn several_locks_are_taken_with_readers(stage: Stage) {
    let [one, two] = stage.clients().await;
    let names: Vec<LockName> = ["a", "b", "c"].iter().map(|which| stage.name(which)).collect();
    let [a, b, c] = &names[..] else { unreachable!("three of them") };
    let all = one.lock_all([b]).reading([c, a, b]).await.expect("free locks");
    let modes: Vec<_> = all.guards().iter().map(|guard| (guard.name(), guard.mode())).collect();
    assert_eq!(modes, [(a, Mode::Shared), (b, Mode::Exclusive), (c, Mode::Shared)], "b is wanted alone");
    let others = two.lock_all([stage.name("d")]).reading([a, c]).try_now().await.expect("an answer");
    let others = others.expect("readers share");
    assert!(two.lock_all([a]).try_now().await.expect("an answer").is_none(), "a reader keeps writers out");
    assert!(two.lock_all(Vec::<LockName>::new()).reading([b]).try_now().await.expect("an answer").is_none());
    all.release().await.expect("they are held");
    let waiting = tokio::spawn(one.lock_all([a, b]).wait(secs(20)).into_future());
    queued(&two, a, 1, secs(5)).await;
    others.release().await.expect("they are held");
    let all = done("all locks", secs(5), waiting).await.expect("no panic").expect("their turn comes");
    all.release().await.expect("they are held");
}
