//! A throwaway etcd.

pub(crate) mod cluster;
mod program;

use std::net::SocketAddr;

use self::program::Program;
use crate::{
    Error, HungSyncs, Options, Release, Server,
    server::is_a_server,
    wire::{LONG, SHORT, exchange},
};

/// A throwaway etcd, a single one or a member of an [`EtcdCluster`](crate::EtcdCluster). It never holds a
/// write in its own memory, so [`Durability::Fast`](crate::Durability::Fast) is the same as
/// [`Durability::OsCache`](crate::Durability::OsCache), and both are the same as the default.
///
/// It is a [`Server`], which see for killing, pausing and restarting.
#[derive(Debug, Clone)]
pub struct Etcd {
    server: Server,
}

impl Etcd {
    /// Whether the program is on this machine, and if not, why.
    pub fn installed() -> Result<(), Error> {
        Program::find(None, &Options::new()).map(drop)
    }

    /// Starts one with the default options.
    pub async fn start() -> Result<Self, Error> {
        Self::start_with(&Options::new()).await
    }

    /// Starts one. Settings are flags: `.setting("quota-backend-bytes", "1000000")` is
    /// `--quota-backend-bytes=1000000`. With [`Options::tls`] it takes TLS connections only, and wants a
    /// certificate of the client.
    pub async fn start_with(options: &Options) -> Result<Self, Error> {
        Self::launch(Program::find(None, options)?, options).await
    }

    /// The program of a release.
    pub(crate) fn program(release: &Release) -> Result<String, Error> {
        program::path(release)
    }

    async fn launch(program: Program, options: &Options) -> Result<Self, Error> {
        Ok(Self { server: Server::start(program, options).await? })
    }

    /// Its URL.
    pub fn url(&self) -> String {
        self.url_via(self.addr())
    }

    /// The same URL through another address, that of a [`Proxy`](crate::Proxy).
    pub fn url_via(&self, addr: SocketAddr) -> String {
        format!("etcd://{addr}")
    }

    /// Lets the disk hang for the log of the consensus, until the answer is dropped. A leader for which that
    /// is so cannot write and goes on as if it led: it answers keep-alives, and reads that need no majority.
    /// Blocks some milliseconds.
    pub fn hang_log(&self) -> Result<HungSyncs, Error> {
        let pid = self.pid().ok_or_else(|| Error::State("etcd does not run".into()))?;
        // The first file of the log, which a test does not fill.
        let log = self.folder().join("data/member/wal/0000000000000000-0000000000000000.wal");
        HungSyncs::begin(pid, &log)
    }

    /// Sends one request to its gateway for JSON, such as `/v3/auth/enable` with `{}`, and returns the
    /// answer. Not with TLS. Blocks, at most for half a minute.
    pub fn call(&self, path: &str, json: &str) -> Result<String, Error> {
        post(self.addr(), path, "", json, LONG).map_err(self.failed(path))
    }

    /// The same with the token of a login, which `/v3/auth/authenticate` gives.
    pub fn call_as(&self, token: &str, path: &str, json: &str) -> Result<String, Error> {
        let login = format!("Authorization: {token}\r\n");
        post(self.addr(), path, &login, json, LONG).map_err(self.failed(path))
    }

    fn failed(&self, path: &str) -> impl FnOnce(std::io::Error) -> Error + use<> {
        Error::io(format!("{path} at etcd on {}", self.addr()))
    }
}

/// `headers`: more of them, each with its end of line.
fn post(
    addr: SocketAddr,
    path: &str,
    headers: &str,
    json: &str,
    timeout: std::time::Duration,
) -> Result<String, std::io::Error> {
    let length = json.len();
    let request =
        format!("POST {path} HTTP/1.0\r\nHost: localhost\r\n{headers}Content-Length: {length}\r\n\r\n{json}");
    let answer = exchange(addr, request.as_bytes(), timeout)?;
    Ok(answer.split_once("\r\n\r\n").map_or_else(String::new, |(_, body)| body.to_owned()))
}

/// The ids of a server and of the leader that it knows; `None` while it does not answer.
fn member_and_leader(addr: SocketAddr) -> Option<(String, String)> {
    let status = post(addr, "/v3/maintenance/status", "", "{}", SHORT).ok()?;
    let field = |name: &str| {
        let (_, rest) = status.split_once(&format!("\"{name}\":\""))?;
        rest.split('"').next().map(str::to_owned)
    };
    Some((field("member_id")?, field("leader")?))
}

is_a_server!(Etcd);
