//! Servers that refuse requests, for a while or for good.

use lockwell_core::{ErrorKind, Moment};
use zookeeper_client::{Acl, AuthId, Client, Permission};

use crate::frames::{CREATE, CREATE_CONTAINER, DELETE, EXISTS, Frames, GET_DATA, LIST, THROTTLED};
use crate::servers::{client, connect, hold, options, queued, secs, single};

/// Forbids to delete nodes of this lock, or allows it again.
async fn set_delete(admin: &Client, lock: &str, allowed: bool) {
    let forbidden = Permission::CREATE | Permission::READ | Permission::WRITE | Permission::ADMIN;
    let rights = if allowed { Permission::ALL } else { forbidden };
    let acl = [Acl::new(rights, AuthId::anyone())];
    admin.set_acl(&format!("/lockwell/{lock}"), &acl, None).await.expect("a folder");
}

/// A server that forbids deletions for longer than lockcore repeats a release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_release_is_repeated_until_it_is_allowed() {
    let Some(server) = single(&options()).await else { return };
    let admin = Client::connect(&server.addr().to_string()).await.expect("a client");
    let (one, two) = (client(&server.url()).await, client(&server.url()).await);
    // The session lives on, since it keeps another lock.
    let kept = one.lock("kept").ttl(secs(2)).await.expect("a free lock");
    let released = one.lock("released").ttl(secs(2)).await.expect("a free lock");
    let dropped = one.lock("dropped").ttl(secs(2)).await.expect("a free lock");
    for name in ["released", "dropped"] {
        set_delete(&admin, name, false).await;
    }
    let error = released.release().await.expect_err("it is forbidden");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:#}");
    drop(dropped);
    // lockcore gives up after the lease and five seconds.
    tokio::time::sleep(secs(9)).await;
    for name in ["released", "dropped"] {
        assert!(two.inspect(name).await.expect("an answer").is_held(), "{name}: it was forbidden");
        set_delete(&admin, name, true).await;
        hold(&two, name).await.release().await.expect("held");
    }
    assert!(kept.is_held(), "{kept:?}");
    kept.release().await.expect("held");
}

/// A client that is closed, or dropped, ends its sessions, and with them what it may not delete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_not_be_deleted_ends_with_its_client() {
    let Some(server) = single(&options()).await else { return };
    let admin = Client::connect(&server.addr().to_string()).await.expect("a client");
    let two = client(&server.url()).await;
    for closed in [true, false] {
        let (one, lock) = connect(&server.url()).await;
        let name = if closed { "closed" } else { "gone" };
        let guard = one.lock(name).ttl(secs(2)).await.expect("a free lock");
        set_delete(&admin, name, false).await;
        guard.release().await.expect_err("it is forbidden");
        assert!(two.inspect(name).await.expect("an answer").is_held(), "it was forbidden");
        // A closed client may still be referred to.
        let left = closed.then(|| (one.clone(), lock.clone()));
        if closed {
            drop(one.close().await);
        } else {
            drop(one);
        }
        drop(lock);
        let guard = hold(&two, name).await;
        set_delete(&admin, name, true).await;
        guard.release().await.expect("held");
        drop(left);
    }
}

/// A server that has too many requests refuses some, which are repeated: nothing fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_throttled_is_repeated() {
    let Some(server) = single(&options()).await else { return };
    let frames = Frames::start(server.addr()).await;
    // Connecting, with a base that is missing.
    for operation in [EXISTS, GET_DATA, CREATE, CREATE_CONTAINER] {
        frames.refuse(operation, THROTTLED, 2);
    }
    let locks = client(&format!("{}/app/locks", frames.url())).await;
    let locks_there = client(&format!("{}/app/locks", server.url())).await;
    let guard = hold(&locks, "first").await;
    assert!(locks_there.inspect("first").await.expect("an answer").is_held());
    frames.refuse(DELETE, THROTTLED, 3);
    guard.release().await.expect("it is repeated");
    assert_eq!(frames.refusals_left(), 0);
    // Each request of an acquire, with a wait and without.
    for (round, operation) in [CREATE, LIST, CREATE_CONTAINER, CREATE].into_iter().enumerate() {
        let (creates, lists) = (frames.count(CREATE), frames.count(LIST));
        frames.refuse(operation, THROTTLED, 3);
        let name = format!("acquire-{round}");
        let guard = match round % 2 {
            0 => locks.lock(&*name).try_now().await.expect("an answer").expect("a free lock"),
            _ => hold(&locks, &name).await,
        };
        if operation == CREATE {
            // A node that was certainly not made is not looked for.
            assert_eq!(frames.count(LIST) - lists, frames.count(CREATE) - creates);
        }
        guard.release().await.expect("held");
        queued(&locks_there, &name, 0).await;
    }
    // A waiter, and an operator.
    let held = hold(&locks_there, "wait").await;
    for operation in [EXISTS, GET_DATA, LIST] {
        frames.refuse(operation, THROTTLED, 3);
    }
    let waiting = tokio::spawn(locks.lock("wait").wait(secs(30)).into_future());
    queued(&locks_there, "wait", 1).await;
    held.release().await.expect("held");
    let guard = waiting.await.expect("no panic").expect("its turn comes");
    for operation in [LIST, GET_DATA] {
        frames.refuse(operation, THROTTLED, 2);
    }
    assert!(locks.inspect("wait").await.expect("an answer").is_held());
    frames.refuse(DELETE, THROTTLED, 2);
    assert_eq!(locks.force_release("wait").await.expect("an answer"), 1);
    drop(guard);
}

/// A server that refuses for good is told about in time, and nothing is left behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_throttles_for_good_is_an_error_in_time() {
    let Some(server) = single(&options()).await else { return };
    let frames = Frames::start(server.addr()).await;
    let (locks, witness) =
        (client(&format!("{}?timeout=2s", frames.url())).await, client(&server.url()).await);
    frames.refuse(CREATE, THROTTLED, 10_000);
    let began = Moment::now();
    for wait in [None, Some(secs(1))] {
        let request = locks.lock("busy").ttl(secs(30));
        let error = match wait {
            None => request.try_now().await.map(drop).expect_err("no answer"),
            Some(wait) => request.wait(wait).await.map(drop).expect_err("no answer"),
        };
        assert!(error.is_retryable(), "{error:#}");
        assert!([ErrorKind::Unreachable, ErrorKind::TimedOut].contains(&error.kind()), "{error:#}");
    }
    assert!(Moment::now().since(began) < secs(20), "{:?}", Moment::now().since(began));
    queued(&witness, "busy", 0).await;
    hold(&witness, "busy").await.release().await.expect("held");
}
