//! What the scripts' answers mean.

use std::time::Duration;

use lockcore::{FencingToken, Holder, LockName, LockStatus, Mode, Result};
use redis::Value;

use crate::error::of_item;
use crate::lane::unexpected;
use crate::script::Script;

/// The answer to a claim.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Took {
    Granted(FencingToken),
    Busy(Busy),
}

/// Why a claim has to wait.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Busy {
    /// The time left of the holder's lease, where it has an end that is worth waiting for.
    pub(crate) left: Option<Duration>,
    /// Whether the claim stands first in the queue.
    pub(crate) first: bool,
    /// Whether the holder is another program, which tells nobody when it is done.
    pub(crate) foreign: bool,
}

/// The answer to a release.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Freed {
    pub(crate) released: bool,
    /// The waiter of our own process whose turn it is.
    pub(crate) next: Option<i64>,
}

pub(crate) fn took(value: Value, script: &Script) -> Result<Took> {
    let parts = item(value, script)?;
    match (int(parts.first())?, parts.get(1)) {
        (1, token) => Ok(Took::Granted(FencingToken::new(number(token)?))),
        (0, left) => Ok(Took::Busy(Busy {
            left: u64::try_from(int(left)?).ok().map(Duration::from_millis),
            first: int(parts.get(2))? == 1,
            foreign: int(parts.get(3))? == 1,
        })),
        _ => Err(unexpected()),
    }
}

pub(crate) fn freed(value: Value, script: &Script) -> Result<Freed> {
    let parts = item(value, script)?;
    let next = text(parts.get(1))?;
    Ok(Freed { released: int(parts.first())? == 1, next: next.parse().ok() })
}

/// The parts of the answer to one item, or the error that the script caught for it.
fn item(value: Value, script: &Script) -> Result<Vec<Value>> {
    let Value::Array(parts) = value else { return Err(unexpected()) };
    if int(parts.first())? == 2 {
        return Err(of_item(&text(parts.get(1))?, script));
    }
    Ok(parts)
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

/// What a lock's value says: who holds it, since when, with which token.
struct Record<'a> {
    token: u64,
    since: u64,
    label: &'a str,
}

fn record(value: &str) -> Option<Record<'_>> {
    let mut parts = value.splitn(5, ':');
    parts.next().filter(|owner| owner.len() == 32)?;
    Some(Record {
        token: parts.next()?.parse().ok()?,
        since: parts.next()?.parse().ok()?,
        label: parts.nth(1)?,
    })
}

pub(crate) fn status(name: &LockName, value: &Value) -> Result<LockStatus> {
    let Value::Array(parts) = value else { return Err(unexpected()) };
    let (held, left, now) = (text(parts.first())?, int(parts.get(1))?, int(parts.get(2))?);
    let waiters = usize::try_from(int(parts.get(3))?).map_err(|_| unexpected())?;
    // A lock without an end is another program's.
    let left = u64::try_from(left).map_or(Duration::MAX, Duration::from_millis);
    let holder = match record(&held) {
        Some(Record { token, since, label }) => {
            let held_for = u64::try_from(now).unwrap_or_default().saturating_sub(since);
            Some(
                Holder::new(FencingToken::new(token), label, Mode::Exclusive, left)
                    .held_for(Duration::from_micros(held_for)),
            )
        }
        None if held.is_empty() => None,
        // Its value is that program's secret.
        None => Some(Holder::new(FencingToken::new(0), "another program", Mode::Exclusive, left)),
    };
    Ok(LockStatus::new(name.clone(), holder.into_iter().collect(), waiters))
}

/// What a majority of nodes agrees on: the one owner who holds the lock at so many of them.
pub(crate) fn majority_status(name: &LockName, answers: &[Value], majority: usize) -> Result<LockStatus> {
    let mut owners: Vec<(String, Vec<LockStatus>)> = Vec::new();
    let mut waiters = 0;
    for answer in answers {
        let status = status(name, answer)?;
        waiters = waiters.max(status.waiters);
        let Value::Array(parts) = answer else { return Err(unexpected()) };
        let owner: String = text(parts.first())?.chars().take(32).collect();
        match owners.iter_mut().find(|(one, _)| *one == owner) {
            Some((_, votes)) => votes.push(status),
            None => owners.push((owner, vec![status])),
        }
    }
    let winner = owners.into_iter().find(|(owner, votes)| !owner.is_empty() && votes.len() >= majority);
    // A node that did not take part in phase 2 shows the lower number of phase 1.
    let holder = winner.and_then(|(_, votes)| {
        votes.into_iter().filter_map(|mut one| one.holders.pop()).max_by_key(|one| one.token)
    });
    Ok(LockStatus::new(name.clone(), holder.into_iter().collect(), waiters))
}

/// The answers to a renewal: whether each lease was extended.
pub(crate) fn extended(value: &Value) -> Result<bool> {
    Ok(int(Some(value))? == 1)
}
