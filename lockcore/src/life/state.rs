//! The state of one claim, from its making until it holds nothing: a pure function of (time, event).

use std::time::Duration;

use super::holds::Holds;
use super::lease::Lease;
use crate::{Moment, Released};

/// A task without a caller that has not begun after this time is not waited for any more.
pub(crate) const BEGUN: Duration = Duration::from_millis(100);
/// One that is not done after this time is not, either.
const DONE: Duration = Duration::from_secs(1);
/// For how much longer than a lease the keeper repeats a release.
const MARGIN: Duration = Duration::from_secs(5);
/// How long after the end of a lease a late copy of a request may still arrive.
const COPY_MARGIN: Duration = Duration::from_secs(5);
/// The release of a claim in doubt is repeated until its lease has ended. After this number of answers "not
/// held", `close` does not wait for it any more.
const DENIALS: u32 = 3;
/// The first pause before the keeper repeats a release, and before it asks for a late copy.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(250));

/// How far a claim has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing was sent.
    Begun,
    /// The server was asked for the lock.
    Asked,
    /// It was granted: a guard has the lock, or it is on its way to the next task.
    Held,
    /// It is released, or is to be.
    Leaving,
    /// It holds nothing. Only a late copy of a request may still take the lock.
    Over,
}

/// What happens to a claim.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    /// Time has passed.
    Tick,
    /// It is sent to the server.
    Asked,
    /// The server has granted it. It may have been given up before.
    Granted,
    /// A hold begins, with this lease.
    Hold(Lease),
    /// A task acts for it without a caller who waits, and has begun or not.
    Unattended { begun: bool },
    /// Nobody drives it: the keeper releases it, unless it was granted to somebody.
    GiveUp,
    /// It is on its way to the next task, or was granted without an acquire.
    Passed,
    /// A task releases it without a caller who waits. `known`: as for `Leave`.
    Depart { known: bool },
    /// Whoever has it releases it. `known`: the acquire has its answer, so "not held" is the truth.
    Leave { known: bool },
    /// The keeper releases it from this moment on.
    TakeOver { known: bool, from: Moment },
    /// The keeper has sent a release.
    Sent,
    /// The answer to that, or whether it may have been carried out if there is none. The number from 0 to 1
    /// spreads the pauses.
    Freed(Result<Released, bool>, f64),
    /// The server has confirmed the release of whoever had it.
    Released,
    /// It holds nothing, since the server has said so, or another claim has the lock of the same owner.
    HoldsNothing,
    /// Whoever had it is gone.
    Dropped,
    /// Its client is closed: what was denied, or may only have a late copy, is not released again.
    Closed,
}

/// What the keeper is to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing until this moment; then send [`Act::Tick`].
    Sleep(Moment),
    /// Nobody drives it: send [`Act::GiveUp`], and pass its turn on.
    GiveUp,
    /// Send a release, and report it by [`Act::Sent`].
    Release,
    /// Nothing more.
    Over,
    /// The same, although the server has never answered: what it holds ends with its lease.
    Unanswered,
}

impl Next {
    /// When the keeper is to look at it again.
    pub(crate) fn due(self, now: Moment) -> Moment {
        match self {
            Self::Sleep(until) => until,
            Self::GiveUp | Self::Release => now,
            Self::Over | Self::Unanswered => Moment::NEVER,
        }
    }
}

/// The clock. It is read only where the time matters.
pub(crate) type Now<'a> = &'a dyn Fn() -> Moment;

/// A release that the keeper repeats.
#[derive(Clone, Copy, Debug)]
struct Repeat {
    from: Moment,
    next: Moment,
    until: Moment,
    pause: Duration,
    /// One is under way.
    sent: bool,
    /// The one under way was sent before the claim's owner let go of it: its answer proves nothing.
    early: bool,
}

impl Repeat {
    fn new(from: Moment, next: Moment, until: Moment, pause: Duration) -> Self {
        Self { from, next, until, pause, sent: false, early: false }
    }
}

/// The life of one claim.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Life {
    stage: Stage,
    ttl: Duration,
    /// When it was made, or when its turn came in this process.
    pub(crate) began: Moment,
    /// Whether it can have a place in a queue.
    waits: bool,
    /// The server may have a place in a queue for it.
    pub(crate) queued: bool,
    /// It has had to wait.
    pub(crate) waited: bool,
    /// The server has answered since it was asked.
    pub(crate) answered: bool,
    /// The next task of this process waits for its lock.
    pub(crate) wanted: bool,
    pub(crate) cancelled: bool,
    pub(crate) abandoned: bool,
    /// Until when a late copy of a request may take the lock.
    doubt: Option<Moment>,
    /// Whoever made it waits for the answer to its acquire.
    acquiring: bool,
    pub(crate) holds: Holds,
    /// Since when a task acts for it without a caller, and whether it has begun.
    task: Option<(Moment, bool)>,
    /// "Not held" is the truth.
    known: bool,
    keeper: Option<Repeat>,
    /// How often the server has said "not held" to the keeper while that was not known to be the truth.
    denials: u32,
    /// A release of the keeper, whose answer was lost, may have been carried out.
    in_doubt: bool,
    /// What the server has answered to the keeper.
    freed: Option<Released>,
}

impl Life {
    pub(crate) fn new(now: Moment, ttl: Duration, waits: bool) -> Self {
        Self {
            stage: Stage::Begun,
            ttl,
            began: now,
            waits,
            queued: false,
            waited: false,
            answered: false,
            wanted: false,
            cancelled: false,
            abandoned: false,
            doubt: None,
            acquiring: false,
            holds: Holds::default(),
            task: None,
            known: false,
            keeper: None,
            denials: 0,
            in_doubt: false,
            freed: None,
        }
    }

    /// The life of the claim that replaces it, with a late copy of its requests.
    pub(crate) fn successor(&self) -> Self {
        Self { doubt: self.doubt, ..Self::new(self.began, self.ttl, false) }
    }

    pub(crate) fn set_ttl(&mut self, ttl: Duration) {
        self.ttl = ttl;
    }

    /// A request that takes the lock may have a late copy.
    pub(crate) fn note_in_doubt(&mut self, now: Moment) {
        self.doubt = self.doubt.max(Some(now.after(self.ttl).after(COPY_MARGIN)));
    }

    pub(crate) fn in_doubt_until(&self) -> Option<Moment> {
        self.doubt
    }

    /// Whether its place is kept for others. Before the first answer there is no place yet, and a claim that does
    /// not wait has none.
    pub(crate) fn keeps_place(&self) -> bool {
        self.waits && self.answered && self.wanted
    }

    pub(crate) fn has_no_caller(&self) -> bool {
        self.cancelled || self.abandoned
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled || (self.abandoned && !self.keeps_place())
    }

    /// It is the claim of an acquire, until that has its answer.
    pub(crate) fn begin_acquire(&mut self) {
        self.acquiring = true;
    }

    pub(crate) fn is_acquiring(&self) -> bool {
        self.acquiring
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.stage == Stage::Asked
    }

    pub(crate) fn is_held(&self) -> bool {
        self.stage == Stage::Held
    }

    /// Whether its lease is renewed.
    pub(crate) fn is_renewed(&self) -> bool {
        self.is_held() && self.holds.is_alive()
    }

    /// Whether it is being released: by a task without a caller, or by the keeper.
    pub(crate) fn is_leaving(&self, now: Now<'_>) -> bool {
        let is_due = |keeper: Repeat| self.stage == Stage::Leaving && keeper.from <= now();
        self.task.is_some() || self.keeper.is_some_and(is_due)
    }

    /// Whether the server has said several times that it holds nothing.
    pub(crate) fn is_denied(&self) -> bool {
        self.denials >= DENIALS
    }

    /// Whether it was released, and a late copy of a request may still take the lock.
    pub(crate) fn is_watched(&self) -> bool {
        self.stage == Stage::Over && self.keeper.is_some()
    }

    /// Whether the keeper releases it, or has done so.
    pub(crate) fn is_taken(&self) -> bool {
        self.keeper.is_some() || self.freed.is_some()
    }

    /// What the server has answered to the keeper. `None`: that is still to come.
    pub(crate) fn freed(&self) -> Option<Released> {
        let ended = self.keeper.is_none().then_some(Released::NotHeld);
        self.freed.or(ended)
    }

    /// Takes an event of the present time, and says what the keeper is to do next.
    pub(crate) fn on(&mut self, now: Now<'_>, act: Act) -> Next {
        match act {
            Act::Tick => (),
            Act::Asked => {
                if self.stage == Stage::Begun {
                    self.stage = Stage::Asked;
                }
            }
            Act::Granted | Act::Passed => {
                // Of an acquire, the hold that begins now is the end.
                self.acquiring &= matches!(act, Act::Granted);
                if matches!(self.stage, Stage::Begun | Stage::Asked) {
                    (self.stage, self.task) = (Stage::Held, None);
                }
            }
            Act::Hold(lease) => {
                if !matches!(self.stage, Stage::Leaving | Stage::Over) {
                    (self.stage, self.task, self.acquiring) = (Stage::Held, None, false);
                    self.holds.begin(lease);
                }
            }
            Act::Unattended { begun } => {
                if self.stage != Stage::Over {
                    self.task = Some((now(), begun));
                }
            }
            Act::GiveUp => {
                let is_granted = self.stage == Stage::Held && self.task.is_none();
                if self.stage == Stage::Begun {
                    // There is nothing to release. If it is sent later, its acquire is still noted.
                    self.end();
                } else if !is_granted && self.stage != Stage::Over {
                    let now = now();
                    self.take_over(now, now);
                }
            }
            Act::Leave { known } => self.leave(known),
            Act::Depart { known } => {
                self.leave(known);
                (self.acquiring, self.task) = (false, Some((now(), false)));
            }
            Act::TakeOver { known, from } => {
                self.leave(known);
                (self.acquiring, self.task) = (false, None);
                self.take_over(now(), from);
            }
            Act::Sent => {
                if let Some(keeper) = &mut self.keeper {
                    keeper.sent = true;
                }
            }
            Act::Freed(answer, spread) => self.freed_by_keeper(now(), answer, spread),
            Act::Released => {
                self.acquiring = false;
                self.over(now);
            }
            Act::HoldsNothing => {
                self.acquiring = false;
                self.end();
            }
            Act::Dropped => match self.stage {
                Stage::Begun => self.end(),
                // The keeper has released it, and a request of the acquire may still be on its way.
                Stage::Over if !self.acquiring => (),
                _ => return self.on(now, Act::TakeOver { known: false, from: now() }),
            },
            Act::Closed => {
                if self.keeper.is_some() && (self.stage == Stage::Over || self.is_denied()) {
                    self.end();
                }
            }
        }
        self.next(now)
    }

    fn leave(&mut self, known: bool) {
        // What the server said to the keeper before was about a claim that may not have been granted yet.
        if self.stage == Stage::Over || (known && !self.known) {
            (self.freed, self.denials) = (None, 0);
            self.keeper = self.keeper.filter(|it| it.sent).map(|it| Repeat { early: true, ..it });
        }
        self.stage = Stage::Leaving;
        self.known |= known;
    }

    /// The keeper begins to release it, unless it does so already.
    fn take_over(&mut self, now: Moment, from: Moment) {
        self.stage = Stage::Leaving;
        let until = from.max(now).after(self.ttl).after(MARGIN);
        let keeper = self.keeper.get_or_insert(Repeat::new(from, from, until, PAUSES.0));
        keeper.until = keeper.until.max(until);
    }

    fn freed_by_keeper(&mut self, now: Moment, answer: Result<Released, bool>, spread: f64) {
        let longest = longest_pause(self.ttl);
        let Some(keeper) = &mut self.keeper else { return };
        keeper.sent = false;
        keeper.next = now.after(keeper.pause.mul_f64(0.5 + spread / 2.0));
        keeper.pause = (keeper.pause * 2).min(longest);
        if std::mem::take(&mut keeper.early) {
            (keeper.next, keeper.until) = (now, now.after(self.ttl).after(MARGIN));
            return;
        }
        if self.stage == Stage::Over {
            return;
        }
        match answer {
            Ok(Released::NotHeld) if !self.known => self.denials += 1,
            Ok(answer) => {
                let is_found = answer != Released::NotHeld;
                self.freed =
                    Some(if is_found { answer } else { Released::from_answer(false, self.in_doubt) });
                self.over(&|| now);
            }
            Err(in_doubt) => self.in_doubt |= in_doubt,
        }
    }

    /// It was released. A request that was repeated on a new connection may still arrive from the old one, and
    /// takes the lock though no guard holds it. So it is released again, until the lease of such a copy has ended.
    fn over(&mut self, now: Now<'_>) {
        self.end();
        let Some(until) = self.doubt else { return };
        let (now, pause) = (now(), PAUSES.1);
        self.keeper = (until > now).then(|| Repeat::new(now, now.after(pause), until, pause));
    }

    /// Nobody releases it any more.
    fn end(&mut self) {
        (self.stage, self.keeper, self.task) = (Stage::Over, None, None);
    }

    fn next(&mut self, now: Now<'_>) -> Next {
        let Some(keeper) = self.keeper else {
            let Some((since, begun)) = self.task else {
                return if self.stage == Stage::Over { Next::Over } else { Next::Sleep(Moment::NEVER) };
            };
            let (now, late) = (now(), since.after(if begun { DONE } else { BEGUN }));
            return match now >= late {
                // A claim without a caller may go on for other tasks.
                true if begun && self.keeps_place() => Next::Sleep(now.after(BEGUN)),
                true => Next::GiveUp,
                false => Next::Sleep(late),
            };
        };
        if keeper.sent {
            return Next::Sleep(Moment::NEVER);
        }
        let now = now();
        if now >= keeper.until {
            let is_answered = self.stage == Stage::Over || self.denials > 0;
            self.end();
            if is_answered { Next::Over } else { Next::Unanswered }
        } else if now >= keeper.next {
            Next::Release
        } else {
            Next::Sleep(keeper.next.min(keeper.until))
        }
    }
}

/// How long to pause between two tries of a release: others may wait for the lock.
fn longest_pause(ttl: Duration) -> Duration {
    (ttl / 8).clamp(Duration::from_secs(2), Duration::from_secs(10))
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
