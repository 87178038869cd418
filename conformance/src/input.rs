//! What is not allowed is refused, before anything is sent.

use std::sync::Arc;
use std::time::Duration;

use lockwell_core::async_trait;

use super::stage::{Stage, release, secs};
use lockwell_core::suite::REQUIREMENTS;
use lockwell_core::{
    Capabilities, Claim, DistributedLock, Error, ErrorKind, Grant, LockConfig, LockGuard, LockName,
    LockStatus, Locks, Moment, Released, Renewal, Requirement, Result,
};

/// A backend with the promises of another, which must never be asked for anything.
#[derive(Debug)]
struct Untouchable(Capabilities);

#[async_trait]
impl DistributedLock for Untouchable {
    fn capabilities(&self) -> Capabilities {
        self.0.clone()
    }
    async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        panic!("{claim:?} reached the backend")
    }
    async fn renew(&self, grants: &[Grant], _: Moment) -> Vec<Renewal> {
        panic!("{grants:?} reached the backend")
    }
    async fn release(&self, claim: &Claim) -> Result<Released> {
        panic!("{claim:?} reached the backend")
    }
    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        panic!("inspect {name} reached the backend")
    }
    async fn force_release(&self, name: &LockName) -> Result<usize> {
        panic!("force_release {name} reached the backend")
    }
}

async fn untouchable(stage: &Stage) -> Locks {
    Locks::new(Arc::new(Untouchable(stage.client().await.capabilities().clone()))).expect("a keeper")
}

/// The refusal of an attempt: of this kind, with this in its text.
fn refused<T: std::fmt::Debug>(answer: Result<T>, kind: ErrorKind, text: &str) -> Error {
    let error = answer.expect_err(text);
    assert_eq!(error.kind(), kind, "{error:#}");
    assert!(error.to_string().contains(text), "{text:?} is not in: {error:#}");
    assert!(!error.is_retryable(), "{error:#}");
    error
}

/// Each of these is an error that says what is allowed.
pub(super) async fn bad_input_is_refused_before_anything_is_sent(stage: Stage) {
    let locks = untouchable(&stage).await;
    let promised = locks.capabilities().clone();
    let bad = ErrorKind::InvalidInput;
    let long = "x".repeat(LockName::MAX_BYTES + 1);
    for (name, text) in [("", "empty"), (&*long, "at most 512 bytes"), ("a\nb", "U+000A"), ("\0", "U+0000")] {
        refused(locks.lock(name).await, bad, text);
        refused(locks.lock(name).try_now().await, bad, text);
        refused(locks.inspect(name).await, bad, text);
        refused(locks.force_release(name).await, bad, text);
    }
    let name = || locks.lock("fine");
    let bounds = "it must be between";
    refused(name().ttl(Duration::ZERO).await, bad, bounds);
    refused(name().ttl(promised.max_ttl() + Duration::from_nanos(1)).await, bad, bounds);
    refused(name().ttl(Duration::MAX).await, bad, bounds);
    refused(
        name().ttl(promised.min_ttl().saturating_sub(Duration::from_nanos(1))).try_now().await,
        bad,
        bounds,
    );
    refused(name().wait(Duration::MAX).await, bad, "longer than the clock can count");
    refused(name().label("x".repeat(256)).await, bad, "at most 255 bytes");
    refused(name().label("a\tb").await, bad, "no control characters");
    let error = refused(name().ttl(Duration::ZERO).run(async |_| ()).await.map_err(Error::from), bad, bounds);
    assert_eq!(error.lock().map(LockName::as_str), Some("fine"), "{error:#}");
    assert_eq!(error.backend(), Some(promised.backend()), "{error:#}");
    refused(locks.permit("fine", 0).await, bad, "at least one permit");
    let too_long = promised.max_ttl() + secs(1);
    let config = LockConfig::new("unused://").ttl(too_long);
    refused(Locks::with_config(Arc::clone(locks.backend()), &config), bad, bounds);
}

/// The bounds themselves are allowed.
pub(super) async fn the_bounds_of_what_is_allowed_work(stage: Stage) {
    let one = stage.client().await;
    let promised = one.capabilities().clone();
    let longest =
        LockName::new("é".repeat(248) + &stage.unique[stage.unique.len() - 16..]).expect("512 bytes");
    assert_eq!(longest.as_str().len(), LockName::MAX_BYTES);
    release(one.lock(&longest).ttl(promised.max_ttl()).await.expect("the longest name and lease")).await;
    let label = "é".repeat(127) + "x";
    let guard = one.lock(stage.name("label")).label(&label).await.expect("the longest label");
    let shown = one.inspect(guard.name()).await.expect("an answer");
    assert_eq!(shown.holders[0].label, label, "the label was changed");
    release(guard).await;
    let (first, second) = (stage.name("shortest"), stage.name("no wait"));
    let shortest = promised.min_ttl();
    match one.lock(&first).ttl(shortest).await {
        // It may be over before it arrives, which must be said.
        Ok(guard) => drop(guard),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:#}"),
    }
    let guard: LockGuard =
        one.lock(&second).wait(secs(3600 * 24 * 365)).await.expect("a long wait is allowed");
    release(guard).await;
}

/// A mode that the backend does not have is refused, and so is what an application demands in vain.
pub(super) async fn what_is_not_promised_is_refused(stage: Stage) {
    let locks = untouchable(&stage).await;
    let promised = locks.backend().capabilities();
    if !promised.promises(Requirement::Shared) {
        refused(locks.read("fine").await, ErrorKind::Unsupported, "no shared locks");
    }
    if !promised.promises(Requirement::Permits) {
        refused(locks.permit("fine", 2).await, ErrorKind::Unsupported, "no permit locks");
    }
    for (requirement, _) in REQUIREMENTS {
        let is_promised = promised.promises(requirement);
        let answer = promised.require(&[requirement]);
        assert_eq!(answer.is_ok(), is_promised, "{requirement}: {answer:?}");
        let config = LockConfig::new("unused://").require(requirement);
        let answer = Locks::with_config(Arc::clone(locks.backend()), &config);
        if is_promised {
            answer.expect("what is promised may be demanded");
        } else {
            refused(answer, ErrorKind::Unsupported, &requirement.to_string());
        }
    }
}
