//! What is shown of locks, as tuples, of which the package makes its classes.

use lockwell::{Holder, LockStatus, Mode};

/// The kind of hold, and the number of permits.
pub(crate) fn mode(mode: Mode) -> (&'static str, Option<u32>) {
    match mode {
        Mode::Exclusive => ("exclusive", None),
        Mode::Shared => ("shared", None),
        Mode::Permit { limit } => ("permit", Some(limit.get())),
        // A mode of a later version.
        _ => ("unknown", None),
    }
}

/// Token, label, kind, permits, seconds left, seconds held.
type HolderShown = (u64, String, &'static str, Option<u32>, f64, f64);

fn holder(holder: &Holder) -> HolderShown {
    let (kind, limit) = mode(holder.mode);
    let (left, held) = (holder.ttl_left.as_secs_f64(), holder.held_for.as_secs_f64());
    (holder.token.get(), holder.label.clone(), kind, limit, left, held)
}

/// Name, holders, number of waiters, seconds of the longest wait.
pub(crate) fn status(status: &LockStatus) -> (String, Vec<HolderShown>, usize, Option<f64>) {
    let holders = status.holders.iter().map(holder).collect();
    let longest = status.longest_wait.map(|wait| wait.as_secs_f64());
    (status.name.as_str().to_owned(), holders, status.waiters, longest)
}
