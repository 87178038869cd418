//! A throwaway `ZooKeeper`.

mod classes;
pub(crate) mod ensemble;
mod java;
mod links;

use std::net::SocketAddr;

pub(crate) use self::java::class_path;
use self::java::{Java, SINCE};
use crate::{
    Error, Options, Release, Server,
    release::Family,
    server::is_a_server,
    wire::{LONG, exchange},
};

/// A throwaway `ZooKeeper`, a single one or a member of a [`ZooKeeperEnsemble`](crate::ZooKeeperEnsemble). It
/// never holds a write in its own memory, so [`Durability::Fast`](crate::Durability::Fast) is the same as
/// [`Durability::OsCache`](crate::Durability::OsCache).
///
/// It is a [`Server`], which see for killing, pausing and restarting.
#[derive(Debug, Clone)]
pub struct ZooKeeper {
    server: Server,
}

impl ZooKeeper {
    /// Whether the program is on this machine, and if not, why.
    pub fn installed() -> Result<(), Error> {
        Java::find(None, &Options::new()).map(drop)
    }

    /// The class path of Java programs that use its client.
    pub fn class_path() -> Result<String, Error> {
        java::class_path(Release::choose(Family::ZooKeeper, None)?)
    }

    /// The class path of Java programs that use Apache Curator.
    pub fn curator_class_path() -> Result<String, Error> {
        java::curator_class_path()
    }

    /// Starts one with the default options.
    pub async fn start() -> Result<Self, Error> {
        Self::start_with(&Options::new()).await
    }

    /// Starts one. Settings are those of `zoo.cfg`, and properties of its Java machine where they begin with
    /// `-D`.
    pub async fn start_with(options: &Options) -> Result<Self, Error> {
        Self::start_java(Java::find(None, options)?, options).await
    }

    async fn start_java(mut java: Java, options: &Options) -> Result<Self, Error> {
        java.classes = classes::find(&java, options).await;
        Ok(Self { server: Server::start(java, options).await? })
    }

    /// Its URL.
    pub fn url(&self) -> String {
        self.url_via(self.addr())
    }

    /// The same URL through another address, that of a [`Proxy`](crate::Proxy).
    pub fn url_via(&self, addr: SocketAddr) -> String {
        format!("zk://{addr}")
    }

    /// Gives it a setting of `zoo.cfg` that counts from its next start on.
    pub fn set(&self, name: &str, value: &str) -> Result<(), Error> {
        let file = self.folder().join(SINCE);
        let before = std::fs::read_to_string(&file).unwrap_or_default();
        std::fs::write(&file, format!("{before}{name}={value}\n"))
            .map_err(Error::io(file.display().to_string()))
    }

    /// The answer to one of the commands of four letters: `mntr`, `srvr`, `wchs`, `cons` and so on. Blocks,
    /// at most for half a minute.
    pub fn four_letter(&self, word: &str) -> Result<String, Error> {
        exchange(self.addr(), word.as_bytes(), LONG)
            .map_err(Error::io(format!("{word} to zookeeper on {}", self.addr())))
    }
}

is_a_server!(ZooKeeper);
