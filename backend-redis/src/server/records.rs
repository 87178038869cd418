//! The records of locks.

use lockwell_core::backend::StoredRecord;
use lockwell_core::{Grant, LockName, Record, RecordKind, RecordWrite, Result};
use redis::Value;

use crate::calls::item::Item;
use crate::checks::examine;
use crate::server::client::Client;
use crate::server::replicas::time_to_confirm;
use crate::words::error::unexpected;
use crate::words::script::READ_RECORD;

impl Client {
    /// As durable as a grant: replicas that must have a grant must have the record.
    pub(super) async fn write_record(&self, grant: &Grant, write: RecordWrite<'_>) -> Result<()> {
        let answer = self.calls.call(self.requests().write_record(grant, &write)).await?;
        write.answer(grant, stored(&answer.value)?.map(|last| last.writer()))?;
        self.confirm_once(&answer.wire, answer.generation, time_to_confirm(grant.claim())).await
    }

    /// The master has the write of every holder before: what it may have lost is not promised.
    pub(super) async fn read_record(&self, name: &LockName, kind: RecordKind) -> Result<Option<Record>> {
        let slot = self.common.keys.slot(name);
        let keys = vec![self.common.keys.record(slot, kind, name)];
        let answer = self.calls.call(Item::new(&READ_RECORD, slot, keys, Vec::new())).await?;
        Ok(stored(&answer.value)?.and_then(StoredRecord::record))
    }

    /// The names of the locks that are held, or of those that have a record. One that was removed lately may
    /// be among them.
    pub(super) async fn names(&self, recorded: Option<RecordKind>) -> Result<Vec<LockName>> {
        let (keys, timeout) = (&self.common.keys, self.common.settings.options.timeout);
        let mut names = Vec::new();
        for wire in self.calls.route().masters() {
            names.extend(examine::names(&wire, keys, timeout, recorded).await?);
        }
        Ok(names)
    }
}

/// What a script answers about a record; `None` if it has none.
fn stored(value: &Value) -> Result<Option<StoredRecord>> {
    let Value::BulkString(text) = value else { return Err(unexpected()) };
    if text.is_empty() { Ok(None) } else { StoredRecord::parse(text).map(Some) }
}
