//! A server whose grants come to the disk later, its clock, two processes, and the messages between them.

use std::collections::BTreeSet;
use std::time::Duration;

use lockwell_core::backend::{Mark, MarkAdvice, mark_advice};

/// A step of time. Nothing happens in between, so margins, which are shorter, do not show.
const TICK: Duration = Duration::from_secs(10);
/// How long a lease lasts, in ticks.
const TTL: u8 = 2;
/// The grace period. Without a difference of clocks it is no longer than a lease.
const GRACE: Duration = TICK.saturating_mul(TTL as u32);
/// How far a rise of the bound of tokens is ahead of what needs it. No clock and no token gets so far.
const AHEAD: i8 = 20;

pub(crate) const PROCESSES: usize = 2;

/// A rule that looks right and is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Twist {
    /// A server without a mark grants.
    GrantsWithoutMark,
    /// The mark opens when the server's clock has passed it.
    ServersClockAlone,
    /// A client adds the time that it has seen to whatever count there is.
    AddsUp,
    /// A client sets the count of whatever mark there is.
    RaisesBlindly,
    /// Tokens go on after the last one in the table.
    NoFloor,
    /// A process whose lease has ended renews it, and holds the lock again.
    RenewsLate,
    /// A holder whose grant is not in the table is told that it has lost.
    NoReclaim,
    /// A renewal makes the record again whatever is in the table, not only that of a lower token.
    ReclaimsFromAnybody,
    /// Whoever makes a mark leaves the bound of tokens as it is, and the first grant raises it.
    RaisesLate,
}

/// The row of the lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Row {
    /// The last token. It is unique, so it stands for the holder as well.
    token: i8,
    /// The end of the lease by the server's clock, if the lock is held.
    ends: Option<i8>,
}

/// The mark in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct MarkRow {
    id: u8,
    /// By the server's clock.
    opens: i8,
    is_open: bool,
    /// In ticks.
    counted: u8,
    floor: i8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Hold {
    pub(crate) token: i8,
    /// The end of its validity in real time.
    pub(crate) until: u8,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Process {
    /// Its last hold. It may have ended.
    pub(crate) hold: Option<Hold>,
    pub(crate) claims: u8,
    pub(crate) renewals: u8,
    /// The mark that it has seen, the count, and since when.
    seen: Option<(u8, u8, u8)>,
}

impl Process {
    pub(crate) fn counts(&self) -> bool {
        self.seen.is_some()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RenewalRequest {
    pub(crate) who: usize,
    token: i8,
    sent: u8,
}

/// A request to replace the count of a mark. It arrives at any time, and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RaiseRequest {
    id: u8,
    from: u8,
    to: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// Real time, which is what processes measure.
    pub(crate) now: u8,
    /// The server's clock is ahead of it by so much.
    offset: i8,
    pub(crate) row: Row,
    /// The row that a crash leaves.
    pub(crate) on_disk: Row,
    mark: Option<MarkRow>,
    marks: u8,
    /// On the disk: no token of a grant is higher.
    bound: i8,
    /// The bound before, and when it was raised. For less than a grace period a replica may lack the rise.
    bound_before: i8,
    raised: u8,
    pub(crate) processes: [Process; PROCESSES],
    pub(crate) messages: BTreeSet<RenewalRequest>,
    pub(crate) raises: BTreeSet<RaiseRequest>,
    pub(crate) crashes: u8,
    /// Whether the clock was set right, or may not be any more.
    pub(crate) is_clock_settled: bool,
    highest: i8,
    pub(crate) fell: bool,
    /// A holder was told that it has lost, within its lease.
    pub(crate) lost: bool,
}

impl State {
    pub(crate) fn new() -> Self {
        Self {
            now: 0,
            offset: 0,
            row: Row::default(),
            on_disk: Row::default(),
            mark: Some(MarkRow { id: 0, opens: 0, is_open: true, counted: TTL, floor: 0 }),
            marks: 0,
            bound: AHEAD,
            bound_before: AHEAD,
            raised: 0,
            processes: Default::default(),
            messages: BTreeSet::new(),
            raises: BTreeSet::new(),
            crashes: 0,
            is_clock_settled: true,
            highest: 0,
            fell: false,
            lost: false,
        }
    }

    /// Forgets what makes no difference any more, so that there are fewer states.
    pub(crate) fn settle(&mut self, twist: Option<Twist>, crashes_are_over: bool) {
        for process in &mut self.processes {
            if twist != Some(Twist::RenewsLate) && process.hold.is_some_and(|hold| hold.until <= self.now) {
                process.hold = None;
            }
        }
        if crashes_are_over {
            self.on_disk = self.row;
            (self.bound_before, self.raised) = (self.bound, 0);
        }
        if crashes_are_over && self.mark.is_some_and(|mark| mark.is_open) {
            self.processes.iter_mut().for_each(|one| one.seen = None);
            self.raises.clear();
        }
        // A count rises, and an earlier mark does not come back.
        if !matches!(twist, Some(Twist::AddsUp | Twist::RaisesBlindly)) {
            let mark = self.mark;
            self.raises.retain(|one| mark.is_some_and(|mark| one.id == mark.id && one.from >= mark.counted));
        }
    }

    fn clock(&self) -> i8 {
        signed(self.now) + self.offset
    }

    pub(crate) fn holders(&self) -> usize {
        self.processes.iter().filter(|one| one.hold.is_some_and(|hold| hold.until > self.now)).count()
    }

    fn may_grant(&self, twist: Option<Twist>) -> bool {
        match self.mark {
            None => twist == Some(Twist::GrantsWithoutMark),
            Some(mark) => mark.is_open,
        }
    }

    /// The server has crashed, and starts with another clock. Or a replica takes its place, which has the row
    /// of some time, and not the last rise of the bound.
    pub(crate) fn crash(&mut self, clock_back: bool, replica: bool) {
        self.crashes += 1;
        self.row = self.on_disk;
        self.mark = None;
        if replica && self.now < self.raised + TTL {
            self.bound = self.bound_before;
        }
        if clock_back {
            self.offset -= 4;
            self.is_clock_settled = false;
        }
    }

    pub(crate) fn set_clock_right(&mut self) {
        self.offset += 4;
        self.is_clock_settled = true;
    }

    /// One request and its answer. A later answer only leaves less of the lease.
    pub(crate) fn claim(&mut self, who: usize, twist: Option<Twist>) {
        self.processes[who].claims += 1;
        let is_free = self.row.ends.is_none_or(|ends| ends <= self.clock());
        if !is_free || !self.may_grant(twist) {
            return;
        }
        let floor = match twist {
            Some(Twist::NoFloor) => 0,
            _ => self.mark.map_or(0, |mark| mark.floor),
        };
        let token = self.row.token.max(floor).max(self.clock()) + 1;
        // The bound is on the disk first.
        if token > self.bound {
            self.raise();
        }
        self.lease(token);
        self.fell |= token <= self.highest;
        self.highest = self.highest.max(token);
        self.processes[who].hold = Some(Hold { token, until: self.now + TTL });
    }

    fn raise(&mut self) {
        self.bound_before = self.bound;
        self.bound += AHEAD;
        self.raised = self.now;
    }

    /// From now on a step of the clock would end a lease, which no lock with leases survives.
    fn lease(&mut self, token: i8) {
        self.row = Row { token, ends: Some(self.clock() + signed(TTL)) };
        self.is_clock_settled = true;
    }

    pub(crate) fn ask_to_renew(&mut self, who: usize) {
        let process = &mut self.processes[who];
        process.renewals += 1;
        if let Some(Hold { token, .. }) = process.hold {
            self.messages.insert(RenewalRequest { who, token, sent: self.now });
        }
    }

    pub(crate) fn release(&mut self, who: usize) {
        if let Some(hold) = self.processes[who].hold.take()
            && self.row.token == hold.token
        {
            self.row.ends = None;
        }
    }

    /// The server handles a renewal, and the process its answer.
    pub(crate) fn renew(&mut self, request: RenewalRequest, twist: Option<Twist>) {
        let RenewalRequest { who, token, sent } = request;
        let now = self.now;
        let is_own = self.row.token == token && self.row.ends.is_some();
        let reclaims = match twist {
            Some(Twist::NoReclaim) => false,
            Some(Twist::ReclaimsFromAnybody) => true,
            _ => self.row.token < token,
        };
        let extends = is_own || reclaims;
        if extends {
            self.lease(token);
        }
        // A lease that has ended does not come back.
        if let Some(hold) = &mut self.processes[who].hold
            && hold.token == token
            && (hold.until > now || twist == Some(Twist::RenewsLate))
        {
            if extends {
                hold.until = hold.until.max(sent + TTL);
            } else {
                self.lost = true;
            }
        }
    }

    /// The process looks at the mark, and does what is to be done.
    pub(crate) fn look(&mut self, who: usize, by_clock: bool, twist: Option<Twist>) {
        let clock = self.clock();
        let process = &mut self.processes[who];
        process.seen = self.mark.map(|mark| match process.seen {
            Some((id, counted, since)) if (id, counted) == (mark.id, mark.counted) => (id, counted, since),
            _ => (mark.id, mark.counted, self.now),
        });
        let since = process.seen.map_or(self.now, |(.., since)| since);
        let seen_for = match twist {
            Some(Twist::ServersClockAlone) => GRACE,
            _ => TICK * u32::from(self.now - since),
        };
        let tick = if by_clock { i64::try_from(TICK.as_micros()).expect("short") } else { 0 };
        let mark = self.mark.map(|mark| Mark {
            id: u128::from(mark.id),
            opens_in: i64::from(mark.opens - clock) * tick,
            counted: TICK * u32::from(mark.counted),
            is_open: mark.is_open,
        });
        match mark_advice(mark, seen_for, GRACE) {
            MarkAdvice::Make => {
                self.marks += 1;
                let opens = clock + signed(TTL);
                let floor = self.bound;
                self.mark = Some(MarkRow { id: self.marks, opens, is_open: false, counted: 0, floor });
                if twist != Some(Twist::RaisesLate) {
                    self.raise();
                }
            }
            MarkAdvice::Raise(to) => {
                if let Some((id, from, _)) = process.seen {
                    let to = u8::try_from(to.as_secs() / TICK.as_secs()).expect("a grace period at most");
                    self.raises.insert(RaiseRequest { id, from, to });
                }
            }
            MarkAdvice::Open => {
                if let Some(mark) = &mut self.mark {
                    mark.is_open = true;
                }
            }
            MarkAdvice::Grants | MarkAdvice::Wait(_) => (),
        }
    }

    /// The server handles a request to replace the count.
    pub(crate) fn count(&mut self, request: RaiseRequest, twist: Option<Twist>) {
        let RaiseRequest { id, from, to } = request;
        let Some(mark) = &mut self.mark else { return };
        let is_seen = (mark.id, mark.counted) == (id, from);
        match twist {
            Some(Twist::AddsUp) if mark.id == id => mark.counted = (mark.counted + to - from).min(TTL),
            Some(Twist::RaisesBlindly) => mark.counted = to,
            _ if is_seen => mark.counted = to,
            _ => (),
        }
    }

    /// The process ends, and another begins in its place.
    pub(crate) fn begin_anew(&mut self, who: usize) {
        self.processes[who].seen = None;
    }
}

fn signed(time: u8) -> i8 {
    i8::from_ne_bytes(time.to_ne_bytes())
}
