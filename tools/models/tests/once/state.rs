//! A lock, the record of its jobs, and the hosts that run one of them for one key.

use std::num::NonZeroU32;
use std::sync::LazyLock;

use lockwell_core::Moment;
use lockwell_core::suite::{AttemptEnd, KeyState, Once, OnceAct, OnceEnd, OnceEvent};

pub(crate) const HOSTS: usize = 3;
/// How many attempts a key may have.
pub(crate) const LIMIT: u8 = 2;

/// No time passes: the waits end when the search lets them.
static NOW: LazyLock<Moment> = LazyLock::new(Moment::now);

/// A rule that looks right and is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Twist {
    /// A host writes that the key is done, and then works.
    DoneBeforeWork,
    /// A host works without writing that it begins.
    NoBegun,
    /// A host does not remember how many attempts there were when it came.
    WaitersRunFailures,
    /// A host that finds an attempt under way takes it for one that has failed.
    DeathsAreFailures,
    /// A host does not know its own attempt again that has not run.
    CountsTwice,
}

/// What comes of an act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Answered,
    /// The request was carried out, or was not, and there is no answer.
    Silent {
        done: bool,
    },
    NotGranted,
    Succeeds,
    Fails,
    Stops,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Host {
    once: Once,
    act: OnceAct,
    is_dead: bool,
    /// It has written that an attempt begins, perhaps in vain, and this attempt has not begun yet.
    begins: bool,
    /// How many attempts had ended when it came.
    before: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each says what has happened")]
pub(crate) struct State {
    hosts: [Host; HOSTS],
    pub(crate) holder: Option<usize>,
    record: Option<KeyState>,
    /// Who has written that the last attempt begins.
    begun_by: Option<usize>,
    pub(crate) crashes: u8,
    pub(crate) losses: u8,
    pub(crate) silences: u8,
    /// How often the work has begun.
    pub(crate) works: u8,
    pub(crate) has_succeeded: bool,
    /// The work has failed by itself.
    has_failed: bool,
    /// Who waited for the lock has repeated an attempt that had failed meanwhile.
    pub(crate) has_repeated: bool,
    pub(crate) has_crashed_at_work: bool,
}

impl State {
    pub(crate) fn new() -> Self {
        let limit = NonZeroU32::new(LIMIT.into()).expect("not 0");
        let host = || {
            let (once, act) = Once::begin(limit);
            Host { once, act, is_dead: false, begins: false, before: 0 }
        };
        Self {
            hosts: [host(), host(), host()],
            holder: None,
            record: None,
            begun_by: None,
            crashes: 0,
            losses: 0,
            silences: 0,
            works: 0,
            has_succeeded: false,
            has_failed: false,
            has_repeated: false,
            has_crashed_at_work: false,
        }
    }

    /// Whether a host has something to do.
    pub(crate) fn is_there(&self, host: usize) -> bool {
        let Host { act, is_dead, .. } = &self.hosts[host];
        !is_dead && !matches!(act, OnceAct::End(_))
    }

    /// What can come of the act of a host.
    pub(crate) fn outcomes(&self, host: usize, may_be_silent: bool) -> Vec<Outcome> {
        let mut all = match self.hosts[host].act {
            OnceAct::Take(_) if self.holder.is_some() => vec![Outcome::NotGranted],
            OnceAct::Take(_) => vec![Outcome::Answered, Outcome::NotGranted],
            OnceAct::Work(_) if self.holder == Some(host) => {
                vec![Outcome::Succeeds, Outcome::Fails, Outcome::Stops]
            }
            // It notices that it has lost the lock, or it does not.
            OnceAct::Work(_) => vec![Outcome::Answered, Outcome::Succeeds, Outcome::Fails],
            _ => vec![Outcome::Answered],
        };
        match self.hosts[host].act {
            OnceAct::Look | OnceAct::LookUnder | OnceAct::Write(_) if may_be_silent => {
                all.push(Outcome::Silent { done: false });
            }
            _ => (),
        }
        if may_be_silent && matches!(self.hosts[host].act, OnceAct::Write(_)) && self.holder == Some(host) {
            all.push(Outcome::Silent { done: true });
        }
        all
    }

    pub(crate) fn comes(&mut self, host: usize, outcome: Outcome, twist: Option<Twist>) {
        let is_holder = self.holder == Some(host);
        if let OnceAct::Write(KeyState { end: AttemptEnd::Begun, .. }) = self.hosts[host].act {
            self.hosts[host].begins = true;
        }
        let event = match (self.hosts[host].act, outcome) {
            (OnceAct::Look | OnceAct::LookUnder | OnceAct::Write(_), Outcome::Silent { done: false }) => {
                self.silences += 1;
                OnceEvent::NoAnswer
            }
            (OnceAct::Look, _) => {
                self.hosts[host].before = self.record.map_or(0, KeyState::ended);
                let forgets = twist == Some(Twist::WaitersRunFailures);
                let seen = |key: KeyState| if forgets { KeyState { attempts: u32::MAX, ..key } } else { key };
                let nothing = KeyState { attempts: u32::MAX, end: AttemptEnd::Begun };
                let found = self.record.map(seen).or(forgets.then_some(nothing));
                OnceEvent::Found(found)
            }
            (OnceAct::Take(_), Outcome::NotGranted) => OnceEvent::NotGranted,
            (OnceAct::Take(_), _) => {
                self.holder = Some(host);
                OnceEvent::Granted
            }
            (OnceAct::LookUnder | OnceAct::Write(_), _) if !is_holder => OnceEvent::Lost,
            (OnceAct::LookUnder, _) => match (self.record, twist) {
                (Some(key), _)
                    if key.end == AttemptEnd::Begun
                        && self.begun_by == Some(host)
                        && twist != Some(Twist::CountsTwice) =>
                {
                    OnceEvent::FoundOwn
                }
                (Some(key), Some(Twist::DeathsAreFailures)) if key.end == AttemptEnd::Begun => {
                    OnceEvent::Found(Some(KeyState { end: AttemptEnd::Failed, ..key }))
                }
                (record, _) => OnceEvent::Found(record),
            },
            (OnceAct::Write(key), outcome) => {
                self.write(host, key, twist);
                if outcome == Outcome::Answered {
                    OnceEvent::Written
                } else {
                    self.silences += 1;
                    OnceEvent::NoAnswer
                }
            }
            (OnceAct::Work(_), Outcome::Succeeds) => {
                self.has_succeeded = true;
                OnceEvent::Succeeded
            }
            (OnceAct::Work(_), Outcome::Fails) => {
                self.has_failed = true;
                OnceEvent::Failed
            }
            (OnceAct::Work(_), Outcome::Stops) => OnceEvent::Interrupted,
            (OnceAct::Work(_), _) => OnceEvent::Lost,
            (OnceAct::End(_), _) => return,
        };
        let Host { once, act, begins, .. } = &mut self.hosts[host];
        *act = once.on(*NOW, event);
        match *act {
            OnceAct::Work(_) => {
                *begins = false;
                self.works += 1;
            }
            OnceAct::End(_) if self.holder == Some(host) => self.holder = None,
            _ => (),
        }
    }

    fn write(&mut self, host: usize, key: KeyState, twist: Option<Twist>) {
        let begins = key.end == AttemptEnd::Begun;
        let failed = self.record.filter(|before| before.end == AttemptEnd::Failed);
        if begins && failed.is_some_and(|before| before.attempts > self.hosts[host].before) {
            self.has_repeated = true;
        }
        if begins {
            self.begun_by = Some(host);
        }
        self.record = match twist {
            Some(Twist::NoBegun) if begins => return,
            Some(Twist::DoneBeforeWork) if begins => Some(KeyState { end: AttemptEnd::Done, ..key }),
            _ => Some(key),
        };
    }

    /// The lock of a host that has died is free when its lease has ended.
    pub(crate) fn crash(&mut self, host: usize) {
        self.crashes += 1;
        self.has_crashed_at_work |= matches!(self.hosts[host].act, OnceAct::Work(_));
        self.hosts[host].is_dead = true;
        if self.holder == Some(host) {
            self.holder = None;
        }
    }

    pub(crate) fn lose(&mut self) {
        self.losses += 1;
        self.holder = None;
    }

    fn ends(&self) -> impl Iterator<Item = OnceEnd> {
        let alive = self.hosts.iter().filter(|host| !host.is_dead);
        alive.filter_map(|host| if let OnceAct::End(end) = host.act { Some(end) } else { None })
    }

    pub(crate) fn is_success_reported(&self) -> bool {
        self.ends().any(|end| matches!(end, OnceEnd::Ran | OnceEnd::Done))
    }

    pub(crate) fn is_done(&self) -> bool {
        self.record.is_some_and(|key| key.end == AttemptEnd::Done) && self.has_succeeded
    }

    /// How many attempts have run, or may have been counted although their hosts died or lost the lock before. A
    /// host that gives up itself has no such excuse.
    pub(crate) fn attempts(&self) -> u8 {
        let begins = |host: &&Host| host.begins && host.act != OnceAct::End(OnceEnd::Refused);
        self.works + u8::try_from(self.hosts.iter().filter(begins).count()).expect("few hosts")
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.ends().any(|end| end == OnceEnd::GivenUp)
    }

    /// Whoever leaves a job because it has failed, or has had all of its attempts, is right.
    pub(crate) fn have_reasons(&self) -> bool {
        self.ends().all(|end| match end {
            OnceEnd::FailedElsewhere => self.has_failed,
            OnceEnd::GivenUp => self.record.is_some_and(|key| key.attempts >= LIMIT.into()),
            _ => true,
        })
    }
}
