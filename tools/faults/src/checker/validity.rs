//! What overlaps mean when locks are freed by force, and how long a validity may last.

use lockwell::Mode;
use lockwell_conformance::history;

use super::super::history::{End, Hold};
use crate::checker::liveness::Disturbed;
use crate::checker::rules::{Found, Rules, Span, words};

/// Validity intervals that must not overlap and did.
#[derive(Debug, Default)]
pub(super) struct Overlaps {
    pub(super) found: Found,
    pub(super) before: u64,
    pub(super) after_force: u64,
    pub(super) longest: u64,
}

/// Validity intervals that began within another that they must not overlap. `sorted` is in the order of their
/// beginnings.
pub(super) fn overlaps(sorted: &[Hold], rules: &Rules, overlaps: &mut Overlaps) {
    history::overlaps(sorted, |other, next| {
        let length = other.until.min(next.until) - next.from;
        overlaps.longest = overlaps.longest.max(length);
        // Whoever was deprived of the lock is told within a lease, since no renewal succeeds after that. The
        // news of its grant may even have come later than that of the next one's.
        let older = if other.token < next.token { other } else { next };
        if rules.may_be_deprived(older) && length <= rules.ttl {
            overlaps.after_force += 1;
        } else {
            overlaps.before += u64::from(next.from < rules.first_fault());
            overlaps.found.add(|| format!("held at the same time: {}; {}", words(other), words(next)));
        }
    });
}

/// Releases of exclusive locks that were confirmed though another was the holder when they were called.
///
/// If the lock was granted twice, both releases are right: that of a holder is confirmed whose record a
/// failover has lost, since an earlier copy of its request may have freed the lock. The overlap is found by
/// itself.
pub(super) fn foreign_releases(sorted: &[Hold], found: &mut Found) {
    let valid: Vec<&Hold> = sorted.iter().filter(|hold| hold.until > hold.from).collect();
    for pair in valid.windows(2) {
        let (before, after) = (pair[0], pair[1]);
        let confirmed = before.end == End::Released && before.ask.mode == Mode::Exclusive;
        // With a lower token, the other was the holder before.
        let was_over = before.until <= after.from;
        if confirmed && was_over && after.token > before.token && after.from < before.called {
            found.add(|| format!("released what another held: {}; {}", words(before), words(after)));
        }
    }
}

/// Leases that ran out although no fault was at work: nobody has renewed them.
pub(super) fn ran_out(sorted: &[Hold], disturbed: &Disturbed, found: &mut Found) {
    let is_calm = |hold: &&Hold| !disturbed.touches(Span { from: hold.from, until: hold.answered });
    let has_run_out = |hold: &&Hold| hold.end == End::Expired && hold.until > hold.from;
    for hold in sorted.iter().filter(has_run_out).filter(is_calm) {
        found.add(|| format!("not renewed: {}", words(hold)));
    }
}

/// Validity intervals that lasted longer into an outage than a lease.
pub(super) fn outages(sorted: &[Hold], rules: &Rules, found: &mut Found) {
    for outage in &rules.outages {
        let latest = outage.span.from + rules.ttl;
        for hold in sorted {
            let is_concerned = outage.worker.is_none_or(|worker| worker == hold.ask.who.worker);
            if is_concerned && hold.from < outage.span.until && hold.until.min(outage.span.until) > latest {
                let late = (hold.until.min(outage.span.until) - latest) / 1000;
                found.add(|| format!("valid {late} us longer than an outage allows: {}", words(hold)));
            }
        }
    }
}
