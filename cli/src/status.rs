//! `lockwell status`: who holds a lock.

use std::io::{self, Write};
use std::time::Duration;

use lockwell::{Holder, LockStatus, Locks, Mode};
use serde::Serialize;

use crate::args::StatusArgs;
use crate::connect::connect;
use crate::exit::{Failure, SOFTWARE};

pub(crate) async fn status(args: &StatusArgs) -> Result<u8, Failure> {
    let (backend, config) = connect(&args.server, None, None).await?;
    let status = Locks::with_config(backend, &config)?.inspect(&args.name).await?;
    let text = if args.json { json(&status)? } else { human(&status) };
    match io::stdout().lock().write_all(text.as_bytes()) {
        // The reader has seen enough, as `head` does.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(0),
        written => written.map(|()| 0).map_err(Failure::from),
    }
}

/// A status as JSON. Fields may be added, and are never renamed.
#[derive(Serialize)]
struct Report<'a> {
    name: &'a str,
    held: bool,
    holders: Vec<HolderReport<'a>>,
    waiters: usize,
}

#[derive(Serialize)]
struct HolderReport<'a> {
    token: u64,
    label: &'a str,
    mode: &'static str,
    /// How many may hold it at the same time, for a permit.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u32>,
    ttl_ms: u64,
    held_ms: u64,
}

impl<'a> HolderReport<'a> {
    fn new(holder: &'a Holder) -> Self {
        let limit = match holder.mode {
            Mode::Permit { limit } => Some(limit.get()),
            _ => None,
        };
        Self {
            token: holder.token.get(),
            label: &holder.label,
            mode: holder.mode.name(),
            limit,
            ttl_ms: millis(holder.ttl_left),
            held_ms: millis(holder.held_for),
        }
    }
}

fn json(status: &LockStatus) -> Result<String, Failure> {
    let report = Report {
        name: status.name.as_str(),
        held: status.is_held(),
        holders: status.holders.iter().map(HolderReport::new).collect(),
        waiters: status.waiters,
    };
    let text =
        serde_json::to_string_pretty(&report).map_err(|error| Failure::new(SOFTWARE, error.to_string()))?;
    Ok(text + "\n")
}

fn human(status: &LockStatus) -> String {
    let waiting = match status.waiters {
        0 => "nobody waits".to_owned(),
        1 => "1 waits".to_owned(),
        many => format!("{many} wait"),
    };
    let held = if status.is_held() { "held" } else { "free" };
    let mut text = format!("{}: {held}, {waiting}\n", status.name);
    text.extend(status.holders.iter().map(line));
    text
}

fn line(holder: &Holder) -> String {
    let Holder { token, label, mode, .. } = holder;
    let (left, since) = (rounded(holder.ttl_left), rounded(holder.held_for));
    format!("  {label}: {mode}, token {token}, for {since}, lease ends in {left} unless renewed\n")
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A time for people: nobody wants nanoseconds.
fn rounded(time: Duration) -> impl std::fmt::Display {
    humantime::format_duration(Duration::from_millis(millis(time)))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use lockwell::{FencingToken, LockName};

    use super::*;

    fn example(holders: Vec<Holder>, waiters: usize) -> LockStatus {
        LockStatus::new(LockName::new("orders/42").unwrap(), holders, waiters)
    }

    fn holder(mode: Mode) -> Holder {
        let left = Duration::from_nanos(9_500_000_123);
        Holder::new(FencingToken::new(7), "web-1:4711", mode, left).held_for(Duration::from_secs(61))
    }

    #[test]
    fn for_people() {
        assert_eq!(human(&example(vec![], 0)), "orders/42: free, nobody waits\n");
        assert_eq!(
            human(&example(vec![holder(Mode::Exclusive)], 1)),
            "orders/42: held, 1 waits\n  \
             web-1:4711: exclusive, token 7, for 1m 1s, lease ends in 9s 500ms unless renewed\n"
        );
    }

    #[test]
    fn for_programs() {
        let mode = Mode::Permit { limit: NonZeroU32::new(3).unwrap() };
        let text = json(&example(vec![holder(mode)], 2)).ok().expect("it can be written");
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let expected = serde_json::json!({
            "name": "orders/42", "held": true, "waiters": 2, "holders": [{
                "token": 7, "label": "web-1:4711", "mode": "permit", "limit": 3, "ttl_ms": 9500, "held_ms": 61000,
            }],
        });
        assert_eq!(value, expected);
    }
}
