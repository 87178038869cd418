//! The grants that are seen while the command looks.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use lockwell::{FencingToken, Holder, LockName, LockStatus, Locks};
use tokio::time::{Instant, sleep};

use crate::exit::Failure;
use crate::json;
use crate::say::{Voice, printable, rounded};

/// The pause between two looks at all locks.
const EVERY: Duration = Duration::from_millis(200);

/// How many locks are looked at, and how many grants are kept.
const MOST: usize = 100;

/// A grant that was seen.
pub(super) struct Seen {
    pub(super) name: LockName,
    pub(super) holder: Holder,
    /// How long after the beginning.
    pub(super) after: Duration,
}

pub(super) struct Watch {
    /// The tokens of those who hold a lock.
    held: HashMap<LockName, HashSet<FencingToken>>,
    names: Vec<LockName>,
    grants: Vec<Seen>,
}

impl Watch {
    /// Compares with these.
    pub(super) fn new(statuses: &[LockStatus]) -> Self {
        let statuses = &statuses[..statuses.len().min(MOST)];
        let names = statuses.iter().map(|status| status.name.clone()).collect();
        let mut watch = Self { held: HashMap::new(), names, grants: Vec::new() };
        for status in statuses {
            watch.note(status);
        }
        watch
    }

    pub(super) fn grants(&self) -> &[Seen] {
        &self.grants
    }

    /// Looks for this time, and prints what it sees if it is `for_people`.
    pub(super) async fn over(
        &mut self,
        locks: &Locks,
        span: Duration,
        for_people: bool,
    ) -> Result<(), Failure> {
        let began = Instant::now();
        while began.elapsed() < span && self.grants.len() < MOST {
            sleep(EVERY.min(span.saturating_sub(began.elapsed()))).await;
            for name in self.names.clone() {
                let status = match locks.inspect(&name).await {
                    Ok(status) => status,
                    Err(error) => {
                        Voice::Usual.warn(&Failure::from(error).text());
                        continue;
                    }
                };
                for holder in self.note(&status) {
                    let (name, after) = (name.clone(), began.elapsed());
                    let Holder { token, label, .. } = &holder;
                    let line = format!("after {}: {name}: token {token} for {label}", rounded(after));
                    if for_people && !json::print(&(printable(&line) + "\n"))? {
                        return Ok(());
                    }
                    self.grants.push(Seen { name, holder, after });
                }
            }
        }
        Ok(())
    }

    /// The holders that are new.
    fn note(&mut self, status: &LockStatus) -> Vec<Holder> {
        let tokens = status.holders.iter().map(|holder| holder.token).collect();
        let before = self.held.insert(status.name.clone(), tokens).unwrap_or_default();
        status.holders.iter().filter(|holder| !before.contains(&holder.token)).cloned().collect()
    }
}
