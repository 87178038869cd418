//! Questions to servers and clients, and claims that are made by hand.

use std::time::Duration;

use lockwell_core::{Claim, LockName, Locks, Mode, Wait};
use testbed::Redis;

use crate::servers::tell;

/// A claim that does not wait, for calls of a backend without a client. Its grant is not renewed.
pub(crate) fn claim(name: &str, ttl: Duration) -> Claim {
    claim_as(Mode::Exclusive, name, ttl)
}

/// The same in another mode.
pub(crate) fn claim_as(mode: Mode, name: &str, ttl: Duration) -> Claim {
    let name = LockName::new(name).expect("a name");
    Claim::new(name, mode, ttl, Wait::No, "by hand".into())
}

/// A semaphore.
pub(crate) fn permit(limit: u32) -> Mode {
    Mode::from_code(limit.into()).expect("not 0")
}

/// What is left of the life of a key, in milliseconds; negative if it has no end, or is not there.
pub(crate) fn life(server: &Redis, key: &str) -> i64 {
    let answer = tell(server, &["PTTL", key]);
    answer.trim_start_matches(':').trim_end().parse().expect("a number")
}

/// Waits until this number of claims is in the queue of a lock.
pub(crate) async fn queued(locks: &Locks, name: &str, many: usize) {
    for _ in 0..2_000 {
        if locks.inspect(name).await.expect("an answer").waiters == many {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never {many} in the queue of {name}");
}

/// How often a server has carried out this command since its statistics were reset.
pub(crate) fn calls(server: &Redis, command: &str) -> usize {
    let stats = tell(server, &["INFO", "commandstats"]);
    let start = format!("cmdstat_{command}:calls=");
    let line = stats.lines().find_map(|line| line.strip_prefix(&start));
    line.map_or(0, |rest| rest.split(',').next().and_then(|number| number.parse().ok()).expect("a number"))
}

/// How many commands a server has carried out since then, those of scripts included, and those without
/// meaning here left out.
pub(crate) fn all_calls(server: &Redis) -> usize {
    let stats = tell(server, &["INFO", "commandstats"]);
    let counted = |line: &&str| {
        let other = ["info", "config", "slowlog", "eval:", "ping", "client", "hello", "subscribe", "zcard"];
        line.starts_with("cmdstat_") && !other.iter().any(|name| line[8..].starts_with(name))
    };
    let calls = |line: &str| line.split("calls=").nth(1)?.split(',').next()?.parse::<usize>().ok();
    stats.lines().filter(counted).filter_map(calls).sum()
}

/// The parts of an answer that is a list of texts.
pub(crate) fn parts(answer: &str) -> Vec<&str> {
    answer.split("\r\n").skip(1).filter(|line| !line.is_empty() && !line.starts_with('$')).collect()
}

/// Which connections there are at a server beside the one that asks: a line for each.
pub(crate) fn connections(server: &Redis) -> Vec<String> {
    let list = tell(server, &["CLIENT", "LIST"]);
    // Redis 6 does not name the subcommand.
    let is_ours = |line: &&str| line.contains("cmd=client|list") || line.contains("cmd=client user=");
    let lines = list.lines().filter(|line| line.starts_with("id=") && !is_ours(line));
    lines.map(str::to_owned).collect()
}
