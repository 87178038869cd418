//! The scripts' answers.

use std::num::NonZeroU32;
use std::time::Duration;

use lockwell_core::backend::Notification;
use lockwell_core::{
    Claim, FencingToken, Grant, Holder, LockName, LockStatus, Mode, Moment, Result, WaitingClaim,
};
use redis::Value;

use crate::words::error::of_claim;
use crate::words::error::unexpected;

/// The answer to a claim.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ClaimAnswer {
    Granted(Tokens),
    Busy(Busy),
}

/// The tokens of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tokens {
    pub(crate) last: FencingToken,
    /// How many they are: perhaps fewer than the claim wants.
    pub(crate) many: NonZeroU32,
}

impl Tokens {
    pub(crate) fn one(token: FencingToken) -> Self {
        Self { last: token, many: NonZeroU32::MIN }
    }

    /// The grant that answers a request sent at `sent`.
    pub(crate) fn grant(self, claim: &Claim, sent: Moment) -> Grant {
        Grant::new(claim, self.last, sent).with_tokens(self.many)
    }
}

impl ClaimAnswer {
    /// Another holds it. Nothing more is known.
    pub(crate) const HELD: Self =
        Self::Busy(Busy { left: None, first: false, foreign: false, used: None, place: None });
}

/// The answer to a claim that may leave no trace.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AcquireAnswer {
    Granted(FencingToken),
    /// Another holds it.
    Held,
    /// This script cannot decide; call `claim.lua` instead.
    Unclear,
}

/// The answer to a release by the short script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReleaseAnswer {
    Released,
    NotHeld,
    /// This script cannot decide; call `release_claim.lua` instead.
    Unclear,
}

/// Why a claim has to wait.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Busy {
    /// The time left of the holder's lease, if it ends.
    pub(crate) left: Option<Duration>,
    /// Whether the claim is the first in the queue, or is to ask again soon, since it is not known yet who
    /// is.
    pub(crate) first: bool,
    /// Whether the holder is another program, which notifies nobody of its release.
    pub(crate) foreign: bool,
    /// How the holders use the lock, as far as the script says it.
    pub(crate) used: Option<Mode>,
    /// Where the place in the queue is, if it is new.
    pub(crate) place: Option<u64>,
}

pub(crate) fn acquired(value: &Value) -> Result<AcquireAnswer> {
    match value {
        Value::Int(0) => Ok(AcquireAnswer::Unclear),
        Value::Int(1) => Ok(AcquireAnswer::Held),
        token => Ok(AcquireAnswer::Granted(FencingToken::new(number(Some(token))?))),
    }
}

pub(crate) fn released(value: &Value) -> Result<ReleaseAnswer> {
    match value {
        Value::Int(0) => Ok(ReleaseAnswer::Unclear),
        Value::Int(1) => Ok(ReleaseAnswer::NotHeld),
        Value::Int(2) => Ok(ReleaseAnswer::Released),
        _ => Err(unexpected()),
    }
}

/// The answer to a claim in any mode; of one that waits also the server's clock.
pub(crate) fn claimed(value: &Value) -> Result<(ClaimAnswer, u64)> {
    let parts = parts(value)?;
    match (int(parts.first())?, parts.get(1)) {
        (1, token) => {
            // A node of Redlock does not say how many: it gives as many as are asked for.
            let many = parts.get(2).map(|many| int(Some(many)).map(u32::try_from));
            let many = many.transpose()?.map_or(Ok(1), |many| many.map_err(|_| unexpected()))?;
            let many = NonZeroU32::new(many).ok_or_else(unexpected)?;
            Ok((ClaimAnswer::Granted(Tokens { last: FencingToken::new(number(token)?), many }), 0))
        }
        (0, left) => {
            let busy = Busy {
                left: u64::try_from(int(left)?).ok().map(Duration::from_millis),
                first: int(parts.get(2))? == 1,
                foreign: int(parts.get(3))? == 1,
                used: parts.get(5).and_then(|code| Mode::from_code(int(Some(code)).ok()?)),
                place: parts.get(6).and_then(|place| u64::try_from(int(Some(place)).ok()?).ok()),
            };
            Ok((ClaimAnswer::Busy(busy), u64::try_from(int(parts.get(4))?).map_err(|_| unexpected())?))
        }
        _ => Err(unexpected()),
    }
}

/// The answer to `release_claim.lua`: whether the claim had anything, and the notifications for waiters of
/// our own process.
pub(crate) fn claim_released(value: &Value, generation: u64) -> Result<(bool, Vec<Notification>)> {
    let (freed, notifications) = freed_for(parts(value)?, generation)?;
    Ok((freed == 1, notifications))
}

/// The answer of a script for one lock: how many were freed, and the notifications.
pub(crate) fn freed_all(value: &Value, generation: u64) -> Result<(usize, Vec<Notification>)> {
    let Value::Array(parts) = value else { return Err(unexpected()) };
    freed_for(parts, generation)
}

fn freed_for(parts: &[Value], generation: u64) -> Result<(usize, Vec<Notification>)> {
    let freed = usize::try_from(int(parts.first())?).map_err(|_| unexpected())?;
    let notifications = parts
        .iter()
        .skip(1)
        .map(|one| Ok(Notification::parse(&text(Some(one))?).ok_or_else(unexpected)?.over(generation)));
    Ok((freed, notifications.collect::<Result<_>>()?))
}

fn mode(code: i64) -> Result<Mode> {
    Mode::from_code(code).ok_or_else(unexpected)
}

/// The parts of the answer to one claim, or the error that the script caught for it.
fn parts(value: &Value) -> Result<&[Value]> {
    let Value::Array(parts) = value else { return Err(unexpected()) };
    match int(parts.first())? {
        code @ (2 | 4) if matches!(parts.get(1), Some(Value::BulkString(_))) => {
            Err(of_claim(&text(parts.get(1))?, code == 4))
        }
        _ => Ok(parts),
    }
}

pub(crate) fn int(value: Option<&Value>) -> Result<i64> {
    match value {
        Some(Value::Int(number)) => Ok(*number),
        _ => Err(unexpected()),
    }
}

pub(crate) fn text(value: Option<&Value>) -> Result<String> {
    match value {
        Some(Value::BulkString(bytes)) => Ok(String::from_utf8_lossy(bytes).into_owned()),
        Some(Value::SimpleString(text)) => Ok(text.clone()),
        _ => Err(unexpected()),
    }
}

fn number(value: Option<&Value>) -> Result<u64> {
    text(value)?.parse().map_err(|_| unexpected())
}

/// The parts of a lock's value: its holder, since when, and with which token.
struct AnswerRecord<'a> {
    owner: &'a str,
    token: u64,
    since: u64,
    label: &'a str,
}

fn record(value: &str) -> Option<AnswerRecord<'_>> {
    let mut parts = value.splitn(5, ':');
    Some(AnswerRecord {
        owner: parts.next().filter(|owner| owner.len() == 32)?,
        token: parts.next()?.parse().ok()?,
        since: parts.next()?.parse().ok()?,
        label: parts.nth(1)?,
    })
}

/// Who holds a lock at one server.
#[derive(Debug)]
pub(crate) struct LockView {
    /// Each with its owner, which is a secret.
    holders: Vec<(String, Holder)>,
    waiters: usize,
    waiting: Vec<WaitingClaim>,
}

impl LockView {
    /// Who holds the lock, as a forced release names them: by owner, or by the value of another program. Each
    /// with its mode.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&str, Mode)> {
        self.holders.iter().map(|(name, holder)| (name.as_str(), holder.mode))
    }

    pub(crate) fn status(self, name: &LockName) -> LockStatus {
        let mut holders: Vec<_> = self.holders.into_iter().map(|(_, holder)| holder).collect();
        holders.sort_by_key(|holder| holder.token);
        LockStatus::new(name.clone(), holders, self.waiters).waiting(self.waiting)
    }
}

pub(crate) fn lock_view(value: &Value) -> Result<LockView> {
    let Value::Array(parts) = value else { return Err(unexpected()) };
    let now = u64::try_from(int(parts.first())?).unwrap_or_default();
    let waiters = usize::try_from(int(parts.get(1))?).map_err(|_| unexpected())?;
    let Some(Value::Array(first)) = parts.get(2) else { return Err(unexpected()) };
    let mut waiting = Vec::new();
    for one in first.chunks(3) {
        // A place may be in the future: each is later than the one before it, and the clock may have been set
        // back.
        let waited = Duration::from_micros(now.saturating_sub(number(one.first())?));
        let asked = mode(text(one.get(1))?.parse().map_err(|_| unexpected())?)?;
        waiting.push(WaitingClaim::new(text(one.get(2))?, asked, Some(waited)));
    }
    let mode = mode(int(parts.get(3))?)?;
    let mut holders = Vec::new();
    for pair in parts.get(4..).unwrap_or_default().chunks(2) {
        let value = text(pair.first())?;
        // A lock without an end is another program's.
        let left = u64::try_from(int(pair.get(1))?).map_or(Duration::MAX, Duration::from_millis);
        holders.push(if let Some(AnswerRecord { owner, token, since, label }) = record(&value) {
            let held_for = Duration::from_micros(now.saturating_sub(since));
            let holder = Holder::new(FencingToken::new(token), label, mode, left).held_for(held_for);
            (owner.to_owned(), holder)
        } else {
            // Its value is that program's secret.
            let holder = Holder::new(FencingToken::new(0), "another program", Mode::Exclusive, left);
            (value, holder)
        });
    }
    Ok(LockView { holders, waiters, waiting })
}

/// The status on which a majority of nodes agrees: the owners that hold the lock at this number of them, and
/// how many wait at as many.
pub(crate) fn majority_status(name: &LockName, views: Vec<LockView>, majority: usize) -> LockStatus {
    let mut owners: Vec<(String, Vec<Holder>)> = Vec::new();
    // Who enters the queue at one node first may be overtaken until a majority knows it.
    let mut waiters: Vec<_> = views.iter().map(|view| view.waiters).collect();
    waiters.sort_unstable_by(|one, other| other.cmp(one));
    let waiters = waiters.get(majority - 1).or(waiters.last()).copied().unwrap_or(0);
    let longest_wait = views.iter().flat_map(|view| &view.waiting).filter_map(|one| one.waited).max();
    for (owner, holder) in views.into_iter().flat_map(|view| view.holders) {
        match owners.iter_mut().find(|(one, _)| *one == owner) {
            Some((_, votes)) => votes.push(holder),
            None => owners.push((owner, vec![holder])),
        }
    }
    owners.retain(|(_, votes)| votes.len() >= majority);
    // The token is installed at a majority. The other nodes show another number, the one of their vote.
    let agreed = owners.into_iter().filter_map(|(owner, votes)| {
        let nodes_with = |token| votes.iter().filter(|one| one.token == token).count();
        let holder = votes.iter().max_by_key(|one| (nodes_with(one.token), one.token)).cloned();
        holder.map(|holder| (owner, holder))
    });
    // The queues of the nodes differ, so nobody is named.
    LockView { holders: agreed.collect(), waiters, waiting: Vec::new() }
        .status(name)
        .longest_wait(longest_wait)
}

/// The answers to a renewal: whether each lease was extended.
pub(crate) fn extended(value: &Value) -> Result<bool> {
    Ok(int(Some(value))? == 1)
}

/// The answer to a reclaim: whether the holder has its record. `None`: that cannot be said now.
pub(crate) fn reclaimed(value: &Value) -> Result<Option<bool>> {
    match int(parts(value)?.first())? {
        1 => Ok(Some(true)),
        0 => Ok(Some(false)),
        5 => Ok(None),
        _ => Err(unexpected()),
    }
}
