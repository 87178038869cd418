//! The grace period of a server that may have forgotten its last grants.
//!
//! A grant that waits for no disk is lost if the server crashes, and so is one that a replica did not have
//! when it was promoted. Such a server must not grant a lock before each lease that it may have granted has
//! ended. `NFSv4` (RFC 8881, section 8.4.2) and Chubby (Burrows 2006, section 2.9) call that time the grace
//! period. Holders extend their leases meanwhile.
//!
//! * The server keeps a *mark* in a place that it loses whenever it may have lost a grant. While there is no
//!   mark, or one that is not open, nothing is granted: the statement that grants looks at the mark itself.
//! * A client that finds no mark makes one. A mark that is missing is a forgetting, always: nobody can tell a
//!   server that is new from one that has lost everything.
//! * The mark has a counter. A client raises it by the time for which it has itself, by its own clock, seen
//!   the mark with this count, and only if the mark still has this count. So what two clients add never
//!   overlaps, and the counter is never ahead of the time since the mark was made. When it reaches a grace
//!   period the mark is opened. Nobody has to live for a grace period: many that live a second do it together.
//! * A clock may be set right some time after the server has started. Where the mark says when it opens by the
//!   server's clock, that time must have passed as well. A mark that opens later than a grace period from now
//!   was made before the clock was set back. It is made anew.
//! * A client that has seen a closed mark believes no other mark that is open before a grace period has
//!   passed: it may be an older one that came back with data that were restored.
//!
//! A lost request or answer, a late copy and a pause leave time out, and add none: a count is replaced once,
//! and no client writes a count that it has not read since. A client that ends leaves its count to the others.
//!
//! The grace period is the longest lease that a grant may have without a flush, and a margin for the
//! difference of two clocks.
//!
//! `tools/models/tests/grace` searches every order of events with this code, and finds a violation for
//! each rule that is left out.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::config::ServerUrl;
use crate::system::lock;
use crate::telemetry::note_grace_left;
use crate::{Error, ErrorKind, Moment, Result};

/// The longest lease that a server may forget, if the address says nothing else.
const LONGEST: Duration = Duration::from_secs(30);
/// A release grants a lock under a lease of up to 3 s.
const SHORTEST: Duration = Duration::from_secs(4);
const DAY: Duration = Duration::from_secs(86_400);

const NO_LONGEST: &str = "longest_ttl is an option of durability=grace";

/// The options `durability` and `longest_ttl` of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraceOptions {
    /// Whether the server may forget grants. `None`: the address does not say.
    pub is_grace: Option<bool>,
    /// The longest lease that it may forget, if the address names one.
    pub longest: Option<Duration>,
}

impl GraceOptions {
    /// Reads the options. `other` is the durability of a server that keeps each grant, which it does if the
    /// address says nothing.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for another word, and for a longest lease that is too short
    /// or that nobody needs.
    pub fn read(url: &ServerUrl, other: &str) -> Result<Self> {
        let options = Self::of_forgetful(url, other)?;
        if options.longest.is_some() && options.is_grace.is_none() {
            return Err(Error::new(ErrorKind::InvalidInput, NO_LONGEST));
        }
        Ok(options)
    }

    /// The same for a server that may forget grants if the address says nothing.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn of_forgetful(url: &ServerUrl, other: &str) -> Result<Self> {
        let invalid = |text: String| Err(Error::new(ErrorKind::InvalidInput, text));
        let is_grace = match url.option("durability") {
            None => None,
            Some("grace") => Some(true),
            Some(word) if word == other => Some(false),
            Some(word) => return invalid(format!("durability is {other} or grace, not {word:?}")),
        };
        let longest = url.duration("longest_ttl")?;
        if longest.is_some() && is_grace == Some(false) {
            return invalid(NO_LONGEST.to_owned());
        }
        if longest.is_some_and(|longest| longest < SHORTEST) {
            return invalid(format!("longest_ttl is at least {SHORTEST:?}"));
        }
        if longest.is_some_and(|longest| longest > DAY) {
            return invalid("longest_ttl is at most a day".to_owned());
        }
        Ok(Self { is_grace, longest })
    }

    /// The longest lease that a server may forget for which the address demands grace.
    pub fn longest(self) -> Duration {
        self.longest.unwrap_or(LONGEST)
    }
}

/// Why a server grants nothing for this time.
pub fn closed_for(left: Duration) -> String {
    format!(
        "the server may have forgotten grants: it grants nothing for another {left:.1?}, which pass while a client waits or \
         holds a lock"
    )
}

/// The mark of a server, as an answer of the server shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Each mark that is made has another random id.
    pub id: u128,
    /// The time in microseconds until the server's clock reaches the end of the grace period. Negative: it
    /// has passed, or the clock plays no part.
    pub opens_in: i64,
    /// For how long clients have seen the mark, one after the other.
    pub counted: Duration,
    /// Whether the server grants locks.
    pub is_open: bool,
}

/// What a client does about a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkAdvice {
    /// Nothing: the server grants locks.
    Grants,
    /// Make a mark that opens a grace period from now, in the place of the one that was seen.
    Make,
    /// Replace the count of the mark by this one, if the mark still has the count that was seen.
    Raise(Duration),
    /// Open the mark that was seen, if the server's clock has still passed its end.
    Open,
    /// Look again after this time at the earliest.
    Wait(Duration),
}

/// How long a server grants nothing if it may have forgotten grants with leases of up to `longest`. The
/// margin is that of a lease: two clocks may differ by 1 % in opposite directions.
pub fn grace_period(longest: Duration) -> Duration {
    longest + longest / 50 + Duration::from_millis(4)
}

/// What to do about a mark that this client has seen, with this count, for this time.
pub fn mark_advice(mark: Option<Mark>, seen_for: Duration, grace: Duration) -> MarkAdvice {
    let Some(mark) = mark else { return MarkAdvice::Make };
    if mark.is_open {
        return MarkAdvice::Grants;
    }
    let opens_in = Duration::from_micros(u64::try_from(mark.opens_in).unwrap_or(0));
    if opens_in > grace {
        return MarkAdvice::Make;
    }
    // Counts are kept in milliseconds.
    let seen_for = Duration::from_millis(u64::try_from(seen_for.as_millis()).unwrap_or(u64::MAX));
    if mark.counted < grace && !seen_for.is_zero() {
        return MarkAdvice::Raise((mark.counted + seen_for).min(grace));
    }
    let left = opens_in.max(grace.saturating_sub(mark.counted));
    if left.is_zero() { MarkAdvice::Open } else { MarkAdvice::Wait(left) }
}

/// What one client has seen of the mark of its server.
#[derive(Debug, Default)]
pub struct MarkWatch {
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// The id and the count that were seen last, and when the first answer with both had arrived.
    last: Option<(u128, Duration, Moment)>,
    /// The id of the closed mark that was seen last, and when its first answer had arrived.
    closed: Option<(u128, Moment)>,
}

impl MarkWatch {
    /// For how long the mark that was seen last has been seen with its count.
    pub fn seen_for(&self, now: Moment) -> Duration {
        lock(&self.seen).last.map_or(Duration::ZERO, |(_, _, since)| now.since(since))
    }

    /// Notes the mark of an answer that arrived `now`, and says what to do about it. `grace` is how long the server
    /// grants nothing after it may have forgotten: see [`grace_period`].
    pub fn advise(&self, mark: Option<Mark>, now: Moment, grace: Duration) -> MarkAdvice {
        let mut seen = lock(&self.seen);
        let Some(shown) = mark else {
            seen.last = None;
            return MarkAdvice::Make;
        };
        let since = match seen.last {
            Some((id, counted, since)) if (id, counted) == (shown.id, shown.counted) => since,
            _ => now,
        };
        seen.last = Some((shown.id, shown.counted, since));
        match seen.closed {
            Some((id, since)) if shown.is_open && id != shown.id && now.since(since) < grace => {
                return MarkAdvice::Make;
            }
            Some((id, _)) if id == shown.id => (),
            _ if shown.is_open => (),
            _ => seen.closed = Some((shown.id, now)),
        }
        mark_advice(mark, now.since(since), grace)
    }
}

/// The grace periods that a client notices, for the metric `lockwell.grace.end.timestamp`.
#[derive(Debug)]
pub struct GraceGauge {
    backend: &'static str,
    is_closed: AtomicBool,
}

impl GraceGauge {
    /// For a backend of this name.
    pub const fn new(backend: &'static str) -> Self {
        Self { backend, is_closed: AtomicBool::new(false) }
    }

    /// Notes that the server grants nothing for this time. `None`: it grants locks, as it has done before, or
    /// from now on.
    ///
    /// Without the feature `metrics` it does nothing.
    pub fn note(&self, left: Option<Duration>) {
        if self.is_closed.swap(left.is_some(), Ordering::Relaxed) || left.is_some() {
            note_grace_left(self.backend, left.unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_secs(30);

    fn mark(id: u128, opens_in: Duration) -> Mark {
        let opens_in = i64::try_from(opens_in.as_micros()).unwrap();
        Mark { id, opens_in, counted: Duration::ZERO, is_open: false }
    }

    fn watching() -> impl Fn(Option<Mark>, Moment) -> MarkAdvice {
        let watch = MarkWatch::default();
        move |mark, now| watch.advise(mark, now, grace_period(LONGEST))
    }

    #[test]
    fn both_clocks_must_have_passed() {
        let (advise, start) = (watching(), Moment::now());
        let grace = grace_period(LONGEST);
        assert!(grace > LONGEST);
        assert_eq!(advise(None, start), MarkAdvice::Make);
        assert_eq!(advise(Some(mark(1, grace)), start), MarkAdvice::Wait(grace));
        // The server's clock was set forward.
        let half = start.after(grace / 2);
        assert_eq!(advise(Some(mark(1, Duration::ZERO)), half), MarkAdvice::Raise(grace / 2));
        // Another client has made a new one.
        assert_eq!(advise(Some(mark(2, Duration::ZERO)), start.after(grace)), MarkAdvice::Wait(grace));
        let late = start.after(grace * 2);
        assert_eq!(advise(Some(mark(2, Duration::ZERO)), late), MarkAdvice::Raise(grace));
        let counted = |opens_in| Some(Mark { counted: grace, ..mark(2, opens_in) });
        assert_eq!(advise(counted(Duration::from_secs(1)), late), MarkAdvice::Wait(Duration::from_secs(1)));
        assert_eq!(advise(counted(Duration::ZERO), late), MarkAdvice::Open);
        let open = Mark { is_open: true, ..mark(2, grace * 2) };
        assert_eq!(advise(Some(open), late), MarkAdvice::Grants);
    }

    /// What others have counted is not counted again.
    #[test]
    fn a_count_begins_with_the_count_that_was_read() {
        let (advise, start) = (watching(), Moment::now());
        let after = |seconds| start.after(Duration::from_secs(seconds));
        let counted =
            |seconds| Some(Mark { counted: Duration::from_secs(seconds), ..mark(1, Duration::ZERO) });
        let left = |seconds| grace_period(LONGEST).saturating_sub(Duration::from_secs(seconds));
        assert_eq!(advise(counted(0), after(0)), MarkAdvice::Wait(left(0)));
        assert_eq!(advise(counted(5), after(6)), MarkAdvice::Wait(left(5)));
        assert_eq!(advise(counted(5), after(9)), MarkAdvice::Raise(Duration::from_secs(8)));
    }

    /// An open mark that comes back with older data is older than the closed one.
    #[test]
    fn a_period_is_remembered_whatever_the_mark_says_later() {
        let (advise, start) = (watching(), Moment::now());
        let open = |id| Some(Mark { is_open: true, ..mark(id, Duration::ZERO) });
        let grace = grace_period(LONGEST);
        assert_eq!(advise(open(1), start), MarkAdvice::Grants);
        assert_eq!(advise(Some(mark(2, Duration::ZERO)), start), MarkAdvice::Wait(grace));
        assert_eq!(advise(open(1), start.after(grace / 2)), MarkAdvice::Make);
        assert_eq!(advise(open(2), start.after(grace / 2)), MarkAdvice::Grants);
        assert_eq!(advise(open(3), start.after(grace)), MarkAdvice::Grants);
    }

    #[test]
    fn a_mark_too_far_ahead_is_made_anew() {
        let advise = watching();
        let ahead = mark(1, grace_period(LONGEST) + Duration::from_micros(1));
        assert_eq!(advise(Some(ahead), Moment::now()), MarkAdvice::Make);
    }
}
