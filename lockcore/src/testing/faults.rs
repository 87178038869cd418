//! The faults that a test has set.

use std::sync::Mutex;
use std::time::Duration;

use crate::system::lock;
use crate::{ErrorKind, Operation};

/// The operations of a server.
pub(super) const OPERATIONS: [Operation; 8] = [
    Operation::Acquire,
    Operation::Renew,
    Operation::Downgrade,
    Operation::Release,
    Operation::Inspect,
    Operation::ForceRelease,
    Operation::WriteRecord,
    Operation::ReadRecord,
];

#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    Fails(ErrorKind),
    Takes(Duration),
}

/// The present faults: at most one of each sort for each operation, the latest.
#[derive(Debug, Default)]
pub(super) struct Faults(Mutex<Vec<(Operation, Fault, Option<u32>)>>);

impl Faults {
    /// Adds a fault, for ever or for this number of calls.
    pub(super) fn add(&self, operation: Operation, fault: Fault, times: Option<u32>) {
        let mut all = lock(&self.0);
        let same = |other: &Fault| std::mem::discriminant(other) == std::mem::discriminant(&fault);
        all.retain(|(of, other, _)| *of != operation || !same(other));
        all.push((operation, fault, times));
    }

    pub(super) fn clear(&self) {
        lock(&self.0).clear();
    }

    /// How long a call takes, and how it fails. It counts as one call.
    pub(super) fn of(&self, operation: Operation) -> (Duration, Option<ErrorKind>) {
        let (mut takes, mut fails) = (Duration::ZERO, None);
        lock(&self.0).retain_mut(|(of, fault, times)| {
            if *of != operation || *times == Some(0) {
                return *times != Some(0);
            }
            match *fault {
                Fault::Fails(kind) => fails = Some(kind),
                Fault::Takes(span) => takes = span,
            }
            if let Some(left) = times {
                *left -= 1;
            }
            *times != Some(0)
        });
        (takes, fails)
    }
}
