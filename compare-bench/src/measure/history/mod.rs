//! What the holders of one name or of several logged: is it possible, and how did a lock go from hand to
//! hand?

mod handing;

use std::collections::VecDeque;
use std::time::Duration;

use lockwell::backend::{FencingToken, Mode, Moment};
use lockwell_conformance::history::{self, Held};

use crate::error::{Error, Result};
use crate::stats::{Sample, as_float, jain, rate};

pub(crate) use self::handing::summary;

/// One turn of one party. All times are nanoseconds of the boot clock, which all processes of a host share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Who: the number of the process or task.
    pub(crate) party: usize,
    /// The fencing token.
    pub(crate) token: u64,
    /// Just before the lock was asked for.
    pub(crate) asked: u64,
    /// Just after it was granted.
    pub(crate) acquired: u64,
    /// Just before the release was called.
    pub(crate) released: u64,
}

impl Held for Turn {
    fn mode(&self) -> Mode {
        Mode::Exclusive
    }

    fn token(&self) -> FencingToken {
        FencingToken::new(self.token)
    }

    fn asked(&self) -> Moment {
        Moment::from_nanos(self.asked)
    }

    fn from(&self) -> Moment {
        Moment::from_nanos(self.acquired)
    }

    fn until(&self) -> Moment {
        Moment::from_nanos(self.released)
    }
}

/// The turns of one name or of several, after the check that they can have happened.
#[derive(Debug)]
pub(crate) struct History {
    /// One name after the other, those of each in the order in which they happened.
    turns: Vec<Turn>,
    parties: usize,
    /// How many parties want each name: neighbours want the same.
    of_each: usize,
    /// Until this moment all parties asked for the lock again and again.
    until: u64,
    overlaps: u64,
    tokens: bool,
}

impl History {
    /// The turns of a lock that is not ours and has no tokens: what is wrong with them is counted.
    pub(crate) fn of_peer(turns: Vec<Turn>, parties: usize, names: usize, until: u64) -> Self {
        let mut this = Self::sorted(turns, parties, names, until);
        let mut number = 0;
        this.by_name().for_each(|turns| history::overlaps(turns, |_, _| number += 1));
        this.overlaps = number;
        this
    }

    /// Sorts the turns, and fails with [`Error::Violation`] if two parties considered themselves the holder
    /// of one name at once, or if a token is not higher than that of the turn before.
    pub(crate) fn check(turns: Vec<Turn>, parties: usize, names: usize, until: u64) -> Result<Self> {
        let this = Self { tokens: true, ..Self::sorted(turns, parties, names, until) };
        this.by_name().try_for_each(can_have_happened)?;
        Ok(this)
    }

    fn sorted(mut turns: Vec<Turn>, parties: usize, names: usize, until: u64) -> Self {
        let of_each = (parties / names.max(1)).max(1);
        turns.sort_by_key(|turn| (turn.party / of_each, turn.acquired));
        Self { turns, parties, of_each, until, overlaps: 0, tokens: false }
    }

    /// The turns of each name.
    fn by_name(&self) -> impl Iterator<Item = &[Turn]> {
        let of_each = self.of_each;
        self.turns.chunk_by(move |one, next| one.party / of_each == next.party / of_each)
    }

    /// Each turn with the next one on the same name.
    fn pairs(&self) -> impl Iterator<Item = &[Turn]> {
        self.by_name().flat_map(|turns| turns.windows(2))
    }

    /// Adds this round to those before it, with whose last token of a name its first is compared.
    pub(crate) fn join(self, rounds: &mut Vec<Self>) -> Result<()> {
        for turns in self.by_name() {
            let after = turns[0];
            let has_its_name = |turn: &Turn| turn.party / self.of_each == after.party / self.of_each;
            let before =
                rounds.iter().rev().find_map(|round| round.turns.iter().rfind(|turn| has_its_name(turn)));
            // Nothing but the order of the rounds says which came first.
            if let Some(before) = before
                && after.token <= before.token
            {
                return Err(does_not_rise(before, &after));
            }
        }
        rounds.push(self);
        Ok(())
    }

    /// The time from one party's release to the next party's turn, where that one was waiting already.
    pub(crate) fn handovers(&self) -> Sample {
        let mut sample = Sample::new();
        for pair in self.pairs() {
            let (before, after) = (pair[0], pair[1]);
            if is_handover(pair) {
                sample.note(Duration::from_nanos(after.acquired.saturating_sub(before.released)), 1);
            }
        }
        sample
    }

    /// The same; of a party that is alone, the time to its own next turn.
    pub(crate) fn to_the_next(&self) -> Sample {
        if self.of_each > 1 {
            return self.handovers();
        }
        spans(self.pairs().map(|pair| pair[1].acquired.saturating_sub(pair[0].released)))
    }

    /// The time from a release to the turn of the party that had then waited longest. Where a lock serves in
    /// order it is that of [`handovers`](Self::handovers); where others may barge in, it shows what that
    /// costs the one in front.
    /// A party that is alone comes first each time.
    pub(crate) fn to_the_first(&self) -> Sample {
        if self.of_each == 1 {
            return self.to_the_next();
        }
        let mut sample = Sample::new();
        for turns in self.by_name() {
            to_the_first(turns, &mut sample);
        }
        sample
    }

    /// The waits.
    pub(crate) fn waits(&self) -> Sample {
        spans(self.turns.iter().map(|turn| turn.acquired - turn.asked))
    }

    /// Acquisitions per second while all parties asked, of all names together: from the first turn to the end
    /// of that time. The first turn of a name does not count. What comes later is left out, since nobody asks
    /// again then, and whoever sleeps before it asks again has nobody to wait for.
    pub(crate) fn per_second(&self) -> f64 {
        rate(self.steps(), self.span())
    }

    /// From turn to turn.
    fn steps(&self) -> u64 {
        count(self.contended().iter().map(|turns| turns.len().saturating_sub(1)).sum())
    }

    /// The turns of each name that began while all parties asked. All of them, if there was time for one on
    /// each at most.
    fn contended(&self) -> Vec<&[Turn]> {
        let end = |turns: &[Turn]| turns.partition_point(|turn| turn.acquired <= self.until);
        let in_time: Vec<&[Turn]> = self.by_name().map(|turns| &turns[..end(turns)]).collect();
        if in_time.iter().any(|turns| turns.len() > 1) { in_time } else { self.by_name().collect() }
    }

    fn span(&self) -> Duration {
        let contended = self.contended();
        let acquired = || contended.iter().copied().flatten().map(|turn| turn.acquired);
        match (acquired().min(), acquired().max()) {
            (Some(first), Some(last)) if self.steps() > 0 => {
                Duration::from_nanos(self.until.max(last) - first)
            }
            _ => Duration::ZERO,
        }
    }

    /// Turns that followed one of another party, who was waiting already when the lock was released.
    fn handovers_in_time(&self) -> u64 {
        let contended = self.contended();
        let pairs = contended.iter().flat_map(|turns| turns.windows(2));
        count(pairs.filter(|pair| is_handover(pair)).count())
    }

    /// How evenly the parties got the lock while all asked.
    fn jain(&self) -> f64 {
        let mut shares = vec![0; self.parties];
        for turn in self.contended().into_iter().flatten() {
            shares[turn.party] += 1;
        }
        jain(&shares)
    }

    /// So many requests, for each turn.
    pub(crate) fn each(&self, requests: u64) -> f64 {
        as_float(requests) / as_float(count(self.turns.len()).max(1))
    }
}

/// Checks the turns of one name.
fn can_have_happened(turns: &[Turn]) -> Result<()> {
    let mut found = None;
    history::overlaps(turns, |before, after| {
        found.get_or_insert_with(|| {
            Error::Violation(format!("two held the lock at once: {before:?} and {after:?}"))
        });
    });
    let mut falls = |before: &Turn, after: &Turn| {
        found.get_or_insert_with(|| does_not_rise(before, after));
    };
    history::tokens_twice(turns, &mut falls);
    history::tokens_fallen(turns, &mut falls);
    found.map_or(Ok(()), Err)
}

fn does_not_rise(before: &Turn, after: &Turn) -> Error {
    Error::Violation(format!("the token did not rise: {before:?}, then {after:?}"))
}

/// Of one name: from each release to the turn of the party that had then waited longest.
fn to_the_first(turns: &[Turn], sample: &mut Sample) {
    let mut asking: Vec<usize> = (0..turns.len()).collect();
    asking.sort_by_key(|&turn| turns[turn].asked);
    let (mut asking, mut waiting) = (asking.into_iter().peekable(), VecDeque::new());
    let mut last = None;
    for (number, turn) in turns.iter().enumerate() {
        while let Some(asked) = asking.next_if(|&other| turns[other].asked <= turn.released) {
            waiting.push_back(asked);
        }
        // Turns are in order of their beginning: those up to this one wait no more.
        while waiting.pop_front_if(|other| *other <= number).is_some() {}
        if let Some(&first) = waiting.front()
            && last.replace(first) != Some(first)
        {
            let span = turns[first].acquired.saturating_sub(turn.released);
            sample.note(Duration::from_nanos(span), 1);
        }
    }
}

fn is_handover(pair: &[Turn]) -> bool {
    pair[0].party != pair[1].party && pair[1].asked <= pair[0].released
}

fn spans(nanos: impl Iterator<Item = u64>) -> Sample {
    let mut sample = Sample::new();
    for span in nanos {
        sample.note(Duration::from_nanos(span), 1);
    }
    sample
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After all turns of these tests.
    pub(super) const UNTIL: u64 = 1_000_000;

    pub(super) fn turn(party: usize, token: u64, asked: u64, acquired: u64, released: u64) -> Turn {
        Turn { party, token, asked, acquired, released }
    }

    #[test]
    fn an_overlap_is_a_violation() {
        let overlapping = vec![turn(0, 1, 0, 10, 30), turn(1, 2, 0, 29, 40)];
        let error = History::check(overlapping, 2, 1, UNTIL).unwrap_err();
        assert!(matches!(error, Error::Violation(ref text) if text.contains("two held")), "{error}");
        // One turn within another, and logged in another order.
        let within = vec![turn(1, 2, 0, 15, 20), turn(0, 1, 0, 10, 30)];
        assert!(matches!(History::check(within, 2, 1, UNTIL), Err(Error::Violation(_))));
    }

    #[test]
    fn tokens_must_rise() {
        for second in [4, 5] {
            let turns = vec![turn(0, 5, 0, 10, 20), turn(1, second, 0, 20, 30)];
            let error = History::check(turns, 2, 1, UNTIL).unwrap_err();
            assert!(error.to_string().contains("did not rise"), "{error}");
        }
    }

    #[test]
    fn only_a_waiting_party_makes_a_handover() {
        let turns = vec![
            turn(0, 1, 0, 1_000, 2_000),
            turn(1, 2, 1_500, 5_000, 6_000),   // waited: a hand-over of 3 us
            turn(1, 3, 6_100, 6_200, 7_000),   // the same party again
            turn(0, 4, 8_000, 9_000, 10_000),  // came after the release
            turn(1, 5, 7_500, 11_000, 12_000), // waited: a hand-over of 1 us
        ];
        let history = History::check(turns, 2, 1, UNTIL).unwrap();
        let spread = history.handovers().spread();
        assert_eq!(spread.samples, 2);
        assert!((spread.max - 3.0).abs() < 0.01, "{spread:?}");
        let handing = summary(&[history]);
        assert_eq!((handing.acquisitions, handing.handovers, handing.repeats), (5, 2, 1));
        assert_eq!(handing.shares, [2, 3]);
        assert!((handing.wait_us.max - 3.5).abs() < 0.01, "{:?}", handing.wait_us);
    }

    #[test]
    fn who_barges_in_makes_the_first_wait() {
        let turns = vec![
            turn(0, 1, 0, 1_000, 2_000),
            turn(0, 2, 2_100, 2_200, 3_000), // barges in before 1, who waits since 1.5 us
            turn(2, 3, 2_900, 3_100, 4_000), // so does 2
            turn(1, 4, 1_500, 5_000, 6_000), // 3 us after the first release that it waited for
            turn(0, 5, 5_500, 6_500, 7_000), // 0.5 us
        ];
        let spread = History::check(turns, 3, 1, UNTIL).unwrap().to_the_first().spread();
        assert_eq!(spread.samples, 2);
        assert!((spread.max - 3.0).abs() < 0.01 && (spread.p50 - 0.5).abs() < 0.01, "{spread:?}");
    }

    #[test]
    fn a_party_that_is_alone_hands_the_lock_to_itself() {
        let turns = vec![turn(0, 1, 0, 1_000, 2_000), turn(0, 2, 2_500, 5_000, 6_000)];
        let history = History::check(turns, 1, 1, UNTIL).unwrap();
        for sample in [history.to_the_next(), history.to_the_first()] {
            assert_eq!(sample.spread().samples, 1);
            assert!((sample.spread().max - 3.0).abs() < 0.01, "{:?}", sample.spread());
        }
        let handing = summary(&[history]);
        assert_eq!((handing.handovers, handing.repeats), (0, 1));
    }

    #[test]
    fn a_rate_is_of_the_steps_between_turns() {
        let second = 1_000_000_000;
        // Each second a turn.
        let round = |first: u64, turns: u64| {
            let one = |number| turn(0, first + number, 0, second * number, second * number + 10);
            History::check((1..=turns).map(one).collect(), 1, 1, second * turns).unwrap()
        };
        let rounds = [round(0, 2), round(10, 3), round(20, 9), round(30, 1)];
        for history in &rounds[..3] {
            assert!((history.per_second() - 1.0).abs() < 0.001, "{}", history.per_second());
        }
        assert!(rounds[3].per_second().abs() < f64::EPSILON, "one turn alone has no rate");
        let handing = summary(&rounds);
        assert_eq!(handing.acquisitions, 15);
        assert!((handing.acquisitions_per_second - 1.0).abs() < 0.001, "{handing:?}");
    }

    #[test]
    fn what_comes_after_the_time_does_not_count_in_a_rate() {
        let milli = 1_000_000;
        // Two parties take turns of 1 ms for 100 ms; then one that sleeps is alone.
        let take = |(party, number)| turn(party, number + 1, 0, number * milli, number * milli + 1);
        let mut turns: Vec<Turn> = [0, 1].into_iter().cycle().zip(0..=100).map(take).collect();
        turns.push(turn(0, 200, 0, 300 * milli, 300 * milli + 1));
        let history = History::check(turns, 2, 1, 100 * milli).unwrap();
        assert!((history.per_second() - 1000.0).abs() < 0.001, "{}", history.per_second());
        let handing = summary(&[history]);
        assert_eq!((handing.acquisitions, handing.handovers), (102, 100));
        assert!((handing.handovers_per_second - 1000.0).abs() < 0.001, "{handing:?}");
        // One turn at most in the time: the others count.
        let slow =
            History::check(vec![turn(0, 1, 0, 0, 1), turn(0, 2, 0, 20 * milli, 20 * milli + 1)], 1, 1, 5);
        assert!((slow.unwrap().per_second() - 50.0).abs() < 0.001);
    }

    #[test]
    fn tokens_rise_from_round_to_round_on_each_name() {
        let round = |tokens: [u64; 2]| {
            let turns = vec![turn(0, tokens[0], 0, 10, 20), turn(2, tokens[1], 0, 10, 20)];
            History::check(turns, 4, 2, UNTIL).unwrap()
        };
        let mut rounds = Vec::new();
        round([5, 9]).join(&mut rounds).unwrap();
        round([6, 10]).join(&mut rounds).unwrap();
        for tokens in [[6, 11], [7, 10]] {
            assert!(matches!(round(tokens).join(&mut rounds), Err(Error::Violation(_))), "{tokens:?}");
        }
    }
}
