//! A throwaway Redis Cluster.

use std::{
    net::SocketAddr,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use super::{Program, Redis, Role, refuse_redis_6, with_master_password};
use crate::{
    Error, Options,
    group::{Readiness, hosts, logs, start_all, until_ready},
    server::blocking,
};

const NAME: &str = "redis-cluster";

const SLOTS: usize = 16_384;

/// A throwaway Redis Cluster: masters that share all slots evenly and in order, without replicas, or each
/// with one.
///
/// A cheap handle: clones are the same cluster. A node that is killed without having a replica keeps its
/// slots, and the others refuse all keys some seconds later, until it is back, unless there is a setting
/// `cluster-require-full-coverage no`. The nodes find each other again by themselves.
#[derive(Debug, Clone)]
pub struct RedisCluster {
    nodes: Arc<[Redis]>,
    replicas: Arc<[Redis]>,
}

impl RedisCluster {
    /// Whether the program is on this machine, and if not, why.
    pub fn installed() -> Result<(), Error> {
        Redis::installed()
    }

    /// Starts this number of masters, usually three. The options apply to each of them. They take each other
    /// for dead after two seconds, if there is no setting `cluster-node-timeout`.
    ///
    /// [`Error::TooOld`] for releases before 7, whose nodes have no ports of their choice for each other.
    pub async fn start(masters: usize, options: &Options) -> Result<Self, Error> {
        refuse_redis_6(options, "clusters are started from release 7 on")?;
        let nodes = start_nodes(masters, options).await?.into();
        let this = Self { nodes, replicas: Arc::new([]) };
        let nodes = this.nodes.clone();
        blocking(move || introduce(&nodes)).await?;
        this.ready().await?;
        Ok(this)
    }

    /// The same with one replica for each master, which takes its place when the others take it for dead.
    pub async fn start_with_replicas(masters: usize, options: &Options) -> Result<Self, Error> {
        let this = Self::start(masters, &with_master_password(options)).await?;
        let replicas = start_nodes(masters, &with_master_password(options)).await?.into();
        let this = Self { replicas, ..this };
        let group = this.clone();
        blocking(move || {
            for replica in &*group.replicas {
                meet(&group.nodes[0], replica)?;
            }
            for (master, replica) in group.nodes.iter().zip(&*group.replicas) {
                follow(master, replica)?;
            }
            Ok(())
        })
        .await?;
        this.ready().await?;
        Ok(this)
    }

    /// The nodes that began as masters.
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// The nodes that began as replicas, in the order of their masters.
    pub fn replicas(&self) -> &[Redis] {
        &self.replicas
    }

    /// The addresses of the nodes for clients, in the same order.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(Redis::peer_addr).collect()
    }

    /// Its URL, without a password.
    pub fn url(&self) -> String {
        let scheme =
            if self.nodes.iter().any(|node| node.addr() != node.peer_addr()) { "rediss" } else { "redis" };
        format!("{scheme}+cluster://{}", hosts(&self.addresses()))
    }

    /// Waits until every node says that the cluster is well, and all say the same about who has which slots.
    /// For use after a restart of nodes; at the start it has been done.
    pub async fn ready(&self) -> Result<(), Error> {
        let nodes: Vec<Redis> = self.nodes.iter().chain(&*self.replicas).cloned().collect();
        let witness = nodes.clone();
        until_ready(
            NAME,
            move || Ok(readiness(&nodes)),
            move || logs(witness.iter().map(|node| &node.server)),
        )
        .await
    }
}

async fn start_nodes(count: usize, options: &Options) -> Result<Vec<Redis>, Error> {
    if count == 0 || count > 1000 {
        return Err(Error::State(format!("no cluster of {count} masters")));
    }
    let mut starts = Vec::new();
    for _ in 0..count {
        let (program, options) = (Program::find(Role::ClusterNode, options)?, options.clone());
        starts.push(async move { Redis::launch(program, &options).await });
    }
    start_all(starts).await
}

/// Assigns the slots, and connects the first node to the others, which learn of each other from it.
fn introduce(nodes: &[Redis]) -> Result<(), Error> {
    for (index, node) in nodes.iter().enumerate() {
        let first = (index * SLOTS / nodes.len()).to_string();
        let last = ((index + 1) * SLOTS / nodes.len() - 1).to_string();
        run_command(node, &["CLUSTER", "ADDSLOTSRANGE", &first, &last])?;
        // Different from the start, so that they need not sort it out.
        run_command(node, &["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()])?;
    }
    let Some((first, others)) = nodes.split_first() else { return Ok(()) };
    others.iter().try_for_each(|other| meet(first, other))
}

fn meet(first: &Redis, other: &Redis) -> Result<(), Error> {
    let (ip, port) = (other.addr().ip().to_string(), other.peer_addr().port().to_string());
    let bus = other.more_ports().last().map(ToString::to_string).unwrap_or_default();
    run_command(first, &["CLUSTER", "MEET", &ip, &port, &bus])
}

/// Makes a node the replica of a master, as soon as it knows that master.
fn follow(master: &Redis, replica: &Redis) -> Result<(), Error> {
    let answer = master.command(&["CLUSTER", "MYID"])?;
    let id = answer.split("\r\n").nth(1).unwrap_or_default().to_owned();
    let begun = Instant::now();
    loop {
        match run_command(replica, &["CLUSTER", "REPLICATE", &id]) {
            Err(_) if begun.elapsed() < Duration::from_secs(20) => thread::sleep(Duration::from_millis(20)),
            done => return done,
        }
    }
}

fn run_command(node: &Redis, words: &[&str]) -> Result<(), Error> {
    match node.command(words)?.trim_end() {
        "+OK" => Ok(()),
        refusal => Err(Error::State(format!("{} to {}: {refusal}", words.join(" "), node.addr()))),
    }
}

fn readiness(nodes: &[Redis]) -> Readiness {
    let mut common: Option<Vec<String>> = None;
    for node in nodes {
        let view = match view(node, nodes.len()) {
            Ok(view) => view,
            Err(why) => return Readiness::NotYet(format!("{}: {why}", node.addr())),
        };
        if common.get_or_insert_with(|| view.clone()) != &view {
            return Readiness::NotYet(format!("{common:?} and {view:?}"));
        }
    }
    Readiness::Ready
}

/// What a node knows about itself and the others: a line for each, with its address and its slots.
fn view(node: &Redis, size: usize) -> Result<Vec<String>, String> {
    let ask = |what| node.ask(&["CLUSTER", what]).map_err(|error| error.to_string());
    let info = ask("INFO")?;
    if !info.contains("cluster_state:ok\r\n") || !info.contains("cluster_slots_ok:16384\r\n") {
        return Err(info);
    }
    let own = node.ask(&["INFO", "replication"]).map_err(|error| error.to_string())?;
    if own.contains("role:slave\r\n") && !own.contains("master_link_status:up\r\n") {
        return Err(own);
    }
    let nodes = ask("NODES")?;
    // A line is: id, address, flags, master, ping, pong, epoch, state of the link, slots ...
    let mut lines: Vec<String> = Vec::new();
    for words in nodes.lines().map(|line| line.split(' ').collect::<Vec<_>>()) {
        if let [id, address, flags, _, _, _, _, link, slots @ ..] = &*words {
            let role = flags.trim_start_matches("myself,");
            if !matches!(role, "master" | "slave") || *link != "connected" {
                return Err(nodes);
            }
            lines.push(format!("{id} {address} {role} {}", slots.join(" ")));
        }
    }
    lines.sort();
    if lines.len() == size { Ok(lines) } else { Err(nodes) }
}
