//! Which intervals may overlap.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::num::NonZeroU32;

use lockwell_core::{Mode, Moment};

use super::held::Held;

type ByEnd = BinaryHeap<Reverse<(Moment, usize)>>;

/// The holders at one moment, by mode, sorted by the end of their validity.
#[derive(Debug, Default)]
struct Holders {
    exclusive: ByEnd,
    shared: ByEnd,
    /// By their limits.
    permits: BTreeMap<NonZeroU32, ByEnd>,
}

impl Holders {
    /// Removes those whose validity has ended.
    fn advance(&mut self, now: Moment) {
        for heap in [&mut self.exclusive, &mut self.shared].into_iter().chain(self.permits.values_mut()) {
            while heap.peek().is_some_and(|Reverse((until, _))| *until <= now) {
                heap.pop();
            }
        }
    }

    /// One that must not be there when `mode` begins.
    fn against(&self, mode: Mode) -> Option<usize> {
        let first = |heap: &ByEnd| heap.peek().map(|Reverse((_, at))| *at);
        let permit = |but: Option<NonZeroU32>| {
            self.permits.iter().filter(|(limit, _)| Some(**limit) != but).find_map(|(_, heap)| first(heap))
        };
        match mode {
            Mode::Shared => first(&self.exclusive).or_else(|| permit(None)),
            Mode::Permit { limit } => {
                let most = usize::try_from(limit.get()).unwrap_or(usize::MAX);
                let full = self.permits.get(&limit).filter(|alike| alike.len() >= most);
                let others =
                    first(&self.exclusive).or_else(|| first(&self.shared)).or_else(|| permit(Some(limit)));
                others.or_else(|| full.and_then(first))
            }
            _ => first(&self.exclusive).or_else(|| first(&self.shared)).or_else(|| permit(None)),
        }
    }

    fn enter(&mut self, mode: Mode, until: Moment, at: usize) {
        let heap = match mode {
            Mode::Shared => &mut self.shared,
            Mode::Permit { limit } => self.permits.entry(limit).or_default(),
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
