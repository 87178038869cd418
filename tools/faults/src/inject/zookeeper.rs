//! Faults of what a `ZooKeeper` grants: the length of sessions, and sequence numbers.

use std::ffi::OsStr;

use testbed::ZooKeeper;

use super::super::servers::{Node, failed};
use super::Stage;
use super::data::run;
use crate::error::{Error, Result};

/// Changes the files of a server that is not running.
const PROGRAM: &str = include_str!("Renumber.java");

impl Stage {
    fn zookeeper(&self, node: u32) -> Result<&ZooKeeper> {
        match &self.servers.nodes[node as usize] {
            Node::ZooKeeper(server) => Ok(server),
            _ => Err(Error::failed("it is no ZooKeeper")),
        }
    }

    /// The server starts again, and grants sessions of so many milliseconds at most. One that it takes over
    /// gets that, too.
    pub(super) async fn bound_sessions(&self, node: u32, longest: u64) -> Result<()> {
        let server = self.zookeeper(node)?;
        server.stop().await.map_err(failed)?;
        server.set("maxSessionTimeout", &longest.to_string()).map_err(failed)?;
        server.restart().await.map_err(failed)
    }

    /// The server starts again with the sequence numbers of every other lock so far that idle locks begin
    /// anew, and those of the rest a few dozen before their last one.
    pub(super) async fn renumber(&self) -> Result<()> {
        let server = self.zookeeper(0)?;
        server.stop().await.map_err(failed)?;
        let program = server.folder().join("Renumber.java");
        std::fs::write(&program, PROGRAM)?;
        let (path, data) = (ZooKeeper::class_path().map_err(failed)?, server.folder().join("data"));
        let quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off";
        let words =
            [OsStr::new("-cp"), OsStr::new(&path), OsStr::new(quiet), program.as_os_str(), data.as_os_str()];
        let done = run("java", &words).await;
        server.restart().await.map_err(failed)?;
        done
    }
}
