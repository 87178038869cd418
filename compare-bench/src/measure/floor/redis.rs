//! The floor of Redis and of Redlock: the two commands that every recipe for a lock on Redis begins with.
//!
//! On several servers both go to all of them at once, and the cycle goes on when a majority has answered, as
//! a lock does. Any number of tasks share one connection to each server, as redis-rs means it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use lockwell::backend::{ServerUrl, async_trait};
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo,
    Value,
};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::measure::cycles::{cycles, together};
use crate::measure::floor::raw::{Owners, Raw, Server, TTL, key, refused};
use crate::stats::Sample;
use crate::target::server::PREFIX;

const CLEAR: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";

/// The lease in the server's unit.
const TTL_MS: i64 = TTL / 1000;

#[derive(Debug)]
pub(crate) struct RedisFloor {
    nodes: Nodes,
    owners: Owners,
}

/// Clones share the connections.
#[derive(Clone, Debug)]
struct Nodes {
    links: Vec<MultiplexedConnection>,
    /// By which the servers know the script.
    clear: String,
    /// What the keys begin with.
    prefix: String,
}

impl RedisFloor {
    pub(super) async fn connect(url: &ServerUrl) -> Result<Self> {
        let mut links = links(url).await?;
        let script = redis::Script::new(CLEAR);
        for link in &mut links {
            script.load_async(link).await?;
        }
        let prefix = url.option(PREFIX).unwrap_or_default().to_owned();
        let nodes = Nodes { links, clear: script.get_hash().to_owned(), prefix };
        Ok(Self { nodes, owners: Owners::default() })
    }
}

#[async_trait]
impl Raw for RedisFloor {
    fn shares(&self) -> bool {
        true
    }

    fn what(&self) -> &'static str {
        match self.nodes.links.len() {
            1 => "SET NX PX, then EVALSHA of compare and delete; one bare redis-rs connection",
            _ => "SET NX PX, then EVALSHA of compare and delete, on all nodes at once; waits for a majority",
        }
    }

    async fn cycle(&mut self, name: usize) -> Result<()> {
        self.nodes.cycle(name, self.owners.next()).await
    }

    /// As many tasks as there are names, all of them on the same connection.
    async fn crowd(&self, length: Duration, names: usize) -> Result<Sample> {
        together(names, |name| {
            let (nodes, mut owners) = (self.nodes.clone(), Owners::default());
            async move { cycles(length, || nodes.cycle(name, owners.next())).await }
        })
        .await
    }

    async fn server(&mut self) -> Result<Server> {
        let nodes = self.nodes.links.len();
        let link = &mut self.nodes.links[0];
        let info: String = redis::cmd("INFO").arg("server").query_async(link).await?;
        let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name));
        // Valkey names the Redis that it came from, too.
        let version = match (field("valkey_version:"), field("redis_version:")) {
            (Some(version), _) => format!("Valkey {version}"),
            (None, version) => format!("Redis {}", version.unwrap_or("?")),
        };
        let version = if nodes == 1 { version } else { format!("{nodes} x {version}") };
        let mut settings = Vec::new();
        for name in ["appendonly", "appendfsync"] {
            // Where that is not allowed, nothing is said.
            let answer = redis::cmd("CONFIG").arg("GET").arg(name).query_async(link).await;
            let found: Vec<(String, String)> = answer.unwrap_or_default();
            settings.extend(found.into_iter().map(|(_, value)| (name, value)));
        }
        Ok(Server { version, settings })
    }
}

impl Nodes {
    async fn cycle(&self, name: usize, owner: Uuid) -> Result<()> {
        let (name, owner) = (format!("{}{}", self.prefix, key(name)), owner.simple().to_string());
        let mut take = redis::cmd("SET");
        take.arg(&name).arg(&owner).arg("NX").arg("PX").arg(TTL_MS);
        self.all(&take, &Value::Okay).await?;
        let mut clear = redis::cmd("EVALSHA");
        clear.arg(&self.clear).arg(1).arg(&name).arg(&owner);
        self.all(&clear, &Value::Int(1)).await
    }

    /// Sends a command to every node, and waits until a majority has answered what it must.
    async fn all(&self, command: &redis::Cmd, expected: &Value) -> Result<()> {
        let links = match &self.links[..] {
            [link] => return one(link.clone(), command, expected).await,
            links => links,
        };
        let command = Arc::new(command.clone());
        let mut answers: FuturesUnordered<_> = links
            .iter()
            .map(|link| {
                let (link, command, expected) = (link.clone(), Arc::clone(&command), expected.clone());
                async move { one(link, &command, &expected).await }
            })
            .collect();
        for _ in 0..=links.len() / 2 {
            answers.next().await.ok_or_else(refused)??;
        }
        // The other nodes get the next command after this one, since a connection keeps the order.
        tokio::spawn(async move { while answers.next().await.is_some() {} });
        Ok(())
    }
}

async fn one(mut link: MultiplexedConnection, command: &redis::Cmd, expected: &Value) -> Result<()> {
    let answer: Value = command.query_async(&mut link).await?;
    if answer == *expected { Ok(()) } else { Err(refused()) }
}

/// A bare connection to each server.
pub(crate) async fn links(url: &ServerUrl) -> Result<Vec<MultiplexedConnection>> {
    let mut links = Vec::new();
    for host in url.hosts()? {
        links.push(
            connect(url, ConnectionAddr::Tcp(host.name().to_owned(), host.port().unwrap_or(6379))).await?,
        );
    }
    Ok(links)
}

async fn connect(url: &ServerUrl, addr: ConnectionAddr) -> Result<MultiplexedConnection> {
    let mut login = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3);
    if let Some(user) = url.user() {
        login = login.set_username(user);
    }
    if let Some(password) = url.password() {
        login = login.set_password(password.expose());
    }
    let path = url.path().trim_matches('/');
    if let Some(db) = url.option("db").or_else(|| Some(path).filter(|path| !path.is_empty())) {
        login = login.set_db(db.parse().map_err(|_| Error::failed("the database must be a number"))?);
    }
    let info = addr.into_connection_info()?.set_redis_settings(login);
    // As the backend does it.
    let client = Client::open(info.set_tcp_settings(TcpSettings::default().set_nodelay(true)))?;
    let config = AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(1024);
    Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
}
