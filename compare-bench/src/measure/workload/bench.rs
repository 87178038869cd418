//! A kind of work, and what it works with.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use lockwell::backend::async_trait;
use lockwell::{Locks, Requirement};

use crate::error::Result;
use crate::measure::contend::TIMEOUT;
use crate::measure::counter::Counter;
use crate::measure::floor::Floor;
use crate::measure::peer::Peer;
use crate::measure::repeat::Repeat;
use crate::plan::Plan;
use crate::plan::case::Case;
use crate::record::Measurement;
use crate::target::{Choice, Target};

/// Of locks that are held for a while, if the backend has a lease so short.
const LEASE: Duration = Duration::from_secs(4);

/// What there is to say of a workload.
pub(crate) struct About {
    /// Its name on the command line and in the results.
    pub(crate) name: &'static str,
    /// What it does, in one line.
    pub(crate) text: &'static str,
    /// Whether the quick run leaves it out.
    pub(crate) only_in_full: bool,
    /// What a backend must promise for it.
    pub(crate) needs: Option<Requirement>,
}

impl About {
    pub(super) const fn always(name: &'static str, text: &'static str) -> Self {
        Self { name, text, only_in_full: false, needs: None }
    }

    pub(super) const fn full(name: &'static str, text: &'static str) -> Self {
        Self { only_in_full: true, ..Self::always(name, text) }
    }
}

/// One kind of work, done by ours and by the floor.
#[async_trait]
pub(crate) trait Workload: Sync {
    fn about(&self) -> About;

    fn name(&self) -> &'static str {
        self.about().name
    }

    /// What it measures on such a backend.
    fn cases(&self, plan: &Plan, choice: &Choice) -> Vec<Case>;

    /// Measures one of them.
    async fn measure(&self, case: &Case, bench: &mut Bench) -> Result<Measurement>;
}

impl fmt::Debug for dyn Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a workload works with.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) target: Target,
    pub(crate) locks: Locks,
    pub(crate) floor: Floor,
    /// Other libraries to measure beside ours.
    pub(crate) peers: Vec<Peer>,
    /// Keeps the names of this run apart from those of others on the same server.
    pub(crate) run: String,
}

impl Bench {
    /// What the servers count themselves, where they do.
    pub(crate) async fn counter(&self) -> Result<Option<Counter>> {
        // In a cluster, a lock may be at any of the masters.
        let is_cluster = self.target.parsed.scheme() == "redis+cluster";
        Counter::connect(if is_cluster { &self.target.url } else { &self.target.floor }).await
    }

    /// The lease of locks that are held for a while.
    pub(crate) fn lease(&self) -> Duration {
        LEASE.max(self.locks.capabilities().min_ttl())
    }

    /// A lock name that no other run and no other workload uses.
    pub(crate) fn lock_name(&self, workload: &str, number: usize) -> String {
        format!("compare/{}/{workload}/{number}", self.run)
    }

    /// One cycle on each name, so that no round pays for new rows, connections and prepared statements.
    pub(crate) async fn warm_up(&mut self, names: &[String]) -> Result<()> {
        for name in names {
            self.locks.lock(name.as_str()).wait(TIMEOUT).await?.release().await?;
        }
        self.floor.warm_up(names.len()).await
    }

    /// The rounds of this case.
    pub(crate) fn repeat(&self, case: &Case) -> Repeat {
        Repeat::new(case.rounds, case.rounds.time(self.peers_of(case).count()))
    }

    /// The other libraries that do this case.
    pub(crate) fn peers_of(&self, case: &Case) -> impl Iterator<Item = &Peer> {
        self.peers.iter().filter(|peer| case.others.have(peer.is_light()))
    }
}

/// Takes a lock that nobody else wants, and gives it back.
pub(super) async fn cycle(locks: &Locks, name: &str) -> Result<()> {
    Ok(locks.lock(name).await?.release().await?)
}

/// Does all three one after the other, in each order in turn: what one leaves to the server hits the two
/// others alike. The first four rounds, too, begin as often with ours as with the raw statements where
/// there are no others.
pub(super) async fn in_turns<A, B, C>(
    round: u32,
    ours: impl Future<Output = A>,
    floor: impl Future<Output = B>,
    theirs: impl Future<Output = C>,
) -> (A, B, C) {
    match round % 6 {
        0 => {
            let (ours, floor) = (ours.await, floor.await);
            (ours, floor, theirs.await)
        }
        1 => {
            let (floor, theirs) = (floor.await, theirs.await);
            (ours.await, floor, theirs)
        }
        2 => {
            let (theirs, ours) = (theirs.await, ours.await);
            (ours, floor.await, theirs)
        }
        3 => {
            let (floor, ours) = (floor.await, ours.await);
            (ours, floor, theirs.await)
        }
        4 => {
            let (theirs, floor) = (theirs.await, floor.await);
            (ours.await, floor, theirs)
        }
        _ => {
            let (ours, theirs) = (ours.await, theirs.await);
            (ours, floor.await, theirs)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    async fn order_of(rounds: u32) -> String {
        let order = Mutex::new(String::new());
        let goes = async |name: char| order.lock().expect("no panic").push(name);
        for round in 0..rounds {
            in_turns(round, goes('o'), goes('f'), goes('t')).await;
        }
        order.into_inner().expect("no panic")
    }

    #[tokio::test]
    async fn each_goes_after_each_of_the_others() {
        let order = order_of(6).await;
        for pair in ["of", "ot", "fo", "ft", "to", "tf"] {
            assert!(order.contains(pair), "{pair} in {order}");
        }
        for rounds in [4, 6] {
            let pairs = order_of(rounds).await.replace('t', "");
            let first: Vec<char> = pairs.chars().step_by(2).collect();
            assert_eq!(first.iter().filter(|name| **name == 'o').count(), first.len() / 2, "{pairs}");
        }
    }
}
