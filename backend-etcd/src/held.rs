//! Held locks: renewal, notification of a loss, and the downgrade from writer to reader.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use lockwell_core::backend::valid_until;
use lockwell_core::{Claim, Error, ErrorKind, Grant, Mode, Moment, Released, Renewal, Result};

use crate::client::ClientInner;
use crate::keys::{self, Base, Kind, lease};
use crate::messages::{Compare, Delete, Op, Put, Range, Txn, WatchCreate, one};
use crate::waiter::{Held, changed};

/// How many keys one transaction reads. The servers allow 128, unless `--max-txn-ops` says otherwise.
const AT_ONCE: usize = 100;

/// Locks that are held for a shorter time have no watch.
const SHORT: Duration = Duration::from_millis(250);

/// How often a holder reads its key while its watch reports nothing.
const RECHECK: Duration = Duration::from_secs(30);

pub(crate) fn of_another_client() -> Error {
    Error::new(ErrorKind::Unsupported, "the lock was granted through another client")
}

/// Extends the leases. The transaction that proves it reads the keys, too, at the same cost.
pub(crate) async fn renew(inner: &ClientInner, grants: &[Grant], until: Moment) -> Vec<Renewal> {
    let parts = grants.chunks(AT_ONCE).map(|part| renew_part(inner, part, until));
    join_all(parts).await.into_iter().flatten().collect()
}

async fn renew_part(inner: &ClientInner, grants: &[Grant], until: Moment) -> Vec<Renewal> {
    let held: Vec<&Held> = grants.iter().filter_map(Grant::record).collect();
    if held.len() < grants.len() {
        return Renewal::all_unknown(grants, &of_another_client());
    }
    let leases: Vec<i64> = grants.iter().map(|grant| lease(grant.claim())).collect();
    let reads = Txn::reads(held.iter().map(|held| one(&held.key)));
    let kept = match inner.keep(until, &leases, &reads).await {
        Ok(kept) => kept,
        Err(error) => return Renewal::all_unknown(grants, &error),
    };
    let renewal = |at: usize| {
        let found = kept.answer.first(at);
        if found.is_none_or(|kv| kv.create_revision != held[at].revision) {
            return Renewal::Lost;
        }
        if kept.there[at] {
            return Renewal::Renewed(valid_until(kept.sent, grants[at].claim().ttl()));
        }
        // The key is there, so the lease was, too. The server that was asked has ended it since, or has not
        // yet made it.
        Renewal::Unknown(inner.named(Error::new(ErrorKind::Unreachable, "the servers differ about a lease")))
    };
    (0..grants.len()).map(renewal).collect()
}

/// Ends the lease of a claim, and with it its key.
///
/// An operator may have deleted the key, and the lock may be another's since then, while the lease goes on: the
/// holder learns of it from its watch, which may be late. So a claim without a key holds nothing, whatever
/// becomes of its lease. Whether it had its key is read afterwards, as of the revision before the lease ended:
/// then nobody who waits for the lock waits for that. If the last revision is that of the operator, nobody has
/// come in between, and the lock was released.
pub(crate) async fn release(inner: &ClientInner, claim: &Claim) -> Result<Released> {
    let turn = inner.turn(inner.soon()).await?;
    let (ended, is_repeated) = inner.revoke_counted(lease(claim)).await?;
    drop(turn);
    let Some(ended) = ended else { return Ok(Released::from_answer(false, is_repeated)) };
    let kinds = [Some(Kind::of(claim.mode())), (claim.mode() == Mode::Shared).then_some(Kind::Downgraded)];
    let keys = kinds.into_iter().flatten().map(|kind| keys::key(&inner.options.prefix, claim, kind));
    let revision = ended.saturating_sub(1);
    let reads = Txn::reads(keys.map(|key| Range { revision, ..one(&key) }));
    Ok(match inner.txn(None, &reads).await {
        Ok(answer) => Released::from_answer((0..2).any(|at| answer.first(at).is_some()), false),
        Err(error) if error.kind() == ErrorKind::Lost => Released::NotHeld,
        // It holds nothing any more.
        Err(error) => {
            tracing::debug!(%error, "whether a lock that was released was still held is unknown");
            Released::InDoubt
        }
    })
}

/// Resolves when the key of the grant is gone.
pub(crate) async fn gone(inner: &ClientInner, grant: &Grant) {
    const NO_WRITES: i32 = 0;
    let Some(held) = grant.record::<Held>() else { return std::future::pending().await };
    tokio::time::sleep(SHORT).await;
    // The watch begins at the revision of the key, so no change since then is missed. If that was compacted,
    // the watch fails, and the next one begins at the revision of the read.
    let mut seen = held.revision;
    loop {
        let watch = WatchCreate {
            key: held.key.clone().into(),
            end: Vec::new(),
            start_revision: seen.saturating_add(1),
            filters: vec![NO_WRITES],
            id: 0,
        };
        tokio::select! {
            _ = changed(inner, watch) => (),
            () = tokio::time::sleep(RECHECK) => (),
        }
        match inner.txn(None, &Txn::reads([one(&held.key)])).await {
            Ok(answer) => {
                if answer.first(0).is_none_or(|kv| kv.create_revision != held.revision) {
                    return;
                }
                seen = answer.revision;
            }
            Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
        }
    }
}

/// Turns a writer into a reader.
///
/// A new key replaces the old one in the same transaction, with the same token and lease. It is a holder
/// whatever its revision is: see [`Kind::Downgraded`].
pub(crate) async fn downgrade(inner: &Arc<ClientInner>, grant: &Grant) -> Result<Grant> {
    let held = grant.record::<Held>().ok_or_else(of_another_client)?;
    let claim = grant.claim();
    let key = keys::key(&inner.options.prefix, claim, Kind::Downgraded);
    let value = keys::value(claim, Base::Fixed(grant.token().get()), held.since);
    let put = Put { key: key.clone().into(), value: value.into(), lease: lease(claim) };
    let delete = Delete { key: held.key.clone().into() };
    let is_held = Compare::created_at(one(&held.key), held.revision);
    let txn = Txn::new([is_held], [Op::Delete(delete), Op::Put(put)], [Op::Range(one(&key))]);
    let answer = match inner.txn(None, &txn).await {
        Err(error) if error.kind() == ErrorKind::Unreachable => {
            let text = "no answer: still a writer, or a reader now";
            return Err(inner.named(Error::new(ErrorKind::UnknownOutcome, text).with_source(error)));
        }
        answer => answer?,
    };
    let revision =
        if answer.succeeded { Some(answer.revision) } else { answer.first(0).map(|kv| kv.create_revision) };
    match revision {
        Some(revision) => Ok(grant.downgraded().with_record(Arc::new(Held {
            inner: Arc::clone(inner),
            key,
            revision,
            since: held.since,
        }))),
        None => Err(inner.named(Error::new(ErrorKind::Lost, "the lock was lost before the downgrade"))),
    }
}

#[cfg(test)]
mod tests {
    use lockwell_core::{LockName, Wait};
    use testbed::{Etcd, if_installed};

    use super::*;
    use crate::floor::Stored;
    use crate::options::EtcdOptions;
    use crate::queue::Requests;
    use crate::waiter::acquire;

    /// It must not queue a writer that nobody waits for.
    #[tokio::test]
    async fn a_late_copy_of_a_claim_changes_nothing_after_a_downgrade() {
        let Some(etcd) = if_installed(Etcd::start().await) else { return };
        let options = EtcdOptions::read(&etcd.url().parse().expect("an address")).expect("an address");
        let inner = Arc::new(ClientInner::new(options).expect("a client"));
        let name = LockName::new("a").expect("a name");
        let ttl = Duration::from_mins(1);
        let claim = Claim::new(name, Mode::Exclusive, ttl, Wait::Forever, "test".into());
        let grant = acquire(&inner, &claim).await.expect("an answer").expect("a free lock");
        downgrade(&inner, &grant).await.expect("it is held");
        let late = Requests::new(&inner.options.prefix, &claim).enter(&Stored::of(0), keys::wall_clock());
        let answer = inner.txn(None, &late).await.expect("an answer");
        assert!(!answer.succeeded, "the claim is in the queue again");
    }
}
