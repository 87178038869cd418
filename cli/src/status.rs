//! `lockwell status`: who holds locks.

use std::fmt::Write as _;
use std::time::Duration;

use lockwell::{Holder, LockStatus, Locks, Mode, Registry, TraceParent};
use tokio::time::sleep;

use crate::args::StatusArgs;
use crate::connect::{Address, Purpose};
use crate::exit::{Failure, NOT_OBTAINED};
use crate::json::{self, ManyReport, OneReport};
use crate::patience::Patience;
use crate::say::{Voice, printable, rounded};

/// How often --watch reads the status.
const EVERY: Duration = Duration::from_secs(1);

pub(crate) async fn status(registry: &Registry, args: &StatusArgs) -> Result<u8, Failure> {
    let connection = Address::of(&args.server)?
        .connect(registry, Purpose::Reading, &mut Patience::none(Voice::Usual))
        .await?;
    let locks = connection.locks()?;
    let seen = read(&locks, args).await?;
    let goes_on = json::print(&text(args, &seen)?)?;
    if args.watch && goes_on {
        return watch(&locks, args, seen).await;
    }
    Ok(if args.exit_code && !seen.is_all_free() { NOT_OBTAINED } else { 0 })
}

/// What was read.
struct Seen {
    statuses: Vec<LockStatus>,
    /// For how long locks that are held may be missing.
    unknown_for: Option<Duration>,
}

impl Seen {
    /// Whether no lock is held, and all that may be held are known.
    fn is_all_free(&self) -> bool {
        self.unknown_for.is_none() && self.statuses.iter().all(LockStatus::is_free)
    }

    /// Whether the same hold and as many wait. Times always differ.
    fn is_as(&self, other: &Self) -> bool {
        let tokens = |status: &LockStatus| status.holders.iter().map(|one| one.token).collect::<Vec<_>>();
        let same = |(a, b): (&LockStatus, &LockStatus)| {
            a.name == b.name
                && a.waiters == b.waiters
                && a.unknown_for.is_some() == b.unknown_for.is_some()
                && tokens(a) == tokens(b)
        };
        self.unknown_for.is_some() == other.unknown_for.is_some()
            && self.statuses.len() == other.statuses.len()
            && self.statuses.iter().zip(&other.statuses).all(same)
    }
}

async fn read(locks: &Locks, args: &StatusArgs) -> Result<Seen, Failure> {
    if args.names.is_empty() {
        // The server may forget between two questions, or end its grace period.
        let before = locks.grace_left().await?;
        let statuses = locks.held().await?;
        let after = locks.grace_left().await?;
        return Ok(Seen { statuses, unknown_for: after.or(before) });
    }
    let mut statuses = Vec::new();
    for name in &args.names {
        statuses.push(locks.inspect(name).await?);
    }
    Ok(Seen { statuses, unknown_for: None })
}

/// Shows every change, until the output is closed. If the server cannot be reached, it tries again.
async fn watch(locks: &Locks, args: &StatusArgs, mut seen: Seen) -> Result<u8, Failure> {
    loop {
        sleep(EVERY).await;
        match read(locks, args).await {
            Ok(now) if seen.is_as(&now) => (),
            Ok(now) => {
                if !json::print(&text(args, &now)?)? {
                    return Ok(0);
                }
                seen = now;
            }
            Err(failure) => Voice::Usual.warn(&failure.text()),
        }
    }
}

fn text(args: &StatusArgs, seen: &Seen) -> Result<String, Failure> {
    let Seen { statuses, unknown_for } = seen;
    match (statuses.as_slice(), args.json) {
        ([one], true) if args.names.len() == 1 && args.watch => json::line(&OneReport::new(one)),
        ([one], true) if args.names.len() == 1 => json::pretty(&OneReport::new(one)),
        (many, true) if args.watch => json::line(&ManyReport::new(many, *unknown_for)),
        (many, true) => json::pretty(&ManyReport::new(many, *unknown_for)),
        (many, false) => Ok(list(many, *unknown_for)),
    }
}

fn list(statuses: &[LockStatus], unknown_for: Option<Duration>) -> String {
    let known: String = statuses.iter().map(human).collect();
    match unknown_for {
        Some(left) => {
            let left = rounded(left);
            format!("{known}whether other locks are held is unknown for another {left} (grace period)\n")
        }
        None if known.is_empty() => "no lock is held\n".to_owned(),
        None => known,
    }
}

/// A lock, who holds it, and who waits, in words.
pub(crate) fn human(status: &LockStatus) -> String {
    let waiting = match (status.waiters, status.longest_wait.map(rounded)) {
        (0, _) => "nobody waits".to_owned(),
        (1, None) => "1 waits".to_owned(),
        (1, Some(time)) => format!("1 waits, for {time}"),
        (many, None) => format!("{many} wait"),
        (many, Some(time)) => format!("{many} wait, the first for {time}"),
    };
    let held = match status.holders.as_slice() {
        [] if status.is_free() => "free".to_owned(),
        [] => {
            format!("unknown for another {} (grace period)", rounded(status.unknown_for.unwrap_or_default()))
        }
        [Holder { mode: Mode::Permit { limit }, .. }, ..] => {
            format!("{} of {limit} held", status.holders.len())
        }
        [Holder { mode: Mode::Shared, .. }] => "held by 1 reader".to_owned(),
        [Holder { mode: Mode::Shared, .. }, ..] => format!("held by {} readers", status.holders.len()),
        _ => "held".to_owned(),
    };
    let missing = match status.unknown_for.filter(|_| status.is_held()) {
        Some(left) => format!("; holders may be missing for another {} (grace period)", rounded(left)),
        None => String::new(),
    };
    let mut text = format!("{}: {held}, {waiting}{missing}\n", status.name);
    for holder in &status.holders {
        let since = rounded(holder.held_for);
        let (label, token) = (printable(&holder.label), holder.token);
        let end = if holder.ttl_left == Duration::MAX {
            "without a lease".to_owned()
        } else {
            format!("lease ends in {} unless renewed", rounded(holder.ttl_left))
        };
        let trace = recorded(holder.traceparent.as_ref());
        writeln!(text, "  {label}: token {token}, for {since}, {end}{trace}").unwrap_or_default();
    }
    for claim in &status.waiting {
        let since = claim.waited.map_or_else(String::new, |time| format!(", for {}", rounded(time)));
        let mode = match claim.mode {
            Mode::Permit { limit } => format!(", as one of {limit}"),
            Mode::Shared => ", as a reader".to_owned(),
            _ => String::new(),
        };
        // It waits although a permit may be free.
        let kind = match status.holders.first() {
            Some(holder) if !holder.mode.is_same_kind(claim.mode) => {
                ", until those of another kind have left"
            }
            _ => "",
        };
        let trace = recorded(claim.traceparent.as_ref());
        writeln!(text, "  waits: {}{since}{mode}{kind}{trace}", printable(&claim.label)).unwrap_or_default();
    }
    match status.waiters.saturating_sub(status.waiting.len()) {
        more @ 1.. if !status.waiting.is_empty() => writeln!(text, "  and {more} more").unwrap_or_default(),
        _ => (),
    }
    text
}

/// The trace to look for, if it may have been recorded.
fn recorded(trace: Option<&TraceParent>) -> String {
    match trace {
        Some(trace) if trace.is_sampled() => format!(", trace {}", trace.trace_id()),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use lockwell::{FencingToken, LockName, WaitingClaim};

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
             web-1:4711: token 7, for 1m 1s, lease ends in 9s 500ms unless renewed\n"
        );
        let waiting = |waiters| example(vec![], waiters).longest_wait(Some(Duration::from_millis(61_234)));
        assert_eq!(human(&waiting(1)), "orders/42: free, 1 waits, for 1m 1s\n");
        assert_eq!(human(&waiting(3)), "orders/42: free, 3 wait, the first for 1m 1s\n");
        let unknown = |holders| human(&example(holders, 0).unknown_for(Some(Duration::from_secs(7))));
        assert_eq!(
            unknown(vec![]),
            "orders/42: unknown for another 7s (grace period), nobody waits
"
        );
        let known = unknown(vec![holder(Mode::Exclusive)]);
        let missing = "orders/42: held, nobody waits; holders may be missing for another 7s (grace period)
";
        assert!(known.starts_with(&format!("{missing}  web-1:4711: token 7")), "{known}");
        assert_eq!(list(&[], None), "no lock is held\n");
        assert!(list(&[], Some(Duration::from_secs(7))).contains(" are held is unknown for another 7s "));
        let permit = Mode::Permit { limit: NonZeroU32::new(3).unwrap() };
        let two = human(&example(vec![holder(permit), holder(permit)], 0));
        assert!(two.starts_with("orders/42: 2 of 3 held, nobody waits\n"), "{two}");
        let foreign = Holder::new(FencingToken::new(7), "ops", Mode::Exclusive, Duration::MAX);
        let foreign = human(&example(vec![foreign], 0));
        assert!(foreign.ends_with("  ops: token 7, for 0s, without a lease\n"), "{foreign}");
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0";
        let named = |label: &str, mode| WaitingClaim::new(label, mode, Some(Duration::from_secs(2)));
        let first = [
            named(&format!("job\x1b\u{1f}{trace}1"), Mode::Exclusive),
            named(&format!("b\u{1f}{trace}0"), Mode::Shared),
        ];
        let waited_for = human(&example(vec![holder(Mode::Exclusive)], 5).waiting(first));
        let who = "  waits: job?, for 2s, trace 4bf92f3577b34da6a3ce929d0e0e4736\n  \
                   waits: b, for 2s, as a reader\n  and 3 more\n";
        assert!(waited_for.ends_with(who), "{waited_for}");
        let readers = human(&example(vec![holder(Mode::Shared)], 0));
        assert!(readers.starts_with("orders/42: held by 1 reader,"), "{readers}");
    }
}
