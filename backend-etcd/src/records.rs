//! The records of locks.

use lockwell_core::backend::StoredRecord;
use lockwell_core::{Error, ErrorKind, Grant, LockName, Mode, Record, RecordKind, RecordWrite, Result};

use crate::client::ClientInner;
use crate::held::of_another_client;
use crate::keys::{self, lease};
use crate::messages::{Compare, KeyValue, Op, Put, Range, Txn, below, one};
use crate::pages;
use crate::waiter::Held;

/// How often a write looks again at a record that another write has changed in between. Only copies of earlier
/// writes of the same hold can do so.
const TRIES: u32 = 8;

/// Writes a record, if the claim's key is the one that was granted, and the record as it was read. No two
/// records have the same text, so a late copy finds another one.
///
/// A removed record is a key without a value, which belongs to the lease of the claim: so it is there for as
/// long as a late copy of an earlier write could make the record again.
pub(crate) async fn write(inner: &ClientInner, grant: &Grant, write: RecordWrite<'_>) -> Result<()> {
    let held = grant.record::<Held>().ok_or_else(of_another_client)?;
    let claim = grant.claim();
    if claim.mode() != Mode::Exclusive {
        return write.answer(grant, None).map_err(|error| inner.named(error));
    }
    let key = keys::record(&inner.options.prefix, write.kind, claim.name());
    let text = StoredRecord::text(grant, &write);
    let lease = if write.value.is_empty() { lease(claim) } else { 0 };
    let put = Put { key: key.clone().into(), value: text, lease };
    for _ in 0..TRIES {
        let answer = inner.txn(None, &Txn::reads([one(&key)])).await?;
        let found = answer.first(0);
        if let Some(stored) = found.map(stored).transpose()?
            && !stored.is_before(grant, &write)
        {
            return write.answer(grant, Some(stored.writer()));
        }
        let as_read = match found {
            Some(kv) => Compare::value(&key, &kv.value),
            None => Compare::absent(one(&key)),
        };
        let is_held = Compare::created_at(one(&held.key), held.revision);
        let txn = Txn::new([is_held, as_read], [Op::Put(put.clone())], [Op::Range(one(&held.key))]);
        let answer = inner.txn(None, &txn).await?;
        if answer.succeeded {
            return Ok(());
        }
        if answer.first(0).is_none_or(|kv| kv.create_revision != held.revision) {
            return write.answer(grant, None).map_err(|error| inner.named(error));
        }
    }
    Err(inner.named(Error::new(ErrorKind::UnknownOutcome, "earlier writes of the record still arrive")))
}

/// Reads a record. A majority confirms it, so it is the last one.
pub(crate) async fn read(inner: &ClientInner, name: &LockName, kind: RecordKind) -> Result<Option<Record>> {
    let key = keys::record(&inner.options.prefix, kind, name);
    let answer = inner.txn(None, &Txn::reads([one(&key)])).await?;
    Ok(answer.first(0).map(stored).transpose()?.and_then(StoredRecord::record))
}

/// The names of the locks that have a record, or had one until their holder removed it.
pub(crate) async fn names(inner: &ClientInner, kind: RecordKind) -> Result<Vec<LockName>> {
    let prefix = &inner.options.prefix;
    let range = Range { keys_only: true, ..below(&keys::records(prefix, kind)) };
    let note = |names: &mut Vec<LockName>, page: Vec<KeyValue>| {
        names.extend(page.iter().filter_map(|kv| keys::recorded(prefix, kind, &kv.key)));
    };
    pages::read(inner, range, note).await
}

fn stored(kv: &KeyValue) -> Result<StoredRecord> {
    StoredRecord::parse(&kv.value)
}
