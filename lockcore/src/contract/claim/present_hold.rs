//! Which of the holds of a claim is the present one.

use std::sync::atomic::{AtomicU64, Ordering};

/// A lock that is handed on keeps its claim, so a claim can have several holds, one after the other. They
/// are numbered from zero. The lowest bit says that the present hold is bound to its claim.
#[derive(Default)]
pub(crate) struct PresentHold(AtomicU64);

impl PresentHold {
    /// The hold of this number is not to be followed by another one. False if it was already.
    pub(crate) fn bind(&self, number: u64) -> bool {
        let bound = free(number) | 1;
        let bind = self.0.compare_exchange(free(number), bound, Ordering::AcqRel, Ordering::Acquire);
        bind.is_ok() || bind == Err(bound)
    }

    /// The hold of this number is followed by the next one. False if it is bound.
    pub(crate) fn move_on(&self, number: u64) -> bool {
        let next = free(number.wrapping_add(1));
        self.0.compare_exchange(free(number), next, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

fn free(number: u64) -> u64 {
    number << 1
}
