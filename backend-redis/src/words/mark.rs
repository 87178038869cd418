//! The mark of a server, which says in which slots it may grant locks, and the slots of a server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lockwell_core::Moment;
use lockwell_core::backend::{Mark as Shown, MarkAdvice, MarkWatch, unique_bits};

use crate::words::keys::SLOTS;

/// Slots of a cluster. Where there is no cluster, one server has all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slots(Arc<[(u16, u16)]>);

impl Slots {
    pub(crate) fn all() -> Self {
        Self::of([(0, SLOTS - 1)])
    }

    /// The slots of these ranges, each from its first to its last.
    pub(crate) fn of(ranges: impl IntoIterator<Item = (u16, u16)>) -> Self {
        let mut ranges: Vec<_> = ranges.into_iter().filter(|(first, last)| first <= last).collect();
        ranges.sort_unstable();
        let mut joined: Vec<(u16, u16)> = Vec::new();
        for (first, last) in ranges {
            match joined.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
                _ => joined.push((first, last)),
            }
        }
        Self(joined.into())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn last(&self) -> Option<u16> {
        self.0.last().map(|(_, last)| *last)
    }

    pub(crate) fn contains(&self, slot: u16) -> bool {
        self.0.iter().any(|(first, last)| (*first..=*last).contains(&slot))
    }

    pub(crate) fn covers(&self, others: &Self) -> bool {
        others.0.iter().all(|(first, last)| self.0.iter().any(|(from, to)| from <= first && last <= to))
    }

    pub(crate) fn within(&self, others: &Self) -> Self {
        let pairs = self.0.iter().flat_map(|one| others.0.iter().map(move |other| (one, other)));
        Self::of(pairs.map(|(one, other)| (one.0.max(other.0), one.1.min(other.1))))
    }

    fn parse(text: &str) -> Option<Self> {
        let ranges = text.split(',').filter(|range| !range.is_empty()).map(|range| {
            let (first, last) = range.split_once('-')?;
            Some((first.parse().ok()?, last.parse().ok()?))
        });
        ranges.collect::<Option<Vec<_>>>().map(Self::of)
    }
}

impl fmt::Display for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (first, last)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{first}-{last}")?;
        }
        Ok(())
    }
}

/// A mark that names the server at which it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Each mark that is made has another.
    pub(crate) number: u128,
    /// For how long clients have seen it, one after the other.
    counted: Duration,
    /// Where the server may grant locks.
    pub(crate) slots: Slots,
    /// Where it may grant locks when a grace period has been counted.
    pending: Slots,
}

impl Mark {
    /// A mark with which a grace period begins.
    pub(crate) fn closed(own: &Slots) -> Self {
        Self { number: unique_bits(), pending: own.clone(), ..Self::default() }
    }

    /// What stands for a mark that nobody has made.
    pub(crate) fn unmade(own: &Slots) -> Self {
        Self { pending: own.clone(), ..Self::default() }
    }

    /// The mark of a server that has forgotten nothing.
    pub(crate) fn open(self, own: &Slots) -> Self {
        Self { slots: own.clone(), pending: Slots::default(), ..self }
    }

    /// Reads a mark that begins with `lead`: the longest lease, and the server.
    pub(crate) fn parse(text: &str, lead: &str) -> Option<Self> {
        let mut fields = text.strip_prefix(lead)?.strip_prefix(':')?.split(':');
        let number = u128::from_str_radix(fields.next()?, 16).ok()?;
        let counted = Duration::from_millis(fields.next()?.parse().ok()?);
        let (slots, pending) = (Slots::parse(fields.next()?)?, Slots::parse(fields.next()?)?);
        Some(Self { number, counted, slots, pending })
    }

    pub(crate) fn text(&self, lead: &str) -> String {
        let Self { number, counted, slots, pending } = self;
        format!("{lead}:{number:x}:{}:{slots}:{pending}", counted.as_millis())
    }

    /// Notes that this is the mark by an answer that arrived `now`.
    pub(crate) fn note(&self, watch: &MarkWatch, now: Moment, grace: Duration) -> MarkAdvice {
        // One that is counted is no older one, also if the server grants locks in other slots meanwhile.
        let is_open = self.pending.is_empty();
        let shown = Shown { id: self.number, opens_in: 0, counted: self.counted, is_open };
        watch.advise(Some(shown), now, grace)
    }

    /// The mark after a look at it by an answer that arrived `now`, at a server that has the slots `own`; and
    /// how long it takes until the server grants locks in all of them.
    ///
    /// A slot that the server has gained may have come without its locks, as when slots of a master that is
    /// gone are given to another. It grants nothing there before a grace period has been counted, while the
    /// other slots go on. What is gained meanwhile is for the next period, so that none is put off.
    pub(crate) fn next(
        mut self,
        own: &Slots,
        watch: &MarkWatch,
        now: Moment,
        grace: Duration,
    ) -> (Self, Duration) {
        if self.pending.is_empty() && !self.slots.covers(own) {
            let slots = self.slots;
            self = Self { slots, ..Self::closed(own) };
        }
        self.slots = self.slots.within(own);
        match self.note(watch, now, grace) {
            MarkAdvice::Make => self = Self::closed(own),
            MarkAdvice::Raise(counted) => self.counted = counted,
            MarkAdvice::Grants | MarkAdvice::Open | MarkAdvice::Wait(_) => (),
        }
        if self.pending.is_empty() {
            return (self, Duration::ZERO);
        }
        if self.counted < grace {
            let left = grace.saturating_sub(self.counted);
            return (self, left);
        }
        let counted = self.pending.within(own);
        (self.open(&counted), if counted.covers(own) { Duration::ZERO } else { grace })
    }
}

#[cfg(test)]
mod tests {
    use lockwell_core::backend::grace_period;

    use super::*;

    const LONGEST: Duration = Duration::from_secs(30);

    #[test]
    fn slots_are_sets() {
        let of = |text| Slots::parse(text).unwrap();
        assert_eq!(of("5-9,0-4,20-20").to_string(), "0-9,20-20");
        assert_eq!(
            (of("0-9,20-20").last(), of("").last(), Slots::all().last()),
            (Some(20), None, Some(16383))
        );
        assert!(of("0-9").contains(9) && !of("0-9").contains(10));
        assert!(of("0-9").covers(&of("2-3,9-9")) && !of("0-9").covers(&of("9-10")) && of("").covers(&of("")));
        assert_eq!(of("0-9,20-30").within(&of("5-25")), of("5-9,20-25"));
        assert_eq!(Slots::parse("1"), None);
    }

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        let mark = Mark::closed(&Slots::all());
        assert_eq!(Mark::parse(&mark.text("9:run:data"), "9:run:data"), Some(mark.clone()));
        for other in ["9:run:other", "8:run:data", "9:run:dat"] {
            assert_eq!(Mark::parse(&mark.text("9:run:data"), other), None);
        }
        assert_eq!(Mark::parse("9:run:data", "9:run:data"), None);
    }

    /// What was lost goes at once, and what was gained waits for a grace period, in which the rest goes on.
    #[test]
    fn a_slot_that_was_gained_waits() {
        let of = |text| Slots::parse(text).unwrap();
        let (watch, start, grace) = (MarkWatch::default(), Moment::now(), grace_period(LONGEST));
        let next = |mark: Mark, own: &Slots, now| mark.next(own, &watch, now, grace);
        let (open, left) = next(Mark::default().open(&of("0-9")), &of("0-8"), start);
        assert_eq!((&open.slots, left), (&of("0-8"), Duration::ZERO));
        let (more, left) = next(open, &of("0-8,20-20"), start);
        assert_eq!((&more.slots, left), (&of("0-8"), grace));
        let later = start.after(grace / 2);
        let (more, left) = next(more, &of("0-8,20-20"), later);
        assert_eq!((&more.slots, left), (&of("0-8"), grace.saturating_sub(grace / 2)));
        let (more, left) = next(more, &of("0-7,20-21"), later);
        assert_eq!((&more.slots, left), (&of("0-7"), grace.saturating_sub(grace / 2)));
        let later = later.after(grace);
        let (more, left) = next(more, &of("0-7,20-21"), later);
        assert_eq!((&more.slots, left), (&of("0-7,20-20"), grace));
        let (more, _) = next(more, &of("0-7,20-21"), later);
        let (more, left) = next(more, &of("0-7,20-21"), later.after(grace));
        assert_eq!((&more.slots, left), (&of("0-7,20-21"), Duration::ZERO));
    }
}
