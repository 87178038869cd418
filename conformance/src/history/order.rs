//! Whether those who wait are served in the order in which they came.

use std::collections::BTreeSet;
use std::time::Duration;

use lockwell_core::Moment;

use super::held::Held;

/// Finds the grants of one lock to somebody who asked later, by more than `grace`, than another who was
/// granted the lock only after that: the later one, and who had waited longest. `sorted` is in the order of
/// the beginnings.
///
/// It is for exclusive locks: readers come in together. An attempt that was not granted may have left the
/// queue before its caller knew, and proves nothing.
pub fn out_of_order<'a, H: Held>(sorted: &'a [H], grace: Duration, mut found: impl FnMut(&'a H, &'a H)) {
    // All that have not come to their end, by the time of the call.
    let mut waiting: BTreeSet<(Moment, usize)> =
        sorted.iter().enumerate().map(|(at, held)| (held.asked(), at)).collect();
    for (at, held) in sorted.iter().enumerate() {
        waiting.remove(&(held.asked(), at));
        let Some((first, other)) = waiting.first() else { break };
        if first.after(grace) < held.asked() {
            found(held, &sorted[*other]);
        }
    }
}
