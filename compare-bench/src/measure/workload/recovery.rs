//! A holder that is killed: how long it takes until a process that waits has its lock.

use std::time::Duration;

use faults::nanos;
use lockwell::backend::async_trait;

use super::found::Found;
use super::measured::MeasuredPeers;
use crate::error::{Error, Result};
use crate::measure::history::Turn;
use crate::measure::worker::Worker;
use crate::measure::workload::bench::{About, Bench, Workload, in_turns};
use crate::plan::Plan;
use crate::plan::case::Case;
use crate::record::{Measurement, Quantity, Round};
use crate::stats::Sample;
use crate::target::Choice;

/// How long it may take until a process has read its order. It asks once then: so long it asks again.
pub(super) const ORDER: Duration = Duration::from_millis(200);

pub(crate) struct Recovery;

#[async_trait]
impl Workload for Recovery {
    fn about(&self) -> About {
        About::full(
            "recovery",
            "a process that holds a lock is killed: the time until another one has it (leases of 4 s of ours)",
        )
    }

    fn cases(&self, plan: &Plan, choice: &Choice) -> Vec<Case> {
        let case = Case { name: "the holder is killed".to_owned(), ..Case::of_tasks(1, plan.recovery) };
        choice.is_shared().then_some(case).into_iter().collect()
    }

    async fn measure(&self, case: &Case, bench: &mut Bench) -> Result<Measurement> {
        let peers_name = bench.lock_name(self.name(), 0);
        let mut peers = MeasuredPeers::start(bench, case, &peers_name, 1, Quantity::LatencyUs).await;
        let mut found = Found::new(Quantity::LatencyUs, "from the death of the holder to the next grant");
        let mut repeat = bench.repeat(case);
        while let Some(number) = repeat.next(&found.rounds, peers.wasted()) {
            // A lease is renewed after a third of its time. The holder dies at all moments in between.
            let after = 2 * ORDER + bench.lease() / 3 * (number % case.rounds.most) / case.rounds.most;
            let name = bench.lock_name(self.name(), usize::try_from(number).unwrap_or_default() + 1);
            let ours = killed(&bench.target.url, &name, bench.lease(), after);
            let (ours, (), theirs) = in_turns(number, ours, async {}, peers.killed(after)).await;
            let Some(ours) = ours? else { continue };
            let round = Round { ours: ours.median_us(), floor: 0.0 };
            peers.note(theirs, round);
            found.add(round, &ours, &Sample::new());
        }
        if found.rounds.is_empty() {
            return Err(Error::failed(
                "no holder had the lock until it was killed: this machine is too busy",
            ));
        }
        let measurement = found.measurement(self.name(), case, bench, Some((0.0, 0.0)), peers.finish());
        Ok(Measurement { noisy: false, ..measurement })
    }
}

/// Ours. The holder is killed so long after another process began to wait. `None` of a round that says nothing.
async fn killed(url: &str, name: &str, lease: Duration, after: Duration) -> Result<Option<Sample>> {
    let mut holder = Worker::ready(url, name).await?;
    holder.hold(1, lease).await?;
    let mut waiter = Worker::ready(url, &format!("{name}/0")).await?;
    let kill = async {
        tokio::time::sleep(after).await;
        let asked = nanos();
        let held = holder.still_held().await?.then_some(asked);
        let at = nanos();
        holder.kill().await.map(|()| (held, at))
    };
    let (turns, killed) = tokio::join!(waiter.wait_once(ORDER), kill);
    let (turns, (held, at)) = (turns?, killed?);
    waiter.finish().await?;
    if granted_before(&turns, held) {
        return Err(Error::Violation("a lock was granted while its holder had it".into()));
    }
    Ok(since(&turns, at))
}

/// Whether the waiter had the lock at a moment after which the holder still had it. A holder that was kept from
/// running for longer than its lease knows that it has lost it.
fn granted_before(turns: &[Turn], held: Option<u64>) -> bool {
    turns.first().zip(held).is_some_and(|(first, held)| first.acquired < held)
}

/// The time from this moment to the first grant. `None` if that was before, and if the waiter read its order too
/// late to ask.
pub(super) fn since(turns: &[Turn], at: u64) -> Option<Sample> {
    let nanos = turns.first()?.acquired.checked_sub(at)?;
    let mut sample = Sample::new();
    sample.note(Duration::from_nanos(nanos), 1);
    Some(sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN: Turn = Turn { party: 0, token: 1, asked: 10, acquired: 5_000_010, released: 5_000_020 };

    #[test]
    fn a_grant_before_the_death_is_none_after_it() {
        let found = since(&[TURN], 10).unwrap();
        assert!((found.median_us() / 5000.0 - 1.0).abs() < 0.01, "{}", found.median_us());
        assert!(since(&[TURN], 5_000_011).is_none(), "it says nothing");
        assert!(since(&[], 7).is_none(), "the waiter came too late");
    }

    #[test]
    fn only_a_holder_that_has_the_lock_makes_a_grant_a_violation() {
        assert!(granted_before(&[TURN], Some(5_000_011)));
        assert!(!granted_before(&[TURN], Some(5_000_010)), "it may have lost it in between");
        assert!(!granted_before(&[TURN], None), "it knows that its lease has ended");
        assert!(!granted_before(&[], Some(5_000_011)));
    }
}
