//! A server, its clock, three processes, and the messages between them.

use std::collections::BTreeSet;
use std::sync::LazyLock;
use std::time::Duration;

use lockwell_core::backend::{Heartbeat, PushedGrant, valid_until};
use lockwell_core::{FencingToken, Moment};

/// A step of time. Nothing happens in between, so the margins of a lease, which are shorter, do not show.
const TICK: Duration = Duration::from_secs(1);
/// How long a lease lasts, a provisional one, and a place in the queue without a heartbeat, in ticks.
const TTL: u8 = 3;
const PROVISIONAL: u8 = 2;
const KEEP: u8 = 3;
/// What the server's clock says at the start.
const CLOCK: u8 = 10;

/// Process 0 holds the lock at the start, the others wait for it.
pub(crate) const PROCESSES: usize = 3;

static START: LazyLock<Moment> = LazyLock::new(Moment::now);

fn moment(tick: u8) -> Moment {
    START.after(TICK * u32::from(tick))
}

/// The first tick at which this moment has come.
fn tick(moment: Moment) -> u8 {
    u8::try_from(moment.since(*START).as_nanos().div_ceil(TICK.as_nanos())).expect("a short time")
}

fn clock_of(clock: u8) -> u64 {
    u64::from(clock) * 1_000_000
}

/// A rule that looks right and is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Twist {
    /// Validity counts from the last heartbeat, answered or not.
    Unanswered,
    /// It counts from the arrival of the message.
    Arrival,
    /// Only the two readings of the clock count, not the length of the lease.
    ClockOnly,
    /// Only the length of the lease counts, not the two readings of the clock.
    LengthOnly,
    /// The last answered heartbeat counts, also if it is not the one that the release saw.
    AnySign,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Message {
    Ask {
        who: usize,
        number: u8,
        sent: u8,
        generation: u8,
    },
    /// Refused: the answer to a heartbeat.
    Waits {
        who: usize,
        number: u8,
        sent: u8,
        clock: u8,
        generation: u8,
    },
    Granted {
        who: usize,
        sent: u8,
        token: u8,
    },
    Release {
        who: usize,
    },
    /// `seen`: the number of the last heartbeat that the server had when it granted.
    Push {
        who: usize,
        token: u8,
        ends: u8,
        seen: u8,
        generation: u8,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Waits,
    /// The grant is valid until this tick. `pushed`: a release made it.
    Holds {
        until: u8,
        pushed: bool,
    },
    Done,
    Crashed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Process {
    pub(crate) phase: Phase,
    /// The answered heartbeats: their numbers, when they were sent, the clock in the answer, the connection.
    signs: Vec<(u8, u8, u8, u8)>,
    /// When it last sent one.
    sent: Option<u8>,
    pub(crate) generation: u8,
    pub(crate) asked: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Lock {
    who: usize,
    token: u8,
    /// By the server's clock.
    ends: u8,
}

/// The place of a waiter in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Waiter {
    who: usize,
    /// Until when it is kept without a heartbeat, by the server's clock.
    until: u8,
    /// The number of the last one.
    seen: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) now: u8,
    pub(crate) clock: u8,
    lock: Option<Lock>,
    queue: Vec<Waiter>,
    /// A release that has read the clock and has not committed.
    pub(crate) committing: Option<(usize, u8)>,
    pub(crate) messages: BTreeSet<Message>,
    pub(crate) processes: [Process; PROCESSES],
    pub(crate) crashes: u8,
    pub(crate) steps: u8,
    pub(crate) reconnects: u8,
    counter: u8,
    /// The highest token of a valid grant, and whose it was.
    highest: (u8, usize),
    /// A grant was taken as valid that is older than another.
    pub(crate) fell: bool,
}

impl State {
    pub(crate) fn new(released: bool) -> Self {
        let process = |phase| Process { phase, signs: Vec::new(), sent: None, generation: 0, asked: 0 };
        let first = process(Phase::Holds {
            until: tick(valid_until(moment(0), TICK * u32::from(TTL))),
            pushed: false,
        });
        let mut state = Self {
            now: 0,
            clock: CLOCK,
            lock: Some(Lock { who: 0, token: 1, ends: CLOCK + TTL }),
            queue: Vec::new(),
            committing: None,
            messages: BTreeSet::new(),
            processes: [first, process(Phase::Waits), process(Phase::Waits)],
            crashes: 0,
            steps: 0,
            reconnects: 0,
            counter: 1,
            highest: (1, 0),
            fell: false,
        };
        if released {
            state.leave(0);
        }
        state
    }

    pub(crate) fn holders(&self) -> usize {
        let is_valid = |one: &&Process| matches!(one.phase, Phase::Holds { until, .. } if self.now < until);
        self.processes.iter().filter(is_valid).count()
    }

    /// Forgets what makes no difference any more: fewer states.
    pub(crate) fn settle(&mut self) {
        for process in &mut self.processes {
            if matches!(process.phase, Phase::Done | Phase::Crashed) {
                let phase = process.phase;
                *process = Process { phase, signs: Vec::new(), sent: None, generation: 0, asked: 0 };
            }
        }
        let (now, processes) = (self.now, &self.processes);
        self.messages.retain(|message| match *message {
            Message::Ask { .. } | Message::Release { .. } => true,
            Message::Waits { who, number, .. } => {
                let Process { phase, signs, .. } = &processes[who];
                *phase == Phase::Waits && signs.iter().all(|(known, ..)| *known != number)
            }
            Message::Granted { who, sent, .. } => {
                now < sent + TTL && matches!(processes[who].phase, Phase::Waits | Phase::Holds { .. })
            }
            Message::Push { who, .. } => processes[who].phase == Phase::Waits,
        });
    }

    pub(crate) fn tick(&mut self) {
        self.now += 1;
        self.clock += 1;
    }

    /// Sets the server's clock. Forward, that ends running leases early, a weakness of every lease that is
    /// told elsewhere: here they are spared, to see what becomes of the next.
    pub(crate) fn set_clock(&mut self, forward: bool) {
        self.steps += 1;
        if forward {
            self.clock += 2;
            if let Some(lock) = &mut self.lock {
                lock.ends += 2;
            }
        } else {
            self.clock -= 2;
        }
    }

    /// A heartbeat of a waiter, or a renewal.
    pub(crate) fn ask(&mut self, who: usize) {
        let sent = self.now;
        let process = &mut self.processes[who];
        process.asked += 1;
        process.sent = Some(sent);
        self.messages.insert(Message::Ask {
            who,
            number: process.asked,
            sent,
            generation: process.generation,
        });
    }

    /// Releases the lock, or leaves the queue.
    pub(crate) fn leave(&mut self, who: usize) {
        self.processes[who].phase = Phase::Done;
        self.messages.insert(Message::Release { who });
    }

    fn holder(&self) -> Option<Lock> {
        self.lock.filter(|lock| self.clock < lock.ends)
    }

    /// The first in the queue who shows heartbeats. Those before it lose their places.
    fn first(&mut self) -> Option<Waiter> {
        let clock = self.clock;
        // One that lasts longer than any can is from before the clock was set back.
        let lives = |until: u8| clock < until && until <= clock + KEEP;
        while self.queue.first().is_some_and(|waiter| !lives(waiter.until)) {
            self.queue.remove(0);
        }
        self.queue.first().copied()
    }

    /// The server carries a claim out; `None` while a release has its row. The second part: of the same
    /// claim.
    pub(crate) fn answer(&mut self, who: usize, number: u8, sent: u8, generation: u8) -> Option<Message> {
        let clock = self.clock;
        let waits = Message::Waits { who, number, sent, clock, generation };
        let waiter = Waiter { who, until: clock + KEEP, seen: number };
        let keeps_place = |state: &mut Self| match state.queue.iter_mut().find(|one| one.who == who) {
            Some(old) => *old = waiter,
            None => state.queue.push(waiter),
        };
        match self.holder() {
            Some(lock) if lock.who == who => {
                if self.committing.is_some() {
                    return None;
                }
                self.lock = Some(Lock { ends: clock + TTL, ..lock });
                return Some(Message::Granted { who, sent, token: lock.token });
            }
            Some(_) => keeps_place(self),
            None if self.committing.is_some() => return None,
            None => match self.first() {
                Some(first) if first.who != who => keeps_place(self),
                _ => {
                    self.queue.retain(|waiter| waiter.who != who);
                    let token = self.set_lock(who, clock + TTL);
                    return Some(Message::Granted { who, sent, token });
                }
            },
        }
        Some(waits)
    }

    fn set_lock(&mut self, who: usize, ends: u8) -> u8 {
        self.counter += 1;
        self.lock = Some(Lock { who, token: self.counter, ends });
        self.counter
    }

    /// A release: frees what the process has, and grants to the first in the queue. `read` is the clock as
    /// the release has read it.
    pub(crate) fn release(&mut self, who: usize, read: u8) {
        self.queue.retain(|waiter| waiter.who != who);
        if self.lock.is_some_and(|lock| lock.who == who) {
            self.lock = None;
        } else if self.holder().is_some() {
            return;
        }
        let Some(next) = self.first() else { return };
        self.queue.remove(0);
        let ends = read + PROVISIONAL;
        let Waiter { who, seen, .. } = next;
        let token = self.set_lock(who, ends);
        let generation = self.processes[who].generation;
        self.messages.insert(Message::Push { who, token, ends, seen, generation });
    }

    /// A message reaches a process.
    pub(crate) fn deliver(&mut self, message: Message, twist: Option<Twist>) {
        match message {
            Message::Waits { who, number, sent, clock, generation } => {
                let signs = &mut self.processes[who].signs;
                signs.push((number, sent, clock, generation));
                // In one order, whatever the order in which they came.
                signs.sort_unstable();
            }
            Message::Granted { who, sent, token } => {
                self.begin_validity(who, token, valid_until(moment(sent), TICK * u32::from(TTL)), false);
            }
            Message::Push { who, token, ends, seen, generation }
                if self.processes[who].phase == Phase::Waits =>
            {
                let lease = TICK * u32::from(PROVISIONAL);
                let pushed =
                    PushedGrant::new(FencingToken::new(token.into()), lease, clock_of(ends), seen.into())
                        .over(generation.into());
                if let Some(deadline) = self.deadline(who, pushed, twist) {
                    self.begin_validity(who, token, deadline, true);
                }
            }
            _ => (),
        }
    }

    fn deadline(&self, who: usize, pushed: PushedGrant, twist: Option<Twist>) -> Option<Moment> {
        let Process { signs, sent, .. } = &self.processes[who];
        let now = moment(self.now);
        let counted = |from| Some(valid_until(from, pushed.lease())).filter(|end| now < *end);
        let named = signs.iter().find(|(number, ..)| u64::from(*number) == pushed.seen());
        let sign = named.or(signs.last()).map(|&(number, sent, clock, generation)| {
            Heartbeat::new(number.into(), moment(sent), clock_of(clock)).over(generation.into())
        });
        let like = |sign: Heartbeat, number, clock| {
            Heartbeat::new(number, sign.sent(), clock).over(sign.generation())
        };
        let sign = match (twist, sign) {
            (Some(Twist::Unanswered), _) => return counted(moment((*sent)?)),
            (Some(Twist::Arrival), _) => return counted(now),
            (Some(Twist::AnySign), Some(sign)) => Some(like(sign, pushed.seen(), sign.clock())),
            (Some(Twist::ClockOnly), Some(sign)) => {
                let left = Duration::from_micros(pushed.ends().checked_sub(sign.clock())?);
                let seen = sign.number() == pushed.seen() && sign.generation() == pushed.generation();
                return Some(valid_until(sign.sent(), left)).filter(|end| seen && now < *end);
            }
            (Some(Twist::LengthOnly), Some(sign)) => {
                Some(like(sign, sign.number(), pushed.ends() - clock_of(PROVISIONAL)))
            }
            _ => sign,
        };
        pushed.deadline(sign.as_ref(), now)
    }

    fn begin_validity(&mut self, who: usize, token: u8, deadline: Moment, pushed: bool) {
        let until = tick(deadline);
        let before = match self.processes[who].phase {
            Phase::Waits => 0,
            // A renewal counts only within the validity.
            Phase::Holds { until, .. } if self.now < until => until,
            _ => return,
        };
        if self.now >= until {
            return;
        }
        self.fell |= (token, who) != self.highest && token <= self.highest.0;
        self.highest = self.highest.max((token, who));
        self.processes[who].phase = Phase::Holds { until: until.max(before), pushed };
    }
}
