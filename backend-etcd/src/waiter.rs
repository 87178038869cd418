//! Acquires: from the lease through the queue to the grant.

use std::sync::Arc;
use std::time::Duration;

use lockwell_core::{Claim, Clock, Error, ErrorKind, Grant, Mode, Moment, Result, Wait};

use crate::client::{ClientInner, forgotten};
use crate::connection::{Connection, PRESENT, Watch};
use crate::keys::{Base, held_by_others, lease, wall_clock};
use crate::lease::ended;
use crate::messages::WatchCreate;
use crate::queue::{Entered, Peeked, Place, Requests, TurnAnswer};

/// How often a waiter reads the queue, even without a notification.
const RECHECK: Duration = Duration::from_secs(5);

/// A watch that failed is not repeated at once.
const PAUSE: Duration = Duration::from_millis(300);

/// How often a claim that does not wait begins again because its lease has ended.
const TRIES: u32 = 3;

static SYSTEM: Clock = Clock::system();

/// The key of a grant.
#[derive(Clone)]
pub(crate) struct Held {
    /// The client to which the key belongs.
    pub(crate) inner: Arc<ClientInner>,
    pub(crate) key: String,
    pub(crate) revision: i64,
    /// By the wall clock.
    pub(crate) since: Duration,
}

/// The name of the key has the owner in it.
impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Held").field("revision", &self.revision).finish_non_exhaustive()
    }
}

impl Held {
    fn of(inner: &Arc<ClientInner>, requests: &Requests<'_>, revision: i64, since: Duration) -> Self {
        Self { inner: Arc::clone(inner), key: requests.key.clone(), revision, since }
    }

    fn grant(self, claim: &Claim, base: Base, sent: Moment) -> Grant {
        Grant::new(claim, base.token(self.revision), sent).with_record(Arc::new(self))
    }
}

/// A claim whose lease ended, as after a long pause, starts again at the end of the queue.
pub(crate) async fn acquire(inner: &Arc<ClientInner>, claim: &Claim) -> Result<Option<Grant>> {
    if claim.wait() != Wait::No {
        claim.note_queued();
    }
    let requests = Requests::new(&inner.options.prefix, claim);
    let mut ended = 0;
    loop {
        match once(inner, claim, &requests).await {
            Err(error) if error.kind() == ErrorKind::Lost => {
                // What is left of it must not have an old place, or an old token. If this request may arrive
                // late, the claim cannot go on.
                inner.revoke_for_another(lease(claim)).await.inspect_err(|_| claim.cancel())?;
                ended += 1;
                if claim.wait() == Wait::No {
                    // Not again and again at servers that are slower than the lease is long.
                    if ended >= TRIES {
                        let text = "the lease ends each time before the lock is granted";
                        let error = Error::new(ErrorKind::Unreachable, text).with_source(error);
                        return Err(inner.named(error));
                    }
                } else if claim.is_wait_over() {
                    return Ok(None);
                }
            }
            answer => return answer,
        }
    }
}

async fn once(inner: &Arc<ClientInner>, claim: &Claim, requests: &Requests<'_>) -> Result<Option<Grant>> {
    let turn = claim.within_wait(inner.turn(inner.soon())).await?;
    if let Some(peek) = requests.peek() {
        let peeked = inner.txn_now(inner.soon(), None, &peek).await?;
        match requests.peeked(&peeked) {
            Peeked::Free => (),
            Peeked::Refused => return Ok(None),
            Peeked::OfTwoKinds => {
                let held = requests.held(&inner.txn_now(inner.soon(), None, &requests.holder()).await?);
                claim.note_in_use(held).map_err(|error| inner.named(error))?;
                return Ok(None);
            }
        }
    }
    let sent = claim.within_wait(inner.open_lease(claim)).await?;
    let place = loop {
        let (floor, since) = (inner.floor.known(), wall_clock());
        let enter = requests.enter(&floor, since);
        let answer = claim.within_wait(inner.txn_now(inner.soon(), Some(claim), &enter)).await?;
        match requests.entered(&answer, &floor).map_err(|error| inner.named(error))? {
            Entered::At(place) if place.blocker.is_none() => {
                let held = Held::of(inner, requests, place.revision, since);
                return Ok(Some(held.grant(claim, Base::Floor(floor.number()), sent)));
            }
            Entered::At(place) => break place,
            // Whether it waits or holds is read with its next request.
            Entered::Before(mut place) => match take_turn(inner, claim, requests, &mut place, false).await? {
                Some(grant) => return Ok(Some(grant)),
                None => break place,
            },
            Entered::Downgraded => return Err(Error::new(ErrorKind::Internal, "a writer that reads now")),
            Entered::Foreign(text) if claim.wait() != Wait::No => {
                give_up(inner, claim).await;
                return Err(inner.named(Error::new(ErrorKind::Misconfigured, text)));
            }
            Entered::Refused | Entered::Foreign(_) => return leave(inner, claim).await,
            Entered::Floor(floor) => claim.within_wait(inner.learn_floor(floor)).await?,
        }
    };
    if claim.wait() == Wait::No {
        return leave(inner, claim).await;
    }
    drop(turn);
    claim.note_waiting();
    wait(inner, claim, requests, place).await
}

/// Ends what is left of a claim that fails. If that may not have happened, lockcore releases the claim.
async fn give_up(inner: &ClientInner, claim: &Claim) {
    match inner.revoke_now(lease(claim)).await {
        Ok(_) => claim.note_left_queue(),
        Err(_) => claim.note_queued(),
    }
}

/// Who does not wait leaves nothing behind.
async fn leave(inner: &ClientInner, claim: &Claim) -> Result<Option<Grant>> {
    inner.revoke_now(lease(claim)).await?;
    Ok(None)
}

async fn wait(
    inner: &Arc<ClientInner>,
    claim: &Claim,
    requests: &Requests<'_>,
    mut place: Place,
) -> Result<Option<Grant>> {
    let recheck = (claim.ttl() / 3).min(RECHECK);
    let mut watched = Watched::default();
    while let Some(blocker) = place.blocker.clone() {
        let Some(held) = requests.met(&place) else {
            give_up(inner, claim).await;
            let text = held_by_others(&blocker.key, &requests.folder);
            return Err(inner.named(Error::new(ErrorKind::Misconfigured, text)));
        };
        claim.note_in_use(held)?;
        let is_event = tokio::select! {
            biased;
            () = claim.wait_over() => return Ok(None),
            is_event = watched.change(inner, &blocker) => is_event,
            // If the connection hangs, `take_turn` makes another one.
            () = SYSTEM.sleep(recheck) => false,
        };
        if let Some(grant) =
            claim.within_wait(take_turn(inner, claim, requests, &mut place, is_event)).await?
        {
            return Ok(Some(grant));
        }
    }
    Ok(None)
}

/// Extends the lease, and takes the turn if it has come. `None`: it has not, and the place says why.
///
/// At an event this is one round trip. Without one the queue is only read, since that costs the servers no
/// write.
async fn take_turn(
    inner: &Arc<ClientInner>,
    claim: &Claim,
    requests: &Requests<'_>,
    place: &mut Place,
    is_event: bool,
) -> Result<Option<Grant>> {
    let mut is_probably_free = is_event && !matches!(claim.mode(), Mode::Permit { .. });
    let mut is_known = false;
    loop {
        let since = wall_clock();
        let txn =
            if is_probably_free { requests.take_turn(place, since, is_known) } else { requests.look(place) };
        let until = inner.soon();
        let kept = {
            // All waiters of a connection that has ended come at the same time.
            let _turn = inner.look_turn(until).await?;
            inner.keep(until, &[lease(claim)], &txn).await?
        };
        if kept.forgot {
            return Err(inner.named(forgotten()));
        }
        // In whatever order they arrive: a key is there for as long as its lease is.
        if !kept.there[0] {
            return Err(inner.named(ended()));
        }
        let turn = if is_probably_free {
            requests.took_turn(kept.answer, place)
        } else {
            requests.looked(&kept.answer, place)
        };
        match turn {
            TurnAnswer::Granted => {
                let held = Held::of(inner, requests, place.revision, since);
                return Ok(Some(held.grant(claim, Base::Floor(place.floor.number()), kept.sent)));
            }
            TurnAnswer::Gone => return Err(inner.named(ended())),
            TurnAnswer::Blocked(Some(blocker)) => {
                place.blocker = Some(blocker);
                return Ok(None);
            }
            TurnAnswer::Blocked(None) => (is_probably_free, is_known) = (true, true),
        }
    }
}

/// The watch of a waiter.
///
/// It begins at the present revision: see [`Watch`]. If that is later than the one at which the queue was
/// read, the queue is read once more, and the watch stays.
#[derive(Default)]
struct Watched(Option<(WatchCreate, Watch)>);

impl Watched {
    /// True at an event of the keys, false if there may have been one.
    async fn change(&mut self, inner: &ClientInner, wanted: &WatchCreate) -> bool {
        if let Some(connection) = connected(inner).await {
            let is_for =
                |(keys, watch): &(WatchCreate, Watch)| keys.is_for_keys_of(wanted) && connection.has(watch);
            if !self.0.as_ref().is_some_and(is_for) {
                // Before the next one is made, so that the server does not have both.
                self.0 = None;
                let mut watch = connection.watch(WatchCreate { start_revision: PRESENT, ..wanted.clone() });
                let begun = watch.begun().await;
                self.0 = Some((wanted.clone(), watch));
                // An answer may be without a revision.
                if begun.is_some_and(|revision| !(1..wanted.start_revision).contains(&revision)) {
                    return false;
                }
            }
        }
        let is_event = match &mut self.0 {
            Some((_, watch)) => watch.event().await,
            None => false,
        };
        self.0 = None;
        if !is_event {
            SYSTEM.sleep(PAUSE).await;
        }
        is_event
    }
}

/// True at an event of the keys since a revision, false if there may have been one.
pub(crate) async fn changed(inner: &ClientInner, watch: WatchCreate) -> bool {
    if let Some(connection) = connected(inner).await
        && connection.watch(watch).event().await
    {
        return true;
    }
    SYSTEM.sleep(PAUSE).await;
    false
}

async fn connected(inner: &ClientInner) -> Option<Connection> {
    inner.ask_now(inner.soon(), |connection, _| async move { Ok(connection) }).await.ok()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use testbed::{Etcd, if_installed};

    use super::*;
    use crate::messages::{Delete, Op, Put, Txn};
    use crate::options::EtcdOptions;

    fn put(key: &str) -> Txn {
        Txn::new([], [Op::Put(Put { key: key.into(), value: Vec::new(), lease: 0 })], [])
    }

    fn delete(key: &str) -> Txn {
        Txn::new([], [Op::Delete(Delete { key: key.into() })], [])
    }

    /// How long it takes until the watch of a key is told that the key is gone: the median of some.
    async fn told_after(inner: &ClientInner, start: impl Fn(i64) -> i64) -> Duration {
        let mut delays = Vec::new();
        for _ in 0..15 {
            let revision = inner.txn(None, &put("a")).await.expect("an answer").revision;
            // Others write in the meantime.
            inner.txn(None, &put("b")).await.expect("an answer");
            let start_revision = start(revision);
            let watch =
                WatchCreate { key: "a".into(), start_revision, filters: vec![0], ..Default::default() };
            let mut watch = connected(inner).await.expect("a connection").watch(watch);
            watch.begun().await.expect("a watch");
            let sent = Instant::now();
            inner.txn(None, &delete("a")).await.expect("an answer");
            assert!(watch.event().await, "the watch has ended");
            delays.push(sent.elapsed());
        }
        delays.sort();
        delays[delays.len() / 2]
    }

    fn client(etcd: &Etcd) -> ClientInner {
        let options = EtcdOptions::read(&etcd.url().parse().expect("an address")).expect("an address");
        ClientInner::new(options).expect("a client")
    }

    /// A watch of the present revision is not told of what came between the read of the queue and itself.
    #[tokio::test]
    async fn what_came_before_the_watch_is_not_missed() {
        let Some(etcd) = if_installed(Etcd::start().await) else { return };
        let inner = client(&etcd);
        let mut watched = Watched::default();
        let revision = inner.txn(None, &put("a")).await.expect("an answer").revision;
        let wanted = WatchCreate {
            key: "a".into(),
            start_revision: revision + 1,
            filters: vec![0],
            ..Default::default()
        };
        inner.txn(None, &delete("a")).await.expect("an answer");
        let change = watched.change(&inner, &wanted);
        assert!(!tokio::time::timeout(RECHECK, change).await.expect("nobody waits for an event"));
        // The watch stays, and what comes after it is an event.
        inner.txn(None, &put("a")).await.expect("an answer");
        let delete = delete("a");
        let (is_event, _) = tokio::join!(watched.change(&inner, &wanted), inner.txn(None, &delete));
        assert!(is_event);
    }

    #[tokio::test]
    async fn a_waiter_is_told_at_once_while_others_write() {
        let Some(etcd) = if_installed(Etcd::start().await) else { return };
        let inner = client(&etcd);
        let late = told_after(&inner, |revision| revision + 1).await;
        let soon = told_after(&inner, |_| PRESENT).await;
        assert!(soon * 2 < late, "{soon:?}, and {late:?} for those that begin in the past");
    }
}
