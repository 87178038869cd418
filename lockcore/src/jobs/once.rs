//! What one host does about a job and a key, as a pure function of (time, event).
//!
//! 1. It looks at the record without the lock. If the key is done, that is all.
//! 2. It takes the lock. Only who waits for it can take a job over from one who dies.
//! 3. It looks again, under the lock. If the key is done, or has had all of its attempts, that is all. Neither
//!    does it repeat an attempt that has failed by itself while it waited: each host that waits would do so.
//! 4. It writes that it begins, with the number of the attempt, until there is an answer. If that fails, nothing
//!    runs. If it loses the lock meanwhile, it waits for it again, and an attempt of its own that it finds in the
//!    record then is the one that has not begun yet: it does not count twice.
//! 5. If the job fails by itself, it writes that. A host that dies, is interrupted, or loses the lock writes
//!    nothing, so the next one takes over.
//! 6. If the job succeeds, it writes that the key is done, again and again while it holds the lock. If the lock
//!    is lost meanwhile, it takes the lock once more: if the key is as it has left it, nobody else has begun.
//!
//! So the job runs at least once, and at most as often as it has attempts, unless the record is lost.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::Moment;

/// For how long a host tries to write that a key is done, after it has lost the lock.
const FINISH_WITHIN: Duration = Duration::from_secs(60);

/// What has become of the last attempt for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptEnd {
    /// It is under way, or its host has died.
    Begun,
    /// It has failed by itself.
    Failed,
    /// The key is done.
    Done,
}

/// What the record says about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyState {
    /// How many attempts have begun.
    pub attempts: u32,
    /// What has become of the last one.
    pub end: AttemptEnd,
}

impl KeyState {
    /// How many attempts have ended, if the last one has not died.
    pub fn ended(self) -> u32 {
        self.attempts.saturating_sub(u32::from(self.end == AttemptEnd::Begun))
    }
}

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnceEvent {
    /// The answer to a look at the record. `None`: the key is not in it.
    Found(Option<KeyState>),
    /// A look under the lock has found what this host has written last: that its attempt begins.
    FoundOwn,
    /// The lock was granted.
    Granted,
    /// The wait for the lock is over.
    NotGranted,
    /// The record was written.
    Written,
    /// There is no answer to a request, which may have been carried out.
    NoAnswer,
    /// A request has failed and would fail again.
    Refused,
    /// The lock was lost.
    Lost,
    /// The job has succeeded.
    Succeeded,
    /// The job has failed by itself, or has taken too long.
    Failed,
    /// The host has to stop.
    Interrupted,
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnceAct {
    /// Look at the record without the lock.
    Look,
    /// Take the lock, until this moment; otherwise for as long as its user waits.
    Take(Option<Moment>),
    /// Look at the record under the lock.
    LookUnder,
    /// Write this of the key.
    Write(KeyState),
    /// Do this attempt at the work.
    Work(u32),
    /// Release the lock, if it is held. That was all.
    End(OnceEnd),
}

/// How it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnceEnd {
    /// The job ran here, and the key is done.
    Ran,
    /// The job ran here, and failed.
    RanAndFailed,
    /// The key was done before.
    Done,
    /// The job failed elsewhere while this host waited.
    FailedElsewhere,
    /// All attempts are used up.
    GivenUp,
    /// The lock was held for the whole wait.
    NotHad,
    /// The lock was lost before the job had ended.
    Lost,
    /// The job succeeded, and that could not be written.
    Unrecorded,
    /// A request failed.
    Refused,
    /// The host had to stop.
    Interrupted,
}

/// One host's part in a job and a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Once {
    limit: NonZeroU32,
    step: Step,
    /// How many attempts had ended when this host came.
    before: u32,
    /// The number of its own, once it has been written that it begins.
    attempt: u32,
    /// Since it has lost the lock after its success: until when it tries to write that.
    finish_by: Option<Moment>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Looking,
    Taking,
    LookingUnder,
    Beginning,
    Working,
    Failing,
    Finishing,
    TakingAgain,
    LookingAgain,
    Over(OnceEnd),
}

impl Once {
    /// A host comes, with the most attempts that a key may have.
    pub fn begin(attempts: NonZeroU32) -> (Self, OnceAct) {
        let once = Self { limit: attempts, step: Step::Looking, before: 0, attempt: 0, finish_by: None };
        (once, OnceAct::Look)
    }

    /// Something has happened.
    pub fn on(&mut self, now: Moment, event: OnceEvent) -> OnceAct {
        match (self.step, event) {
            (Step::Over(end), _) => OnceAct::End(end),
            (Step::Looking, OnceEvent::Found(found)) => self.looked(found),
            (Step::Taking, OnceEvent::Granted) => self.go(Step::LookingUnder, OnceAct::LookUnder),
            (Step::Taking, OnceEvent::NotGranted) => self.end(OnceEnd::NotHad),
            (Step::Looking, OnceEvent::NoAnswer) => OnceAct::Look,
            (Step::LookingUnder, OnceEvent::Found(found)) => self.decide(found),
            (Step::LookingUnder, OnceEvent::NoAnswer) => OnceAct::LookUnder,
            (Step::LookingUnder, OnceEvent::FoundOwn) | (Step::Beginning, OnceEvent::NoAnswer) => {
                self.write(Step::Beginning, AttemptEnd::Begun)
            }
            // Nothing has begun, so there is nothing to lose.
            (Step::LookingUnder | Step::Beginning, OnceEvent::Lost) => {
                self.go(Step::Taking, OnceAct::Take(None))
            }
            (Step::Beginning, OnceEvent::Written) => self.go(Step::Working, OnceAct::Work(self.attempt)),
            // Found under the next lock: nobody else has begun since.
            (Step::Working, OnceEvent::Succeeded) | (Step::LookingAgain, OnceEvent::FoundOwn) => {
                self.write(Step::Finishing, AttemptEnd::Done)
            }
            (Step::Finishing, OnceEvent::NoAnswer) if !self.is_late(now) => {
                self.write(Step::Finishing, AttemptEnd::Done)
            }
            (Step::Working, OnceEvent::Failed) => self.write(Step::Failing, AttemptEnd::Failed),
            // If it was not written, the next host takes it for one that has died.
            (Step::Failing, _) => self.end(OnceEnd::RanAndFailed),
            (Step::Finishing, OnceEvent::Written) => self.end(OnceEnd::Ran),
            (Step::Finishing | Step::LookingAgain, OnceEvent::Lost) => self.take_again(now),
            (Step::TakingAgain, OnceEvent::Granted) => self.go(Step::LookingAgain, OnceAct::LookUnder),
            // By this host, in a write without an answer, or by the next one.
            (Step::LookingAgain, OnceEvent::Found(Some(KeyState { end: AttemptEnd::Done, .. }))) => {
                self.end(OnceEnd::Ran)
            }
            (Step::LookingAgain, OnceEvent::NoAnswer) if !self.is_late(now) => OnceAct::LookUnder,
            (Step::Finishing | Step::TakingAgain | Step::LookingAgain, _) => self.end(OnceEnd::Unrecorded),
            (_, OnceEvent::Lost) => self.end(OnceEnd::Lost),
            (_, OnceEvent::Interrupted) => self.end(OnceEnd::Interrupted),
            _ => self.end(OnceEnd::Refused),
        }
    }

    fn go(&mut self, step: Step, act: OnceAct) -> OnceAct {
        self.step = step;
        act
    }

    fn end(&mut self, end: OnceEnd) -> OnceAct {
        self.go(Step::Over(end), OnceAct::End(end))
    }

    fn write(&mut self, step: Step, end: AttemptEnd) -> OnceAct {
        self.go(step, OnceAct::Write(KeyState { attempts: self.attempt, end }))
    }

    fn looked(&mut self, found: Option<KeyState>) -> OnceAct {
        match found {
            Some(KeyState { end: AttemptEnd::Done, .. }) => self.end(OnceEnd::Done),
            found => {
                self.before = found.map_or(0, KeyState::ended);
                self.go(Step::Taking, OnceAct::Take(None))
            }
        }
    }

    fn decide(&mut self, found: Option<KeyState>) -> OnceAct {
        let attempts = match found {
            Some(KeyState { end: AttemptEnd::Done, .. }) => return self.end(OnceEnd::Done),
            Some(key) if key.attempts >= self.limit.get() => return self.end(OnceEnd::GivenUp),
            Some(key) if key.end == AttemptEnd::Failed && key.attempts > self.before => {
                return self.end(OnceEnd::FailedElsewhere);
            }
            found => found.map_or(0, |key| key.attempts),
        };
        self.attempt = attempts + 1;
        self.write(Step::Beginning, AttemptEnd::Begun)
    }

    fn take_again(&mut self, now: Moment) -> OnceAct {
        let until = *self.finish_by.get_or_insert(now.after(FINISH_WITHIN));
        if self.is_late(now) {
            return self.end(OnceEnd::Unrecorded);
        }
        self.go(Step::TakingAgain, OnceAct::Take(Some(until)))
    }

    fn is_late(&self, now: Moment) -> bool {
        self.finish_by.is_some_and(|until| until <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGUN: AttemptEnd = AttemptEnd::Begun;
    const FAILED: AttemptEnd = AttemptEnd::Failed;
    const DONE: AttemptEnd = AttemptEnd::Done;

    /// What is known of a key that was begun so often.
    fn key(attempts: u32, end: AttemptEnd) -> Option<KeyState> {
        (attempts > 0).then_some(KeyState { attempts, end })
    }

    /// What a host with three attempts does in the end, which finds this at first, and this under the lock.
    fn finds(first: Option<KeyState>, under: Option<KeyState>, then: &[OnceEvent]) -> OnceAct {
        let now = Moment::now();
        let (mut once, mut act) = Once::begin(NonZeroU32::new(3).unwrap());
        for event in [OnceEvent::Found(first), OnceEvent::Granted, OnceEvent::Found(under)].iter().chain(then)
        {
            act = once.on(now, *event);
        }
        act
    }

    #[test]
    fn who_may_begin() {
        let begins = |attempts| OnceAct::Write(KeyState { attempts, end: BEGUN });
        for (first, under, act) in [
            (None, None, begins(1)),
            // Its host has died, before this one came or since.
            (key(1, BEGUN), key(1, BEGUN), begins(2)),
            (None, key(1, BEGUN), begins(2)),
            // It failed before this host came, or while it waited.
            (key(1, FAILED), key(1, FAILED), begins(2)),
            (None, key(1, FAILED), OnceAct::End(OnceEnd::FailedElsewhere)),
            (key(1, BEGUN), key(1, FAILED), OnceAct::End(OnceEnd::FailedElsewhere)),
            (key(2, BEGUN), key(2, BEGUN), begins(3)),
            (key(1, FAILED), key(2, FAILED), OnceAct::End(OnceEnd::FailedElsewhere)),
            (key(3, FAILED), key(3, FAILED), OnceAct::End(OnceEnd::GivenUp)),
            (None, key(3, BEGUN), OnceAct::End(OnceEnd::GivenUp)),
            (None, key(3, FAILED), OnceAct::End(OnceEnd::GivenUp)),
            (None, key(3, DONE), OnceAct::End(OnceEnd::Done)),
            (key(1, DONE), None, OnceAct::End(OnceEnd::Done)),
        ] {
            assert_eq!(finds(first, under, &[]), act, "{first:?}, {under:?}");
        }
    }

    #[test]
    fn nothing_runs_that_could_not_be_written() {
        for event in [OnceEvent::Refused, OnceEvent::Interrupted] {
            let act = finds(None, None, &[event]);
            assert!(matches!(act, OnceAct::End(_)), "{event:?}: {act:?}");
        }
        let begins = OnceAct::Write(KeyState { attempts: 1, end: BEGUN });
        assert_eq!(finds(None, None, &[OnceEvent::NoAnswer]), begins, "again");
        assert_eq!(finds(None, None, &[OnceEvent::NoAnswer, OnceEvent::Written]), OnceAct::Work(1));
    }

    #[test]
    fn a_success_is_written_within_a_time_after_a_loss() {
        let (mut once, mut act) = Once::begin(NonZeroU32::MIN);
        let mut now = Moment::now();
        let events = [OnceEvent::Found(None), OnceEvent::Granted, OnceEvent::Found(None), OnceEvent::Written];
        for event in events.into_iter().chain([OnceEvent::Succeeded, OnceEvent::Lost]) {
            act = once.on(now, event);
        }
        let OnceAct::Take(Some(until)) = act else { panic!("{act:?}") };
        once.on(now, OnceEvent::Granted);
        let writes = once.on(now, OnceEvent::FoundOwn);
        assert_eq!(once.on(now, OnceEvent::NoAnswer), writes);
        now = until;
        assert_eq!(once.on(now, OnceEvent::NoAnswer), OnceAct::End(OnceEnd::Unrecorded));
    }

    #[test]
    fn an_attempt_that_has_not_run_does_not_count_twice() {
        let after_a_loss = |found: OnceEvent| {
            finds(key(1, FAILED), key(1, FAILED), &[OnceEvent::Lost, OnceEvent::Granted, found])
        };
        let begins = |attempts| OnceAct::Write(KeyState { attempts, end: BEGUN });
        assert_eq!(finds(None, None, &[OnceEvent::NoAnswer, OnceEvent::Lost]), OnceAct::Take(None));
        assert_eq!(after_a_loss(OnceEvent::FoundOwn), begins(2), "it was written");
        assert_eq!(after_a_loss(OnceEvent::Found(key(1, FAILED))), begins(2), "it was not");
        // Another host has begun since.
        assert_eq!(after_a_loss(OnceEvent::Found(key(2, BEGUN))), begins(3));
        let failed = OnceAct::End(OnceEnd::FailedElsewhere);
        assert_eq!(after_a_loss(OnceEvent::Found(key(2, FAILED))), failed);
    }

    #[test]
    fn a_job_that_ends_says_how() {
        let ends = |then: &[OnceEvent]| finds(None, None, &[&[OnceEvent::Written][..], then].concat());
        let wrote = |end| OnceAct::Write(KeyState { attempts: 1, end });
        assert_eq!(ends(&[OnceEvent::Failed]), wrote(FAILED));
        assert_eq!(ends(&[OnceEvent::Failed, OnceEvent::Lost]), OnceAct::End(OnceEnd::RanAndFailed));
        // The next host takes over: nothing is written.
        assert_eq!(ends(&[OnceEvent::Lost]), OnceAct::End(OnceEnd::Lost));
        assert_eq!(ends(&[OnceEvent::Interrupted]), OnceAct::End(OnceEnd::Interrupted));
        assert_eq!(ends(&[OnceEvent::Succeeded]), wrote(DONE));
        assert_eq!(ends(&[OnceEvent::Succeeded, OnceEvent::NoAnswer]), wrote(DONE), "again");
        assert_eq!(ends(&[OnceEvent::Succeeded, OnceEvent::Written]), OnceAct::End(OnceEnd::Ran));
        assert_eq!(ends(&[OnceEvent::Succeeded, OnceEvent::Refused]), OnceAct::End(OnceEnd::Unrecorded));
    }

    #[test]
    fn a_success_is_written_after_a_loss_if_nobody_else_has_begun() {
        let lost = [OnceEvent::Written, OnceEvent::Succeeded, OnceEvent::Lost];
        assert!(matches!(finds(None, None, &lost), OnceAct::Take(Some(_))));
        let finds_then = |found| finds(None, None, &[&lost[..], &[OnceEvent::Granted, found]].concat());
        let done = OnceAct::Write(KeyState { attempts: 1, end: DONE });
        assert_eq!(finds_then(OnceEvent::FoundOwn), done);
        assert_eq!(finds_then(OnceEvent::Found(key(2, DONE))), OnceAct::End(OnceEnd::Ran));
        for other in [key(1, BEGUN), key(2, BEGUN), key(2, FAILED), None] {
            let act = finds_then(OnceEvent::Found(other));
            assert_eq!(act, OnceAct::End(OnceEnd::Unrecorded), "{other:?}");
        }
        let in_vain = [&lost[..], &[OnceEvent::NotGranted]].concat();
        assert_eq!(finds(None, None, &in_vain), OnceAct::End(OnceEnd::Unrecorded));
    }

    #[test]
    fn it_does_not_try_for_ever_to_write_a_success() {
        let now = Moment::now();
        let (mut once, _) = Once::begin(NonZeroU32::MIN);
        let mut on = |after: u64, event| once.on(now.after(Duration::from_secs(after)), event);
        for event in [
            OnceEvent::Found(None),
            OnceEvent::Granted,
            OnceEvent::Found(None),
            OnceEvent::Written,
            OnceEvent::Succeeded,
        ] {
            on(0, event);
        }
        let until = now.after(FINISH_WITHIN + Duration::from_secs(7));
        assert_eq!(on(7, OnceEvent::Lost), OnceAct::Take(Some(until)));
        on(60, OnceEvent::Granted);
        assert_eq!(on(61, OnceEvent::Lost), OnceAct::Take(Some(until)), "it is the same limit");
        on(66, OnceEvent::Granted);
        assert_eq!(on(67, OnceEvent::Lost), OnceAct::End(OnceEnd::Unrecorded));
    }
}
