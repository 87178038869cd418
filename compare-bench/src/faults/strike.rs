//! Doing what a schedule says to real processes, servers and connections.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockwell::Locks;
use rustix::process::{Pid, Signal, kill_process};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use testbed::{Direction, Proxy};

use super::ground::{Ground, Line, Node, failed};
use super::nanos;
use super::schedule::{Fault, Strike, Way};
use crate::error::{Error, Result};

/// A fault as it happened. Times are nanoseconds of the boot clock.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Happened {
    #[serde(flatten)]
    pub(crate) strike: Strike,
    /// From before it began until after it was over.
    pub(crate) from: u64,
    pub(crate) until: u64,
    /// From after it began until before it was over.
    pub(crate) inner_from: u64,
    pub(crate) inner_until: u64,
}

/// What faults work on.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) ground: Ground,
    /// Of each worker.
    pub(crate) lines: Vec<Line>,
    /// The process ids of the workers, where they are processes.
    pub(crate) workers: Vec<Option<u32>>,
    /// The names of the locks.
    pub(crate) names: Vec<String>,
    /// The operator's client.
    pub(crate) operator: Option<Locks>,
    /// How many holders were deprived of their locks by the operator.
    pub(crate) deprived: AtomicU64,
    pub(crate) happened: Mutex<Vec<Happened>>,
}

impl Stage {
    /// Carries one fault out, from its beginning to its end.
    pub(crate) async fn strike(&self, strike: Strike) -> Result<()> {
        let from = nanos();
        self.begin(strike.fault).await?;
        let inner_from = nanos();
        // A transaction of the server lasts by itself.
        if !matches!(strike.fault, Fault::Rogue { .. }) {
            tokio::time::sleep(strike.fault.length()).await;
        }
        let inner_until = nanos();
        self.end(strike.fault).await?;
        let happened = Happened { strike, from, until: nanos(), inner_from, inner_until };
        self.happened.lock().map_err(|_| Error::failed("a fault panicked"))?.push(happened);
        Ok(())
    }

    async fn begin(&self, fault: Fault) -> Result<()> {
        match fault {
            Fault::KillWorker { worker } => self.signal(worker, Signal::KILL)?,
            Fault::StopWorker { worker, .. } => self.signal(worker, Signal::STOP)?,
            Fault::Blackhole { worker, way, .. } => {
                let direction = match way {
                    Way::ToServer => Direction::ToServer,
                    Way::ToClient => Direction::ToClient,
                    Way::Both => Direction::Both,
                };
                self.proxies(worker).for_each(|proxy| proxy.blackhole(direction));
            }
            Fault::Cut { worker, .. } => self.proxies(worker).for_each(Proxy::cut),
            Fault::Delay { worker, each_way, .. } => {
                self.proxies(worker).for_each(|proxy| proxy.delay(Duration::from_millis(each_way)));
            }
            Fault::DropReply { worker, request, .. } => {
                self.proxies(worker).for_each(|proxy| proxy.drop_reply(request));
            }
            Fault::HoldBack { worker, .. } => self.proxies(worker).for_each(Proxy::hold_back),
            Fault::PauseServer { node, .. } => self.node(node).server().pause().map_err(failed)?,
            Fault::RestartServer { node, .. } => self.node(node).server().stop().await.map_err(failed)?,
            Fault::KillServer { node, .. } => self.node(node).server().kill().map_err(failed)?,
            Fault::KillAll { .. } => {
                for node in &self.ground.nodes {
                    node.server().kill().map_err(failed)?;
                }
            }
            Fault::ForceRelease { lock } => {
                let operator = self.operator.as_ref().ok_or_else(|| Error::failed("there is no operator"))?;
                let freed = operator.force_release(&*self.names[lock as usize]).await?;
                self.deprived.fetch_add(u64::try_from(freed).unwrap_or(u64::MAX), Ordering::SeqCst);
            }
            Fault::FlushAll { node } => self.redis(node, &["FLUSHALL"])?,
            Fault::FlushScripts { node } => self.redis(node, &["SCRIPT", "FLUSH"])?,
            Fault::KillSessions { node } => self.kill_sessions(node).await?,
            Fault::Rogue { millis } => self.rogue(millis).await?,
        }
        Ok(())
    }

    async fn end(&self, fault: Fault) -> Result<()> {
        match fault {
            Fault::StopWorker { worker, .. } => self.signal(worker, Signal::CONT)?,
            Fault::HoldBack { worker, .. } => {
                for proxy in self.proxies(worker) {
                    proxy.deliver();
                }
            }
            Fault::Blackhole { worker, .. }
            | Fault::Cut { worker, .. }
            | Fault::Delay { worker, .. }
            | Fault::DropReply { worker, .. } => self.proxies(worker).for_each(Proxy::heal),
            Fault::PauseServer { node, .. } => self.node(node).server().resume().map_err(failed)?,
            Fault::RestartServer { node, .. } | Fault::KillServer { node, .. } => {
                self.node(node).server().restart().await.map_err(failed)?;
            }
            Fault::KillAll { .. } => {
                let starts = self.ground.nodes.iter().map(|node| node.server().restart());
                for started in futures_util::future::join_all(starts).await {
                    started.map_err(failed)?;
                }
            }
            Fault::KillWorker { .. }
            | Fault::ForceRelease { .. }
            | Fault::FlushAll { .. }
            | Fault::FlushScripts { .. }
            | Fault::KillSessions { .. }
            | Fault::Rogue { .. } => (),
        }
        Ok(())
    }

    fn proxies(&self, worker: u32) -> impl Iterator<Item = &Proxy> {
        self.lines[worker as usize].proxies.iter()
    }

    fn node(&self, node: u32) -> &Node {
        &self.ground.nodes[node as usize]
    }

    fn signal(&self, worker: u32, signal: Signal) -> Result<()> {
        let id = self.workers[worker as usize].and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let id = id.ok_or_else(|| Error::failed("the worker is no process"))?;
        kill_process(id, signal).map_err(|errno| Error::failed(format!("a signal to a worker: {errno}")))
    }

    fn redis(&self, node: u32, words: &[&str]) -> Result<()> {
        let Node::Redis(redis) = self.node(node) else { return Err(Error::failed("it is no Redis")) };
        let answer = redis.command(words).map_err(failed)?;
        if answer.starts_with('-') { Err(Error::failed(answer)) } else { Ok(()) }
    }

    async fn kill_sessions(&self, node: u32) -> Result<()> {
        match self.node(node) {
            Node::Postgres(server) => {
                let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                    WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'";
                server.admin_sql(sql).await.map_err(failed)?;
            }
            Node::MariaDb(server) => {
                let sql = "SELECT id FROM information_schema.processlist
                    WHERE id <> connection_id() AND user = 'root'";
                for id in server.admin_sql(sql).await.map_err(failed)?.lines() {
                    // It may have ended by itself.
                    if let Err(error) = server.admin_sql(&format!("KILL {id}")).await
                        && !error.to_string().contains("Unknown thread")
                    {
                        return Err(failed(error));
                    }
                }
            }
            Node::Redis(_) => self.redis(node, &["CLIENT", "KILL", "TYPE", "normal"])?,
            Node::ZooKeeper(_) => return Err(Error::failed("it has no such command")),
        }
        Ok(())
    }

    /// Somebody else's transaction has the rows for so long.
    async fn rogue(&self, millis: u64) -> Result<()> {
        let seconds = Duration::from_millis(millis).as_secs_f64();
        let select =
            "BEGIN; SELECT count(*) FROM (SELECT 1 FROM lockwell_locks FOR UPDATE) AS rows_of_locks;";
        match self.node(0) {
            Node::Postgres(server) => {
                server.admin_sql(&format!("{select} SELECT pg_sleep({seconds}); ROLLBACK")).await
            }
            Node::MariaDb(server) => {
                let select = "BEGIN; SELECT name FROM lockwell_locks FOR UPDATE;";
                server.admin_sql(&format!("{select} SELECT sleep({seconds}); ROLLBACK")).await
            }
            _ => return Err(Error::failed("it is no database")),
        }
        .map_err(failed)
        .map(drop)
    }
}
