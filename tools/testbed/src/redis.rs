//! A throwaway Redis.

pub(crate) mod cluster;
mod program;
mod resp;
pub(crate) mod sentinel;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use self::program::{Program, Role, SOCKET};
use crate::{
    Error, Family, Options, Release, Server,
    group::{Readiness, until_ready},
    server::is_a_server,
    wire::{LONG, SHORT},
};

/// A throwaway Redis, a single node. With [`Durability::Fast`](crate::Durability::Fast) it keeps all in
/// memory and forgets it when it ends in whatever way.
///
/// It is a [`Server`], which see for killing, pausing and restarting.
#[derive(Debug, Clone)]
pub struct Redis {
    server: Server,
}

impl Redis {
    /// Whether the program is on this machine, and if not, why.
    pub fn installed() -> Result<(), Error> {
        Program::find(Role::Single, &Options::new()).map(drop)
    }

    /// Starts one with the default options.
    pub async fn start() -> Result<Self, Error> {
        Self::start_with(&Options::new()).await
    }

    /// Starts one. Settings are those of `redis.conf`; a value of several words is one text, as in
    /// `.setting("client-output-buffer-limit", "normal 0 0 0")`. With `requirepass` or `aclfile` the answer
    /// to strangers does not show who it is, so leave the `loglevel` as it is then.
    pub async fn start_with(options: &Options) -> Result<Self, Error> {
        Self::launch(Program::find(Role::Single, options)?, options).await
    }

    /// Starts a replica of the Redis at `master`, which can be a [`Proxy`](crate::Proxy) in front of it, and
    /// waits until it has its data. A `requirepass` is taken to be the master's password too.
    ///
    /// What it is later, it remembers over a restart only if somebody has told it `CONFIG REWRITE`.
    pub async fn start_replica(master: SocketAddr, options: &Options) -> Result<Self, Error> {
        let mut program = Program::find(Role::Single, options)?;
        program.first_lines = format!("replicaof {} {}\n", master.ip(), master.port());
        let this = Self::launch(program, &with_master_password(options)).await?;
        let (replica, server) = (this.clone(), this.server.clone());
        let readiness = move || {
            Ok(match replica.ask(&["INFO", "replication"]) {
                Ok(info) if info.contains("\r\nmaster_link_status:up\r\n") => Readiness::Ready,
                Ok(info) => Readiness::NotYet(info),
                Err(error) => Readiness::NotYet(error.to_string()),
            })
        };
        until_ready("redis", readiness, move || server.log_tail()).await?;
        Ok(this)
    }

    /// The program of a release.
    pub(crate) fn program(release: &Release) -> Result<String, Error> {
        program::path(release)
    }

    async fn launch(program: Program, options: &Options) -> Result<Self, Error> {
        Ok(Self { server: Server::start(program, options).await? })
    }

    /// Its URL, without a password.
    pub fn url(&self) -> String {
        self.url_via(self.addr())
    }

    /// The same URL through another address, that of a [`Proxy`](crate::Proxy).
    pub fn url_via(&self, addr: SocketAddr) -> String {
        format!("redis://{addr}")
    }

    /// The address on which others of its group, and clients with TLS, find it: its port for TLS, if it has
    /// one.
    pub fn peer_addr(&self) -> SocketAddr {
        let mut addr = self.addr();
        if let (Some(_), Some(port)) = (&self.server.options().tls, self.more_ports().first()) {
            addr.set_port(*port);
        }
        addr
    }

    /// The path of its Unix socket, in its folder if the setting `unixsocket` does not say otherwise.
    pub fn unix_socket(&self) -> PathBuf {
        // A name without a folder is one in its working folder.
        self.folder().join("data").join(self.setting("unixsocket").unwrap_or(SOCKET))
    }

    /// Sends one command on a connection of its own and returns the answer as it comes over the wire, such as
    /// `"+OK\r\n"`. An error that the server answers is an answer too: `"-ERR ..."`.
    ///
    /// If there is a setting `requirepass`, it logs in with it. `DEBUG` needs the setting
    /// `enable-debug-command`. Blocks, at most for half a minute.
    pub fn command(&self, words: &[&str]) -> Result<String, Error> {
        self.send(words, LONG)
    }

    /// Like [`Redis::command`], as the user `user`.
    pub fn command_as(&self, user: &str, password: &str, words: &[&str]) -> Result<String, Error> {
        resp::command(self.addr(), Some((user, password)), words, LONG)
    }

    /// A command that a healthy server answers at once.
    fn ask(&self, words: &[&str]) -> Result<String, Error> {
        self.send(words, SHORT)
    }

    fn send(&self, words: &[&str], timeout: Duration) -> Result<String, Error> {
        let login = self.setting("requirepass").map(|password| ("default", password));
        resp::command(self.addr(), login, words, timeout)
    }
}

is_a_server!(Redis);

/// [`Error::TooOld`] if the servers would be of release 6, with what it lacks.
fn refuse_redis_6(options: &Options, why: &str) -> Result<(), Error> {
    let release = options.release_of(Family::Redis)?;
    if release.is_redis_6() { Err(Error::TooOld(format!("{}: {why}", release.title()))) } else { Ok(()) }
}

/// A node that is or may become a replica needs the password that it asks for itself.
fn with_master_password(options: &Options) -> Options {
    match (options.value("requirepass"), options.value("masterauth")) {
        (Some(password), None) => options.clone().setting("masterauth", password),
        _ => options.clone(),
    }
}
