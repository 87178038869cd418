//! The grace period of a server that may have forgotten its last grants.
//!
//! A grant that waits for no disk is lost if the server crashes, and so is one that a replica did not have
//! when it was promoted. Such a server must not grant a lock before each lease that it may have granted has
//! ended. `NFSv4` (RFC 8881, section 8.4.2) and Chubby (Burrows 2006, section 2.9) call that time the grace
//! period. Holders extend their leases meanwhile.
//!
//! * The server keeps a *mark* in a place that it loses whenever it may have lost a grant. While there is no
//!   mark, or one that is not open, nothing is granted: the statement that grants looks at the mark itself.
//! * A client that finds no mark makes one. It opens a grace period later, by the server's clock.
//! * A clock may be set right some time after the server has started, so that time may pass at once. So a
//!   client opens the mark only if it has also seen the mark for a grace period by its own clock. If all
//!   clients begin anew, they wait again.
//! * A mark that opens later than a grace period from now was made before the clock was set back. It is made
//!   anew.
//!
//! The grace period is the longest lease that a grant may have without a flush, and a margin for the
//! difference of two clocks.
//!
//! `tests/grace_model` searches every order of events with this code, and finds a violation for each rule
//! that is left out.

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
    format!("the server may have forgotten grants: it grants nothing for another {left:.1?}")
}

/// The mark of a server, as an answer of the server shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Each mark that is made has another random id.
    pub id: u128,
    /// The time in microseconds until the server's clock reaches the end of the grace period. Negative: it
    /// has passed.
    pub opens_in: i64,
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

/// What to do about a mark that this client has seen for this time.
pub fn mark_advice(mark: Option<Mark>, seen_for: Duration, grace: Duration) -> MarkAdvice {
    let Some(mark) = mark else { return MarkAdvice::Make };
    if mark.is_open {
        return MarkAdvice::Grants;
    }
    let opens_in = Duration::from_micros(u64::try_from(mark.opens_in).unwrap_or(0));
    if opens_in > grace {
        return MarkAdvice::Make;
    }
    let left = opens_in.max(grace.saturating_sub(seen_for));
    if left.is_zero() { MarkAdvice::Open } else { MarkAdvice::Wait(left) }
}

/// What one client has seen of the mark of its server.
#[derive(Debug)]
pub struct MarkWatch {
    grace: Duration,
    /// The id of the mark that was seen last, and when its first answer had arrived.
    seen: Mutex<Option<(u128, Moment)>>,
}

impl MarkWatch {
    /// For a server that may forget leases of up to `longest`.
    pub fn new(longest: Duration) -> Self {
        Self { grace: grace_period(longest), seen: Mutex::new(None) }
    }

    /// How long the server grants nothing after it may have forgotten.
    pub fn grace(&self) -> Duration {
        self.grace
    }

    /// Notes the mark of an answer that arrived `now`, and says what to do about it.
    pub fn advise(&self, mark: Option<Mark>, now: Moment) -> MarkAdvice {
        let mut seen = lock(&self.seen);
        let since = match (mark, *seen) {
            (Some(mark), Some((id, since))) if mark.id == id => since,
            (Some(mark), _) => {
                *seen = Some((mark.id, now));
                now
            }
            (None, _) => {
                *seen = None;
                now
            }
        };
        mark_advice(mark, now.since(since), self.grace)
    }

    /// The id of the mark that was seen last, and since when.
    pub fn seen(&self) -> Option<(u128, Moment)> {
        *lock(&self.seen)
    }
}

/// The grace periods that a client notices, for the metric `lockwell_grace_end_seconds`.
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
        Mark { id, opens_in: i64::try_from(opens_in.as_micros()).unwrap(), is_open: false }
    }

    #[test]
    fn both_clocks_must_have_passed() {
        let (watch, start) = (MarkWatch::new(LONGEST), Moment::now());
        let grace = watch.grace();
        assert!(grace > LONGEST);
        assert_eq!(watch.advise(None, start), MarkAdvice::Make);
        assert_eq!(watch.advise(Some(mark(1, grace)), start), MarkAdvice::Wait(grace));
        // The server's clock was set forward.
        let half = start.after(grace / 2);
        assert_eq!(
            watch.advise(Some(mark(1, Duration::ZERO)), half),
            MarkAdvice::Wait(grace.saturating_sub(grace / 2))
        );
        // Another client has made a new one.
        assert_eq!(watch.advise(Some(mark(2, Duration::ZERO)), start.after(grace)), MarkAdvice::Wait(grace));
        let late = start.after(grace * 2);
        assert_eq!(
            watch.advise(Some(mark(2, Duration::from_secs(1))), late),
            MarkAdvice::Wait(Duration::from_secs(1))
        );
        assert_eq!(watch.advise(Some(mark(2, Duration::ZERO)), late), MarkAdvice::Open);
        let open = Mark { is_open: true, ..mark(3, grace * 2) };
        assert_eq!(watch.advise(Some(open), late), MarkAdvice::Grants);
    }

    #[test]
    fn a_mark_too_far_ahead_is_made_anew() {
        let watch = MarkWatch::new(LONGEST);
        let ahead = mark(1, watch.grace() + Duration::from_micros(1));
        assert_eq!(watch.advise(Some(ahead), Moment::now()), MarkAdvice::Make);
    }
}
