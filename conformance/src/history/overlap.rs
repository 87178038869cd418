//! Which intervals may overlap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use lockwell_core::{Mode, Moment};

use super::held::Held;

type ByEnd = BinaryHeap<Reverse<(Moment, usize)>>;

/// The holders at one moment, by mode, sorted by the end of their validity.
#[derive(Debug, Default)]
struct Holders {
    exclusive: ByEnd,
    shared: ByEnd,
    permits: ByEnd,
}

impl Holders {
    /// Removes those whose validity has ended.
    fn advance(&mut self, now: Moment) {
        for heap in [&mut self.exclusive, &mut self.shared, &mut self.permits] {
            while heap.peek().is_some_and(|Reverse((until, _))| *until <= now) {
                heap.pop();
            }
        }
    }

    /// One that must not be there when `mode` begins.
    fn against(&self, mode: Mode) -> Option<usize> {
        let first = |heap: &ByEnd| heap.peek().map(|Reverse((_, at))| *at);
        match mode {
            Mode::Shared => first(&self.exclusive).or_else(|| first(&self.permits)),
            Mode::Permit { limit } => {
                let is_full = self.permits.len() >= usize::try_from(limit.get()).unwrap_or(usize::MAX);
                let others = first(&self.exclusive).or_else(|| first(&self.shared));
                others.or_else(|| is_full.then(|| first(&self.permits)).flatten())
            }
            _ => first(&self.exclusive).or_else(|| first(&self.shared)).or_else(|| first(&self.permits)),
        }
    }

    fn enter(&mut self, mode: Mode, until: Moment, at: usize) {
        let heap = match mode {
            Mode::Shared => &mut self.shared,
            Mode::Permit { .. } => &mut self.permits,
            _ => &mut self.exclusive,
        };
        heap.push(Reverse((until, at)));
    }
}

/// Finds the grants of one lock that were valid at the same time although they exclude each other, or more of
/// them than a semaphore has permits. `sorted` is in the order of the beginnings. Each grant that begins
/// within another is found once: the older one, and this.
pub fn overlaps<'a, H: Held>(sorted: &'a [H], mut found: impl FnMut(&'a H, &'a H)) {
    let mut holders = Holders::default();
    for (at, next) in sorted.iter().enumerate() {
        holders.advance(next.from());
        // One that ended before it began was never valid.
        if next.until() <= next.from() {
            continue;
        }
        if let Some(other) = holders.against(next.mode()) {
            found(&sorted[other], next);
        }
        holders.enter(next.mode(), next.until(), at);
    }
}
