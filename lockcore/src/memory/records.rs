//! The records of the in-memory server.

use std::collections::HashMap;

use crate::{FencingToken, Grant, HoldId, LockName, Record, RecordKind, RecordWrite, Result};

/// How many records may be there when removed ones are forgotten.
const REMOVED_KEPT: usize = 1024;

#[derive(Default)]
pub(super) struct Records(HashMap<(LockName, RecordKind), Stored>);

struct Stored {
    writer: (HoldId, u64),
    token: FencingToken,
    /// Empty if it was removed. It is kept for a while: a late copy of a write must not make it again.
    value: Vec<u8>,
}

impl Records {
    /// Writes for the present holder.
    pub(super) fn write(&mut self, grant: &Grant, write: RecordWrite<'_>) -> Result<()> {
        let key = (grant.claim().name().clone(), write.kind);
        let writer = (grant.hold_id(), write.number);
        let found = self.0.get(&key).map(|stored| stored.writer);
        if found.is_some_and(|(hold, number)| hold == writer.0 && number >= write.number) {
            return write.answer(grant, found);
        }
        if self.0.len() >= REMOVED_KEPT && !self.0.contains_key(&key) {
            self.0.retain(|_, stored| !stored.value.is_empty());
        }
        self.0.insert(key, Stored { writer, token: grant.token(), value: write.value.to_vec() });
        write.answer(grant, Some(writer))
    }

    pub(super) fn read(&self, name: &LockName, kind: RecordKind) -> Option<Record> {
        let stored = self.0.get(&(name.clone(), kind))?;
        Record::read(stored.value.clone(), stored.token, stored.writer.0)
    }

    pub(super) fn names(&self, kind: RecordKind) -> Vec<LockName> {
        let there = self.0.iter().filter(|((_, of), stored)| *of == kind && !stored.value.is_empty());
        there.map(|((name, _), _)| name.clone()).collect()
    }
}
