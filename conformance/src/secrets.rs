//! Owners stay secret: whoever knows one can release its lock.

use std::fmt::Debug;

use super::stage::{Stage, claim, release, secs, status, ttl_of, within};
use crate::canary::shows_an_owner;
use lockwell_core::Mode;

fn check(what: &str, value: &dyn Debug) {
    for shown in [format!("{value:?}"), format!("{value:#?}")] {
        assert!(!shows_an_owner(&shown), "{what} shows its owner: {shown}");
    }
}

/// What applications hold in their hands can be printed.
pub(super) async fn debug_shows_no_owner(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("shown");
    let request = one.lock(&name).ttl(ttl_of(&one, 10_000));
    check("a request", &request);
    let guard = request.await.expect("a free lock");
    check("a guard", &guard);
    check("a grant", guard.grant());
    check("a claim", guard.grant().claim());
    check("what is held", &guard.handle());
    check("a request of several", &one.lock_all([&name]));
    check("a status", &status(&two, &name).await);
    check("a refusal", &two.lock(&name).try_now().await);
    release(guard).await;
    let several = one.lock_all([stage.name("a"), stage.name("b")]).await.expect("free locks");
    check("several guards", &several);
    drop(several);
    let owner = one.owner();
    let again = owner.lock(&name).await.expect("a free lock");
    check("an owner", &owner);
    check("an owner's guard", &again);
    drop(again);
    let third = claim(&stage.name("third"), Mode::Exclusive, ttl_of(&one, 10_000), within(secs(3)));
    check("a claim that waits", &third);
    let grant = one.backend().acquire(&third).await;
    check("a backend's grant", &grant);
    two.force_release(third.name()).await.expect("an answer");
    check("a release that is too late", &one.backend().release(&third).await);
    check("a client", &one);
    check("a backend", one.backend());
}

/// The check itself can fail.
#[cfg(test)]
#[test]
#[should_panic(expected = "shows its owner")]
fn an_owner_that_is_shown_is_found() {
    crate::hooks::set();
    check("an owner", &lockwell_core::OwnerId::random().as_u128().to_be_bytes());
}
