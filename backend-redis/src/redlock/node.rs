//! One node of a Redlock, and its right to vote.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockcore::{Error, ErrorKind, Moment, Result};
use redis::Value;

use crate::address::Address;
use crate::answers::{self, Took};
use crate::check::{self, Info};
use crate::lane::{Item, Lane};
use crate::script::{Script, VOTE};
use crate::wire::{Ear, Wire};

/// How often a node that looks dead is asked whether it is.
const PROBE: Duration = Duration::from_millis(250);

pub(crate) struct Node {
    pub(crate) lane: Lane,
    right: Mutex<Right>,
    /// When the node may be probed again.
    probe_at: Mutex<Moment>,
}

/// What is known of a node's memory.
#[derive(Clone, Debug)]
struct Right {
    /// The connection on which the node was asked.
    asked_on: u64,
    /// Which run of the server it was.
    run_id: String,
    /// From when on its votes count.
    votes_from: Moment,
}

impl Node {
    pub(crate) fn new(address: Address, ear: Ear, timeout: Duration) -> Self {
        let wire = Wire::new(address, Some(ear));
        let right = Right { asked_on: 0, run_id: String::new(), votes_from: Moment::NEVER };
        let lane = Lane::new(Arc::new(wire), timeout);
        Self { lane, right: Mutex::new(right), probe_at: Mutex::new(Moment::now()) }
    }

    fn right(&self) -> MutexGuard<'_, Right> {
        self.right.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the node looks dead, so that nobody is to wait for it. It is then probed in the background.
    pub(crate) fn looks_dead(&self) -> bool {
        let dead = self.lane.wire().looks_dead();
        if dead {
            self.probe();
        }
        dead
    }

    fn probe(&self) {
        {
            let mut probe_at = self.probe_at.lock().unwrap_or_else(PoisonError::into_inner);
            if !probe_at.has_passed() {
                return;
            }
            *probe_at = Moment::now().after(PROBE);
        }
        let wire = Arc::clone(self.lane.wire());
        drop(tokio::spawn(async move { wire.probe().await }));
    }

    /// Asks for a vote.
    pub(crate) async fn vote(&self, item: Item, limit: Duration, longest_ttl: Duration) -> Result<Took> {
        let answer = self.lane.call_within(item, limit).await?;
        let took = answers::took(answer.value, &VOTE)?;
        if matches!(took, Took::Granted(_)) && !self.may_vote(answer.generation, limit, longest_ttl).await? {
            let text =
                "a node was started a short while ago and may have forgotten locks: it has no vote yet";
            return Err(Error::new(ErrorKind::Unreachable, text));
        }
        Ok(took)
    }

    /// Whether what the node said on this connection counts.
    ///
    /// The delayed restart of the Redlock description, kept by the client: a node that came back a short while ago and
    /// does not write every change to its disk has forgotten locks that are still held. It has no vote until the
    /// longest lease that it can have granted is over. A restart ends the connection, so asking once for each is enough.
    pub(crate) async fn may_vote(
        &self,
        generation: u64,
        limit: Duration,
        longest_ttl: Duration,
    ) -> Result<bool> {
        let known = {
            let right = self.right();
            (right.asked_on == generation).then_some(right.votes_from)
        };
        let votes_from = match known {
            Some(moment) => moment,
            None => self.examine(generation, limit, longest_ttl).await?.1,
        };
        Ok(votes_from.has_passed())
    }

    /// Asks the node what it remembers; says which run of the server it is and from when on it has a vote.
    pub(crate) async fn examine(
        &self,
        generation: u64,
        limit: Duration,
        longest_ttl: Duration,
    ) -> Result<(String, Moment)> {
        let asked_at = Moment::now();
        let info = check::info(self.lane.wire(), limit).await?;
        if info.get("role") == "slave" {
            let text = "a node is a replica: Redlock needs independent masters";
            return Err(Error::new(ErrorKind::Misconfigured, text));
        }
        let votes_from = if self.keeps_every_change(&info, limit).await {
            Moment::now()
        } else {
            // Without INFO it is taken for just started, as far as this client knows.
            let uptime = info.get("uptime_in_seconds").parse().map_or(Duration::ZERO, Duration::from_secs);
            asked_at.before(uptime).after(longest_ttl)
        };
        let run_id = info.get("run_id").to_owned();
        *self.right() = Right { asked_on: generation, run_id: run_id.clone(), votes_from };
        Ok((run_id, votes_from))
    }

    /// Whether the node answers only after its change is on the disk.
    async fn keeps_every_change(&self, info: &Info, limit: Duration) -> bool {
        if info.get("aof_enabled") != "1" {
            return false;
        }
        let mut command = redis::cmd("CONFIG");
        command.arg("GET").arg("appendfsync");
        let asked = tokio::time::timeout(limit, async {
            let (mut link, _) = self.lane.wire().link().await?;
            link.query(&command).await
        });
        // Without the right to ask, the careful answer is no.
        let Ok(Ok(value)) = asked.await else { return false };
        let words = match value {
            Value::Map(pairs) => pairs.into_iter().map(|(_, value)| value).collect(),
            Value::Array(values) => values,
            _ => Vec::new(),
        };
        words.iter().any(|word| matches!(word, Value::BulkString(text) if text == b"always"))
    }

    /// Calls a script that answers with one number for each of its locks.
    pub(crate) async fn numbers(
        &self,
        script: &'static Script,
        keys: Vec<String>,
        args: Vec<String>,
        limit: Duration,
    ) -> Result<(Vec<i64>, u64)> {
        let item = Item { script, slot: 0, keys, args };
        let answer = self.lane.call_within(item, limit).await?;
        let numbers = match answer.value {
            Value::Array(values) => {
                values.iter().map(|value| answers::int(Some(value))).collect::<Result<Vec<_>>>()?
            }
            one => vec![answers::int(Some(&one))?],
        };
        Ok((numbers, answer.generation))
    }
}
