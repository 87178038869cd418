//! A throwaway Redis.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    ops::Deref,
    time::Duration,
};

use crate::{
    Durability, Error, Options, Server,
    kind::{Kind, Site},
    programs::find,
};

/// A throwaway Redis, a single node. With [`Durability::Fast`] it keeps all in memory and forgets it when it ends
/// in whatever way.
///
/// It is a [`Server`], which see for killing, pausing and restarting.
#[derive(Debug, Clone)]
pub struct Redis {
    server: Server,
}

impl Redis {
    /// Whether the program is on this machine, and if not, why.
    pub fn installed() -> Result<(), Error> {
        Program::find().map(drop)
    }

    /// Starts one with the default options.
    pub async fn start() -> Result<Self, Error> {
        Self::start_with(&Options::new()).await
    }

    /// Starts one. Settings are those of `redis.conf`.
    pub async fn start_with(options: &Options) -> Result<Self, Error> {
        Ok(Self { server: Server::start(Program::find()?, options).await? })
    }

    /// Its URL.
    pub fn url(&self) -> String {
        self.url_via(self.addr())
    }

    /// The same URL through another address, that of a [`Proxy`](crate::Proxy).
    pub fn url_via(&self, addr: SocketAddr) -> String {
        format!("redis://{addr}")
    }
}

impl Deref for Redis {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

#[derive(Debug)]
struct Program(String);

impl Program {
    fn find() -> Result<Self, Error> {
        find("redis-server", "redis-server").map(Self)
    }
}

impl Kind for Program {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn prepare(&self, site: &Site<'_>) -> Result<Vec<Vec<String>>, Error> {
        Ok(vec![vec!["mkdir".to_owned(), site.path("data")?]])
    }

    fn command(&self, site: &Site<'_>, addr: SocketAddr) -> Result<Vec<String>, Error> {
        let (append, sync) = match site.options.durability {
            Durability::Disk => ("yes", "always"),
            Durability::OsCache => ("yes", "no"),
            Durability::Fast => ("no", "no"),
        };
        let port = addr.port().to_string();
        let data = site.path("data")?;
        let mut command = vec![self.0.clone()];
        let ours = [("port", &*port), ("bind", "127.0.0.1"), ("save", ""), ("dir", &data)];
        let settings = ours.into_iter().chain([("appendonly", append), ("appendfsync", sync)]);
        let extra = site.options.settings.iter().map(|(name, value)| (&**name, &**value));
        for (name, value) in settings.chain(extra) {
            command.extend([format!("--{name}"), value.to_owned()]);
        }
        Ok(command)
    }

    fn ready(&self, _site: &Site<'_>, addr: SocketAddr, pid: u32, _log: &str) -> bool {
        // It answers while it is still loading its data, and says so.
        exchange(addr, b"INFO\r\nQUIT\r\n").is_ok_and(|answer| {
            answer.contains(&format!("process_id:{pid}\r\n")) && answer.contains("\r\nloading:0\r\n")
        })
    }
}

/// Sends a question and reads until the server closes the connection.
pub(crate) fn exchange(addr: SocketAddr, question: &[u8]) -> io::Result<String> {
    // One that takes the connection before it can answer may never answer it.
    let patience = Duration::from_secs(1);
    let mut stream = TcpStream::connect_timeout(&addr, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(question)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
