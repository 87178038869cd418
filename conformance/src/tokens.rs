//! Tokens rise strictly.

use std::num::NonZeroU32;

use super::stage::{Stage, claim, pause, queued, release, secs, soon, within};
use lockwell_core::{FencingToken, HandOff, LockGuard, Mode, Released, Renewal, Requirement};

/// Remembers the highest token and complains about one that is not higher.
#[derive(Debug, Default)]
struct Highest(Option<FencingToken>);

impl Highest {
    fn rises(&mut self, guard: &LockGuard, when: &str) {
        let token = guard.token();
        assert!(Some(token) > self.0, "{when}: token {token} after {:?}", self.0);
        self.0 = Some(token);
    }
}

/// Over a thousand holders of two clients.
pub(super) async fn tokens_rise_over_a_thousand_holders(stage: Stage) {
    let clients: [_; 2] = stage.clients().await;
    let name = stage.name("tokens");
    let mut highest = Highest::default();
    for n in 0..1000 {
        let guard = clients[n % 2].lock(&name).wait(secs(10)).await.expect("a free lock");
        highest.rises(&guard, &format!("holder {n}"));
        release(guard).await;
    }
}

/// Whichever way a holder loses the lock.
pub(super) async fn tokens_rise_however_a_lock_ends(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("tokens");
    let mut highest = Highest::default();
    for round in 0..3 {
        let guard = one.lock(&name).wait(secs(10)).await.expect("a free lock");
        highest.rises(&guard, &format!("round {round}, after a release"));
        drop(guard);
        let guard = two.lock(&name).wait(secs(10)).await.expect("a free lock");
        highest.rises(&guard, &format!("round {round}, after a drop"));
        two.force_release(&name).await.expect("an answer");
        let next = one.lock(&name).wait(secs(10)).await.expect("a free lock");
        highest.rises(&next, &format!("round {round}, after a forced release"));
        drop(guard);
        release(next).await;
    }
}

/// A claim that reserves tokens has as many as it asked for: nobody else ever gets one of them.
pub(super) async fn a_claim_reserves_a_block_of_tokens(stage: Stage) {
    let one = stage.client().await;
    let name = stage.name("tokens");
    let mut highest = Highest::default();
    for (round, block) in [5_u32, 1, 1000].into_iter().enumerate() {
        let block = NonZeroU32::new(block).expect("not 0");
        let guard = one.lock(&name).wait(secs(10)).await.expect("a free lock");
        highest.rises(&guard, &format!("round {round}, a single token"));
        release(guard).await;
        let mine = claim(&name, Mode::Exclusive, secs(10), within(secs(5))).reserving(block);
        let first = one.backend().acquire(&mine).await.expect("an answer").expect("a free lock");
        // Asked again, it has the later grant.
        let grant = one.backend().acquire(&mine).await.expect("an answer").expect("it is held already");
        assert!(grant.token() >= first.token(), "{} after {}", grant.token(), first.token());
        assert_eq!(grant.last_token().get() - grant.token().get(), u64::from(block.get()) - 1);
        assert!(Some(grant.token()) > highest.0, "{} after {:?}", grant.token(), highest.0);
        highest.0 = Some(grant.last_token());
        assert!(matches!(one.backend().renew(&[grant], soon()).await[..], [Renewal::Renewed(_)]));
        assert_eq!(one.backend().release(&mine).await.expect("an answer"), Released::Released);
    }
    // One that had to wait, too.
    let most = NonZeroU32::MIN.saturating_add(HandOff::MOST);
    let guard = one.lock(&name).await.expect("a free lock");
    let mine = claim(&name, Mode::Exclusive, secs(10), within(secs(10))).reserving(most);
    let waiting = tokio::spawn({
        let (one, mine) = (one.clone(), mine.clone());
        async move { one.backend().acquire(&mine).await }
    });
    queued(&one, &name, 1, secs(5)).await;
    highest.rises(&guard, "before the one that waits");
    release(guard).await;
    let grant = waiting.await.expect("no panic").expect("an answer").expect("its turn comes");
    assert!(Some(grant.token()) > highest.0, "{} after {:?}", grant.token(), highest.0);
    assert_eq!(grant.last_token().get() - grant.token().get(), u64::from(most.get()) - 1);
    highest.0 = Some(grant.last_token());
    one.backend().release(&mine).await.expect("an answer");
    highest.rises(&one.lock(&name).await.expect("a free lock"), "after a block");
}

/// Over the kinds of locks that one name can be.
pub(super) async fn tokens_rise_over_modes(stage: Stage) {
    let one = stage.client().await;
    let name = stage.name("tokens");
    let mut highest = Highest::default();
    for round in 0..3 {
        let guard = one.lock(&name).await.expect("a free lock");
        highest.rises(&guard, &format!("round {round}, exclusive"));
        release(guard).await;
        let first = one.read(&name).await.expect("a free lock");
        highest.rises(&first, &format!("round {round}, first reader"));
        let second = one.read(&name).await.expect("readers meet");
        highest.rises(&second, &format!("round {round}, second reader"));
        release(first).await;
        release(second).await;
        if !one.capabilities().promises(Requirement::Permits) {
            continue;
        }
        let first = one.permit(&name, 2).await.expect("an idle name can become a semaphore");
        highest.rises(&first, &format!("round {round}, first permit"));
        let second = one.permit(&name, 2).await.expect("a second permit");
        highest.rises(&second, &format!("round {round}, second permit"));
        release(first).await;
        release(second).await;
    }
}

/// Over the removal of what an idle lock leaves at the server.
pub(super) async fn tokens_rise_over_a_purge(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("tokens");
    let mut highest = Highest::default();
    for round in 0..3 {
        for locks in [&one, &two, &one] {
            let guard = locks.lock(&name).wait(secs(10)).await.expect("a free lock");
            highest.rises(&guard, &format!("round {round}"));
            release(guard).await;
        }
        pause(20).await;
        stage.harness.purge().await;
    }
}

/// A purge takes nothing from those who hold or wait.
pub(super) async fn a_purge_spares_what_is_in_use(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("used");
    let held = one.lock(&name).await.expect("a free lock");
    let waiter = tokio::spawn(two.lock(&name).wait(secs(20)).into_future());
    super::stage::queued(&one, &name, 1, secs(5)).await;
    stage.harness.purge().await;
    assert_eq!(super::stage::holder(&two, &name).await, Some(held.token()), "the purge freed a held lock");
    super::stage::queued(&one, &name, 1, secs(1)).await;
    let token = held.token();
    release(held).await;
    let next = waiter.await.expect("no panic").expect("its turn comes");
    assert!(next.token() > token || !one.capabilities().promises(Requirement::Fencing));
    release(next).await;
}
