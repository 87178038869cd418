//! Doing what a schedule says to real processes, servers and connections.

mod cluster;
mod data;
mod etcd;
mod group;
mod sql;

use std::sync::Mutex;
use std::time::Duration;

use lockwell::Locks;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use testbed::{Direction, HungSyncs, Proxy, Server};

use super::clocks::Clocks;
use super::post::Post;
use super::schedule::{Fault, PlannedFault, Way};
use super::servers::{Line, TestServers, failed, server_clock, worker_clock};
use crate::checker::rules::{Deprived, Span};
use crate::error::{Error, Result};
use crate::time::nanos;

/// A fault as it happened. Times are nanoseconds of the boot clock.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Happened {
    #[serde(flatten)]
    /// What was planned.
    pub planned: PlannedFault,
    /// A time before it began.
    pub from: u64,
    /// A time after it was over.
    pub until: u64,
    /// A time after it began.
    pub inner_from: u64,
    /// A time before it was over.
    pub inner_until: u64,
    /// How much it did, where that can be counted: replies that were dropped, bytes that came late,
    /// connections that were ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<u64>,
}

/// What faults work on.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) servers: TestServers,
    /// Of each worker.
    pub(crate) lines: Vec<Line>,
    pub(crate) posts: Vec<Post>,
    /// The names of the locks.
    pub(crate) names: Vec<String>,
    /// The operator's client.
    pub(crate) operator: Option<Locks>,
    /// The server that was chosen when the fault began.
    pub(crate) chosen: Mutex<Option<usize>>,
    /// The syncs that hang.
    pub(crate) hung: Mutex<Option<HungSyncs>>,
    /// What the operator has freed.
    pub(crate) deprived: Mutex<Vec<Deprived>>,
    pub(crate) happened: Mutex<Vec<Happened>>,
    /// Of each server: it is stopped and started by one fault at a time, also where a start takes longer than
    /// planned.
    pub(crate) turns: Vec<tokio::sync::Mutex<()>>,
    /// The same of each worker and its connections.
    pub(crate) line_turns: Vec<tokio::sync::Mutex<()>>,
}

impl Stage {
    /// Carries one fault out, from its beginning to its end.
    pub(crate) async fn inject(&self, planned: PlannedFault) -> Result<()> {
        let mut turns = Vec::new();
        for node in self.needs(planned.fault) {
            turns.push(self.turns[node].lock().await);
        }
        for worker in self.needs_lines(planned.fault) {
            turns.push(self.line_turns[worker].lock().await);
        }
        let dropped = self.dropped(planned.fault);
        let from = nanos();
        let mut effect = self.begin(planned.fault).await?;
        let inner_from = nanos();
        if !planned.fault.lasts_by_itself() {
            tokio::time::sleep(planned.fault.length()).await;
        }
        let inner_until = nanos();
        effect = self.end(planned.fault).await?.or(effect);
        if let (Some(before), Some(now)) = (dropped, self.dropped(planned.fault)) {
            effect = Some(now - before);
        }
        let happened = Happened { planned, from, until: nanos(), inner_from, inner_until, effect };
        self.happened.lock().map_err(|_| Error::failed("a fault panicked"))?.push(happened);
        Ok(())
    }

    /// The servers that must be running when this fault begins, in their order. Such faults of a server come
    /// one after the other: on a busy machine a server takes longer to start than the schedule allows for.
    fn needs(&self, fault: Fault) -> std::ops::Range<usize> {
        match fault {
            Fault::KillServer { node, .. }
            | Fault::RestartServer { node, .. }
            | Fault::PauseServer { node, .. }
            | Fault::KillSessions { node }
            | Fault::KillListeners { node }
            | Fault::FlushScripts { node } => node as usize..node as usize + 1,
            Fault::Restore { node, .. } => self.go_back(node),
            Fault::KillAll { .. }
            | Fault::KillLeader { .. }
            | Fault::KillAhead { .. }
            | Fault::Rogue { .. } => 0..self.turns.len(),
            _ => 0..0,
        }
    }

    /// The workers who are replaced, or whose connections are healed, at the end of this fault, in their order.
    /// One that comes before the end of another would be healed with it.
    fn needs_lines(&self, fault: Fault) -> std::ops::Range<usize> {
        match fault {
            Fault::CrashWorker { worker, .. }
            | Fault::Blackhole { worker, .. }
            | Fault::Cut { worker, .. }
            | Fault::Delay { worker, .. }
            | Fault::Hold { worker, .. }
            | Fault::DropReply { worker, .. }
            | Fault::HoldBack { worker, .. } => worker as usize..worker as usize + 1,
            Fault::LoseNode { .. } => 0..self.line_turns.len(),
            _ => 0..0,
        }
    }

    /// How many replies have been dropped so far, if the fault is one that drops them.
    fn dropped(&self, fault: Fault) -> Option<u64> {
        match fault {
            Fault::DropReply { worker, .. } => Some(self.proxies(worker).map(Proxy::dropped_replies).sum()),
            _ => None,
        }
    }

    /// Returns how much it did, where that can be counted.
    async fn begin(&self, fault: Fault) -> Result<Option<u64>> {
        match fault {
            Fault::KillWorker { worker } | Fault::CrashWorker { worker, .. } => {
                self.signal(worker, Signal::KILL)?;
            }
            Fault::StopWorker { worker, .. } => self.signal(worker, Signal::STOP)?,
            Fault::Blackhole { worker, way, .. } => {
                self.proxies(worker).for_each(|proxy| proxy.blackhole(direction(way)));
            }
            Fault::LoseNode { node, .. } => {
                self.ways_to(node).for_each(|proxy| proxy.blackhole(Direction::Both));
            }
            Fault::Cut { worker, .. } => self.proxies(worker).for_each(Proxy::cut),
            Fault::Reset { worker } => self.proxies(worker).for_each(Proxy::cut_existing),
            Fault::Delay { worker, each_way, .. } => {
                self.proxies(worker).for_each(|proxy| proxy.delay(Duration::from_millis(each_way)));
            }
            Fault::Hold { worker, way, .. } => {
                self.proxies(worker).for_each(|proxy| proxy.hold(direction(way)));
            }
            Fault::DropReply { worker, request, .. } => {
                self.proxies(worker).for_each(|proxy| proxy.drop_reply(request));
            }
            Fault::HoldBack { worker, .. } => self.proxies(worker).for_each(Proxy::hold_back),
            Fault::PauseServer { node, .. } => self.server(node).pause().map_err(failed)?,
            Fault::RestartServer { node, .. } => self.server(node).stop().await.map_err(failed)?,
            Fault::KillServer { node, .. } => self.server(node).kill().map_err(failed)?,
            Fault::KillAll { .. } => {
                for node in &self.servers.nodes {
                    node.server().kill().map_err(failed)?;
                }
            }
            Fault::KillLeader { .. } => self.kill_leader().await?,
            Fault::KillAhead { ahead, .. } => self.kill_ahead(ahead).await?,
            Fault::HangLeader { .. } => self.hang_leader().await?,
            Fault::Island { of_leader, .. } => self.isolate(of_leader).await?,
            Fault::Promote { planned } => self.promote(planned).await?,
            Fault::TruncateLog { node, bytes } => self.truncate_log(node, bytes)?,
            Fault::LoseData { node } => self.lose_data(node).await?,
            Fault::ForceRelease { lock } => {
                let operator = self.operator.as_ref().ok_or_else(|| Error::failed("there is no operator"))?;
                let from = nanos();
                let freed = operator.force_release(&*self.names[lock as usize]).await?;
                let (span, holders) =
                    (Span { from, until: nanos() }, u64::try_from(freed).unwrap_or(u64::MAX));
                let mut deprived = self.deprived.lock().map_err(|_| Error::failed("a fault panicked"))?;
                deprived.push(Deprived { lock, span, holders });
            }
            Fault::FlushAll { node } => self.redis(node, &["FLUSHALL"]).map(drop)?,
            Fault::FlushScripts { node } => self.redis(node, &["SCRIPT", "FLUSH"]).map(drop)?,
            Fault::ExpireCertificate { node, .. } => self.show_certificate(node, "expired")?,
            Fault::Restore { node, .. } => self.back_up(node).await?,
            Fault::KillSessions { node } => return self.kill_sessions(node).await.map(Some),
            Fault::KillListeners { node } => return self.kill_listeners(node).await.map(Some),
            Fault::Rogue { millis } => self.rogue(millis).await?,
            Fault::Deadlocks { millis } => self.deadlocks(millis).await?,
            Fault::StepServerClock { node, by, .. } => self.step_server(node, by)?,
            Fault::StepWorkerClock { worker, by, .. } => self.clocks()?.step(&worker_clock(worker), by)?,
            Fault::LongReader { millis } => self.long_reader(millis).await?,
            Fault::FillDisk { millis } => self.fill_disk(millis).await?,
            Fault::RemoveFolder => self.remove_folder().await?,
        }
        Ok(None)
    }

    /// As [`begin`](Self::begin).
    async fn end(&self, fault: Fault) -> Result<Option<u64>> {
        match fault {
            Fault::CrashWorker { worker, .. } => self.posts[worker as usize].replace().await?,
            Fault::StopWorker { worker, .. } => self.signal(worker, Signal::CONT)?,
            Fault::HoldBack { worker, .. } => {
                return Ok(Some(self.proxies(worker).map(Proxy::deliver).sum()));
            }
            Fault::Blackhole { worker, .. }
            | Fault::Cut { worker, .. }
            | Fault::Delay { worker, .. }
            | Fault::Hold { worker, .. }
            | Fault::DropReply { worker, .. } => self.proxies(worker).for_each(Proxy::heal),
            Fault::LoseNode { node, .. } => self.ways_to(node).for_each(Proxy::heal),
            Fault::PauseServer { node, .. } => self.server(node).resume().map_err(failed)?,
            Fault::RestartServer { node, .. }
            | Fault::KillServer { node, .. }
            | Fault::TruncateLog { node, .. }
            | Fault::LoseData { node } => self.server(node).restart().await.map_err(failed)?,
            Fault::KillAll { .. } => self.restart_together(0..self.servers.nodes.len()).await?,
            Fault::KillLeader { .. } | Fault::KillAhead { .. } => self.restart_chosen().await?,
            Fault::HangLeader { .. } => self.hang_no_more(),
            Fault::Island { .. } => self.rejoin()?,
            Fault::ExpireCertificate { node, .. } => self.show_certificate(node, "member")?,
            Fault::Restore { node, .. } => self.restore(node).await?,
            Fault::StepServerClock { node, millis: 1.., .. } => self.step_server(node, 0)?,
            Fault::StepWorkerClock { worker, .. } => self.clocks()?.step(&worker_clock(worker), 0)?,
            _ => (),
        }
        Ok(None)
    }

    fn proxies(&self, worker: u32) -> impl Iterator<Item = &Proxy> {
        self.lines[worker as usize].proxies.iter()
    }

    /// Those of all workers to this server.
    fn ways_to(&self, node: u32) -> impl Iterator<Item = &Proxy> {
        self.lines.iter().filter_map(move |line| line.proxies.get(node as usize))
    }

    fn server(&self, node: u32) -> &Server {
        self.servers.nodes[node as usize].server()
    }

    fn clocks(&self) -> Result<&Clocks> {
        self.servers.clocks.as_ref().ok_or_else(|| Error::failed("no clock can be stepped"))
    }

    fn step_server(&self, node: u32, by: i64) -> Result<()> {
        // The members of an ensemble share one clock.
        let node = if self.servers.ensemble.is_some() { 0 } else { node };
        self.clocks()?.step(&server_clock(node), by)
    }

    fn signal(&self, worker: u32, signal: Signal) -> Result<()> {
        let id =
            self.posts[worker as usize].id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let id = id.ok_or_else(|| Error::failed("the worker is no process"))?;
        kill_process(id, signal).map_err(|errno| Error::failed(format!("a signal to a worker: {errno}")))
    }
}

fn direction(way: Way) -> Direction {
    match way {
        Way::ToServer => Direction::ToServer,
        Way::ToClient => Direction::ToClient,
        Way::Both => Direction::Both,
    }
}
