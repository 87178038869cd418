//! A server that keeps one row for each lock.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lockwell::LockName;
use lockwell::backend::{Moment, OwnerId};

/// The row of a lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) owner: Option<OwnerId>,
    pub(super) until: Moment,
    pub(super) token: u64,
}

impl Row {
    pub(super) fn is_held(&self, now: Moment) -> bool {
        self.owner.is_some() && self.until > now
    }
}

/// All rows.
#[derive(Debug, Default)]
pub(super) struct Server(Mutex<HashMap<LockName, Row>>);

impl Server {
    fn rows(&self) -> MutexGuard<'_, HashMap<LockName, Row>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with a row, all at once.
    pub(super) fn with<T>(&self, name: &LockName, work: impl FnOnce(&mut Row) -> T) -> T {
        let mut rows = self.rows();
        let new = || Row { owner: None, until: Moment::now(), token: 0 };
        work(rows.entry(name.clone()).or_insert_with(new))
    }

    /// Takes the lock if it is free at `now`. Says the token.
    pub(super) fn take(&self, name: &LockName, owner: OwnerId, now: Moment, until: Moment) -> Option<u64> {
        self.with(name, |row| {
            if row.is_held(now) && row.owner != Some(owner) {
                return None;
            }
            row.token += 1;
            (row.owner, row.until) = (Some(owner), until);
            Some(row.token)
        })
    }

    /// Extends the lease of an owner that holds the lock.
    pub(super) fn extend(&self, name: &LockName, owner: OwnerId, until: Moment) -> bool {
        self.with(name, |row| {
            let is_ours = row.is_held(Moment::now()) && row.owner == Some(owner);
            if is_ours {
                row.until = until;
            }
            is_ours
        })
    }

    /// Frees what this owner holds.
    pub(super) fn free(&self, name: &LockName, owner: OwnerId) -> bool {
        self.with(name, |row| {
            let is_ours = row.owner == Some(owner);
            if is_ours {
                row.owner = None;
            }
            is_ours
        })
    }

    /// Frees it whoever holds it.
    pub(super) fn free_by_name(&self, name: &LockName) -> bool {
        self.with(name, |row| {
            let was_held = row.is_held(Moment::now());
            row.owner = None;
            was_held
        })
    }
}
