//! A throwaway Redis with Sentinel.

use std::{collections::HashMap, net::SocketAddr, sync::Arc};

use super::{Program, Redis, Role, refuse_redis_6, resp::field, with_master_password};
use crate::{
    Error, Options,
    group::{Readiness, hosts, logs, start_all, until_ready},
    server::blocking,
};

const NAME: &str = "redis-sentinel";

/// What the sentinels call the master.
const MASTER: &str = "mymaster";

const SENTINELS: usize = 3;

/// How many sentinels have to agree.
const QUORUM: usize = 2;

/// A throwaway Redis with one replica and three sentinels, which make the replica the master some two seconds
/// after they have seen the last of the master. The old one becomes a replica when it is back.
///
/// A cheap handle: clones are the same group.
#[derive(Debug, Clone)]
pub struct RedisSentinel {
    members: Arc<Members>,
}

#[derive(Debug)]
struct Members {
    master: Redis,
    replica: Redis,
    sentinels: Vec<Redis>,
}

impl RedisSentinel {
    /// Whether the program is on this machine, and if not, why.
    pub fn installed() -> Result<(), Error> {
        Redis::installed()
    }

    /// Starts a group with the default options.
    pub async fn start() -> Result<Self, Error> {
        Self::start_with(&Options::new()).await
    }

    /// Starts a group. The settings go to the two data nodes, and not to the sentinels, who learn a
    /// `requirepass` and need no password themselves.
    pub async fn start_with(options: &Options) -> Result<Self, Error> {
        Self::launch(options, options.without_settings()).await
    }

    /// Starts a group whose sentinels, too, ask for a password, with which they log in to each other.
    ///
    /// [`Error::TooOld`] for releases before 6.2, whose sentinels cannot log in.
    pub async fn start_protected(options: &Options, of_sentinels: &str) -> Result<Self, Error> {
        refuse_redis_6(options, "sentinels cannot log in to each other")?;
        Self::launch(options, options.without_settings().setting("requirepass", of_sentinels)).await
    }

    async fn launch(options: &Options, of_sentinels: Options) -> Result<Self, Error> {
        let master = Redis::start_with(&with_master_password(options)).await?;
        let replica = Redis::start_replica(master.peer_addr(), options).await?;
        let mut starts = Vec::new();
        for _ in 0..SENTINELS {
            let mut program = Program::find(Role::Sentinel, options)?;
            program.first_lines = configuration(MASTER, master.peer_addr(), options);
            let options = of_sentinels.clone();
            starts.push(async move { Redis::launch(program, &options).await });
        }
        let sentinels = start_all(starts).await?;
        let this = Self { members: Members { master, replica, sentinels }.into() };
        let members = this.members.clone();
        blocking(move || members.sentinels.iter().try_for_each(probe_often)).await?;
        this.ready().await?;
        Ok(this)
    }

    /// The node that began as the master.
    pub fn master(&self) -> &Redis {
        &self.members.master
    }

    /// The node that began as the replica.
    pub fn replica(&self) -> &Redis {
        &self.members.replica
    }

    /// The sentinels.
    pub fn sentinels(&self) -> &[Redis] {
        &self.members.sentinels
    }

    /// The addresses of the sentinels for clients, in the same order.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.members.sentinels.iter().map(Redis::peer_addr).collect()
    }

    /// Its URL, without a password.
    pub fn url(&self) -> String {
        self.url_via(&self.addresses())
    }

    /// The same URL through other addresses of the sentinels, those of a [`Proxy`](crate::Proxy) each. The
    /// master's address stays what it is.
    pub fn url_via(&self, sentinels: &[SocketAddr]) -> String {
        let master = &self.members.master;
        let scheme = if master.addr() == master.peer_addr() { "redis" } else { "rediss" };
        format!("{scheme}+sentinel://{}/{MASTER}", hosts(sentinels))
    }

    /// Starts one more sentinel, which knows the first master by another address, that of a
    /// [`Proxy`](crate::Proxy), and leaves the group alone. Clients that ask it go through the proxy. Returns
    /// it and the name that it has for the master.
    pub async fn start_guide(&self, master: SocketAddr) -> Result<(Redis, String), Error> {
        let mut program = Program::find(Role::Sentinel, self.members.master.options())?;
        // The other sentinels would take a master of the same name for theirs.
        let name = format!("{MASTER}-at-{}", master.port());
        program.first_lines = configuration(&name, master, &Options::new())
            + &format!(
                "sentinel down-after-milliseconds {name} 600000\nsentinel failover-timeout {name} 600000\n"
            );
        let guide = Redis::launch(program, &self.members.sentinels[0].options().without_settings()).await?;
        let (asked, named) = (guide.clone(), name.clone());
        let readiness = move || {
            let seen = asked.ask(&["SENTINEL", "MASTER", &named]).unwrap_or_default();
            Ok(if field(&seen, "flags") == Some("master") {
                Readiness::Ready
            } else {
                Readiness::NotYet(seen)
            })
        };
        let server = guide.server.clone();
        until_ready(NAME, readiness, move || server.log_tail()).await?;
        Ok((guide, name))
    }

    /// Where the master is now, as at least two sentinels say. One that is paused costs a second.
    pub async fn present_master(&self) -> Result<SocketAddr, Error> {
        let members = self.members.clone();
        blocking(move || present_master(&members.sentinels)).await
    }

    /// Waits until every sentinel sees a master, a replica that is in step, and the other sentinels. For use
    /// after a failover or a restart; at the start it has been done.
    pub async fn ready(&self) -> Result<(), Error> {
        let (members, witness) = (self.members.clone(), self.members.clone());
        let readiness = move || Ok(readiness(&members.sentinels));
        until_ready(NAME, readiness, move || logs(witness.sentinels.iter().map(|sentinel| &sentinel.server)))
            .await
    }
}

/// What a sentinel begins with. It writes down in the same file what it learns.
fn configuration(name: &str, master: SocketAddr, options: &Options) -> String {
    let (ip, port) = (master.ip(), master.port());
    let mut lines = vec![
        format!("sentinel monitor {name} {ip} {port} {QUORUM}\n"),
        format!("sentinel down-after-milliseconds {name} 1000\n"),
        format!("sentinel failover-timeout {name} 4000\n"),
    ];
    if let Some(password) = options.value("requirepass") {
        let quoted = password.replace('\\', "\\\\").replace('"', "\\\"");
        lines.push(format!("sentinel auth-pass {name} \"{quoted}\"\n"));
    }
    lines.concat()
}

/// Makes a sentinel look at the nodes, and talk to the others, every half second and not every ten or two
/// seconds, until it is restarted. It waits for some of these rounds before it makes a returning master a
/// replica.
fn probe_often(sentinel: &Redis) -> Result<(), Error> {
    // Not asked again, so it has more time than what is.
    let answer = sentinel.command(&["SENTINEL", "DEBUG", "info-period", "500", "publish-period", "500"])?;
    // One from before Redis 7 can not, and takes its time.
    tracing::debug!(sentinel = %sentinel.addr(), answer, "probes its nodes often");
    Ok(())
}

fn present_master(sentinels: &[Redis]) -> Result<SocketAddr, Error> {
    let mut votes: HashMap<SocketAddr, usize> = HashMap::new();
    for sentinel in sentinels {
        // One that is down has no vote. The answer is a list of two texts: address and port.
        let answer = sentinel.ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER]).unwrap_or_default();
        let words: Vec<&str> = answer.split("\r\n").collect();
        if let [_, _, ip, _, port, ..] = &*words
            && let Ok(addr) = format!("{ip}:{port}").parse()
        {
            *votes.entry(addr).or_default() += 1;
        }
    }
    let winner = votes.iter().find(|(_, count)| **count >= QUORUM).map(|(addr, _)| *addr);
    winner.ok_or_else(|| Error::State(format!("the sentinels do not agree on a master: {votes:?}")))
}

fn readiness(sentinels: &[Redis]) -> Readiness {
    match sentinels.iter().try_for_each(check) {
        Ok(()) => Readiness::Ready,
        Err(why) => Readiness::NotYet(why),
    }
}

fn check(sentinel: &Redis) -> Result<(), String> {
    let ask = |what| sentinel.ask(&["SENTINEL", what, MASTER]).map_err(|error| error.to_string());
    let master = ask("MASTER")?;
    let others = (SENTINELS - 1).to_string();
    let seen = field(&master, "flags") == Some("master")
        && field(&master, "num-slaves") == Some("1")
        && field(&master, "num-other-sentinels") == Some(&others);
    if !seen {
        return Err(master);
    }
    // It learns the second one from the replica itself.
    let replica = ask("REPLICAS")?;
    let in_step =
        field(&replica, "flags") == Some("slave") && field(&replica, "master-link-status") == Some("ok");
    if in_step { Ok(()) } else { Err(replica) }
}
