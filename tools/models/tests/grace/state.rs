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
/// How many tokens the clock passes in a tick. There are not as many grants.
const TOKENS: i16 = 8;
/// How far a rise of the bound of tokens is ahead of what needs it. No clock and no token gets so far.
const AHEAD: i16 = 20 * TOKENS;

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
    /// A claim that finds its own row of before a crash keeps the token.
    KeepsOldToken,
    /// A client whose grants wait for the disk does not look at the mark.
    DurableGrantsWithoutMark,
    /// A grant is lazy although the tables do not say that there are such grants.
    LazyUnsaid,
    /// Whoever finds no mark makes an open one, although a crash may have lost a grant.
    OpensAnyway,
    /// The open mark that is made with the first lazy grant has the bound as its floor, as one that is closed.
    FloorsOpenMarks,
    /// Grants are lazy as soon as the tables say so.
    LazyAtOnce,
    /// That the tables say so does not wait for the disk.
    SaidLazily,
    /// A renewal makes a record again that a crash cannot have lost.
    ReclaimsAboveFloor,
}

/// The row of the lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Row {
    /// The last token. It is unique, so it stands for the holder as well.
    token: i16,
    /// The end of the lease by the server's clock, if the lock is held.
    ends: Option<i8>,
    /// Who had the last grant.
    owner: usize,
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
    floor: i16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Hold {
    pub(crate) token: i16,
    /// The end of its validity in real time.
    pub(crate) until: u8,
    /// Whether the grant, or its last renewal, did not wait for the disk.
    is_lazy: bool,
}

/// What a replica has: all that was on the disk at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Replica {
    row: Row,
    bound: i16,
    lazy_since: Option<i8>,
    at: u8,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Process {
    /// Its last hold. It may have ended.
    pub(crate) hold: Option<Hold>,
    pub(crate) claims: u8,
    pub(crate) renewals: u8,
    /// Whether the answer to its last claim was lost.
    asks_again: bool,
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
    token: i16,
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
    bound: i16,
    replica: Option<Replica>,
    pub(crate) processes: [Process; PROCESSES],
    pub(crate) messages: BTreeSet<RenewalRequest>,
    pub(crate) raises: BTreeSet<RaiseRequest>,
    pub(crate) crashes: u8,
    /// Since when there may be lazy grants, in real time.
    pub(crate) lazy_since: Option<i8>,
    /// The same on the disk.
    pub(crate) lazy_on_disk: Option<i8>,
    /// Whether the clock was set right, or may not be any more.
    pub(crate) is_clock_settled: bool,
    highest: i16,
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
            replica: None,
            processes: Default::default(),
            messages: BTreeSet::new(),
            raises: BTreeSet::new(),
            crashes: 0,
            lazy_since: Some(-signed(TTL)),
            lazy_on_disk: Some(-signed(TTL)),
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
            self.sync();
            self.replica = None;
        }
        self.replica = self.replica.filter(|replica| self.now < replica.at + TTL);
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

    /// All changes come to the disk.
    pub(crate) fn sync(&mut self) {
        (self.on_disk, self.lazy_on_disk) = (self.row, self.lazy_since);
    }

    fn may_grant(&self, is_durable: bool, twist: Option<Twist>) -> bool {
        match (self.mark, twist) {
            _ if self.lazy_since.is_none() => true,
            (_, Some(Twist::DurableGrantsWithoutMark)) if is_durable => true,
            (None, _) => twist == Some(Twist::GrantsWithoutMark),
            (Some(mark), _) => mark.is_open,
        }
    }

    /// Whether there can have been lazy grants.
    fn has_lazy(&self) -> bool {
        self.lazy_since.is_some_and(|since| since + signed(TTL) <= signed(self.now))
    }

    /// A commit that waits for the disk takes all before it along. Returns whether this one does not wait.
    fn commit(&mut self, is_durable: bool, twist: Option<Twist>) -> bool {
        let is_lazy = match (self.lazy_since, twist) {
            _ if is_durable => false,
            (Some(_), Some(Twist::LazyAtOnce)) | (None, Some(Twist::LazyUnsaid)) => true,
            _ => self.has_lazy(),
        };
        if !is_lazy {
            self.sync();
        }
        is_lazy
    }

    /// The replica receives all that is on the disk.
    pub(crate) fn follow(&mut self) {
        let (row, bound, lazy_since, at) = (self.on_disk, self.bound, self.lazy_on_disk, self.now);
        self.replica = Some(Replica { row, bound, lazy_since, at });
    }

    /// Whether there is one that can take the place of the server: it lags by less than the longest lease.
    pub(crate) fn can_fail_over(&self) -> bool {
        self.replica.is_some()
    }

    /// The replica takes the place of the server, which takes a while, and gets a replica itself.
    pub(crate) fn fail_over(&mut self, reserves: bool) {
        let Some(replica) = self.replica else { return };
        self.crashes += 1;
        self.now += 1;
        (self.row, self.bound, self.lazy_since) = (replica.row, replica.bound, replica.lazy_since);
        self.sync();
        self.mark = None;
        self.follow();
        if self.lazy_since.is_some() {
            return;
        }
        // Where all grants wait for one disk, a failover can lose them. Two hold the lock then, with tokens that
        // rise, unless one was ahead of the clock.
        if reserves {
            self.highest = self.row.token;
        }
        let (row, offset) = (self.row, self.offset);
        let is_known = |hold: &Hold| {
            hold.token == row.token && row.ends.is_some_and(|ends| ends - offset >= signed(hold.until))
        };
        for process in &mut self.processes {
            process.hold = process.hold.filter(|hold| hold.is_lazy || is_known(hold));
        }
    }

    /// The server has crashed, and starts, with another clock if so.
    pub(crate) fn crash(&mut self, clock_back: bool) {
        self.crashes += 1;
        (self.row, self.lazy_since) = (self.on_disk, self.lazy_on_disk);
        self.mark = None;
        if clock_back {
            self.offset -= 4;
            self.is_clock_settled = false;
        }
    }

    pub(crate) fn set_clock_right(&mut self) {
        self.offset += 4;
        self.is_clock_settled = true;
    }

    /// One request and its answer, which may be lost: then the process asks again with the same claim. A later answer only
    /// leaves less of the lease.
    pub(crate) fn claim(
        &mut self,
        who: usize,
        is_lost: bool,
        is_durable: bool,
        reserved: i16,
        twist: Option<Twist>,
    ) {
        self.processes[who].claims += 1;
        if !is_durable && self.lazy_since.is_none() && twist != Some(Twist::LazyUnsaid) {
            self.begin_lazy(twist);
        }
        let is_own = self.processes[who].asks_again && self.row.owner == who && self.row.ends.is_some();
        let is_free = self.row.ends.is_none_or(|ends| ends <= self.clock());
        if !(is_free || is_own) || !self.may_grant(is_durable, twist) {
            return;
        }
        let floor = match (self.mark, twist) {
            (_, Some(Twist::NoFloor)) | (None, _) => 0,
            (Some(mark), _) => mark.floor,
        };
        let mut token = self.row.token.max(floor).max(i16::from(self.clock()) * TOKENS) + 1 + reserved;
        if is_own && (self.row.token > floor || twist == Some(Twist::KeepsOldToken)) {
            token = self.row.token;
        }
        // The bound is on the disk first.
        if token > self.bound && self.lazy_since.is_some() {
            self.raise();
        }
        self.lease(token, who);
        let is_lazy = self.commit(is_durable, twist);
        self.fell |= token < self.highest || token == self.highest && !is_own;
        self.highest = self.highest.max(token);
        self.processes[who].asks_again = is_lost;
        if !is_lost {
            self.processes[who].hold = Some(Hold { token, until: self.now + TTL, is_lazy });
        }
    }

    fn raise(&mut self) {
        self.bound += AHEAD;
    }

    /// The tables say that there may be lazy grants.
    fn begin_lazy(&mut self, twist: Option<Twist>) {
        self.lazy_since = Some(signed(self.now));
        if twist != Some(Twist::SaidLazily) {
            self.sync();
        }
        self.make_mark(true, if twist == Some(Twist::FloorsOpenMarks) { self.bound } else { 0 });
        self.raise();
    }

    fn make_mark(&mut self, is_open: bool, floor: i16) {
        self.marks += 1;
        let opens = self.clock() + signed(TTL);
        self.mark = Some(MarkRow { id: self.marks, opens, is_open, counted: 0, floor });
    }

    /// From now on a step of the clock would end a lease, which no lock with leases survives.
    fn lease(&mut self, token: i16, owner: usize) {
        self.row = Row { token, ends: Some(self.clock() + signed(TTL)), owner };
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
    pub(crate) fn renew(&mut self, request: RenewalRequest, is_durable: bool, twist: Option<Twist>) {
        let RenewalRequest { who, token, sent } = request;
        let now = self.now;
        let is_own = self.row.token == token && self.row.ends.is_some();
        let reclaims = match twist {
            Some(Twist::NoReclaim) => false,
            Some(Twist::ReclaimsFromAnybody) => true,
            _ => {
                let is_known = token > self.mark.map_or(self.bound, |mark| mark.floor);
                let may_be_lost = !is_known || twist == Some(Twist::ReclaimsAboveFloor);
                self.row.token < token && self.has_lazy() && may_be_lost
            }
        };
        let extends = is_own || reclaims;
        let mut is_lazy = false;
        if extends {
            self.lease(token, who);
            is_lazy = self.commit(is_durable, twist);
        }
        // A lease that has ended does not come back.
        if let Some(hold) = &mut self.processes[who].hold
            && hold.token == token
            && (hold.until > now || twist == Some(Twist::RenewsLate))
        {
            if extends {
                hold.until = hold.until.max(sent + TTL);
                hold.is_lazy = is_lazy;
            } else if self.lazy_since.is_none() || self.has_lazy() {
                self.lost = true;
            }
            // Else a failover has lost a grant that waited for one disk, and nobody is granted the lock within the lease.
        }
    }

    /// The process looks at the mark, and does what is to be done.
    pub(crate) fn look(&mut self, who: usize, by_clock: bool, twist: Option<Twist>) {
        // Nobody needs a mark.
        if self.lazy_since.is_none() {
            return;
        }
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
                self.make_mark(twist == Some(Twist::OpensAnyway), self.bound);
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
