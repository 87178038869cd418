//! Faults of what servers keep: data, files and certificates.

use std::ffi::OsStr;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use futures_util::future::join_all;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};
use testbed::Redis;
use tokio::process::Command;

use super::super::servers::{Node, failed};
use super::Stage;
use crate::error::{Error, Result};
use crate::kind::Kind;

/// The folder of a copy, beside that of the data.
const COPY: &str = "copy";

impl Stage {
    fn node_of_redis(&self, node: u32) -> Result<&Redis> {
        match &self.servers.nodes[node as usize] {
            Node::Redis(redis) => Ok(redis),
            _ => Err(Error::failed("it is no Redis")),
        }
    }

    /// The answer to a command.
    pub(super) fn redis(&self, node: u32, words: &[&str]) -> Result<String> {
        tell(self.node_of_redis(node)?, words)
    }

    /// The node shows this certificate to those who connect from now on, and all connections have ended.
    pub(super) fn show_certificate(&self, node: u32, name: &str) -> Result<()> {
        let files =
            self.servers.certificates.as_ref().ok_or_else(|| Error::failed("there are no certificates"))?;
        let [cert, key] = ["pem", "key"].map(|kind| files.path(&format!("{name}.{kind}")));
        self.redis(node, &["CONFIG", "SET", "tls-cert-file", &cert, "tls-key-file", &key])?;
        for kind in ["normal", "pubsub"] {
            self.redis(node, &["CLIENT", "KILL", "TYPE", kind])?;
        }
        Ok(())
    }

    /// The servers whose copies are restored together. A member of etcd without what it has confirmed does
    /// not start, so all go back.
    pub(super) fn go_back(&self, node: u32) -> Range<usize> {
        match self.servers.kind {
            Kind::Etcd3 => 0..self.servers.nodes.len(),
            _ => node as usize..node as usize + 1,
        }
    }

    /// Starts servers, together: one that is alone of its ensemble does not take requests.
    pub(super) async fn restart_together(&self, nodes: Range<usize>) -> Result<()> {
        let starts = self.servers.nodes[nodes].iter().map(|node| node.server().restart());
        join_all(starts).await.into_iter().try_for_each(|started| started.map_err(failed))
    }

    /// Copies what the servers have. They end for that in good order, and start again.
    pub(super) async fn back_up(&self, node: u32) -> Result<()> {
        let nodes = &self.servers.nodes[self.go_back(node)];
        for server in nodes.iter().map(Node::server) {
            server.stop().await.map_err(failed)?;
            let (data, copy) = (server.folder().join("data"), server.folder().join(COPY));
            run("cp", &[OsStr::new("-a"), data.as_os_str(), copy.as_os_str()]).await?;
        }
        self.restart_together(self.go_back(node)).await
    }

    /// Kills the servers, which start again with the copies.
    pub(super) async fn restore(&self, node: u32) -> Result<()> {
        let nodes = &self.servers.nodes[self.go_back(node)];
        for server in nodes.iter().map(Node::server) {
            server.kill().map_err(failed)?;
        }
        for server in nodes.iter().map(Node::server) {
            let (data, copy) = (server.folder().join("data"), server.folder().join(COPY));
            fs::remove_dir_all(&data)?;
            fs::rename(&copy, &data)?;
        }
        self.restart_together(self.go_back(node)).await
    }

    /// Kills the node, and shortens its file. Whoever ends the fault starts it again.
    pub(super) fn truncate_log(&self, node: u32, bytes: u64) -> Result<()> {
        self.server(node).kill().map_err(failed)?;
        let folder = self.server(node).folder().join("data");
        let newest = logs(&folder)?.into_iter().max();
        let newest = newest.ok_or_else(|| Error::failed("there is no append-only file"))?;
        let file = fs::File::options().write(true).open(newest)?;
        let length = file.metadata()?.len();
        file.set_len(length.saturating_sub(bytes.min(length / 2)))?;
        Ok(())
    }

    /// Kills the server, and deletes what it has written. Its number in an ensemble stays.
    pub(super) async fn lose_data(&self, node: u32) -> Result<()> {
        if let Some(cluster) = &self.servers.etcd {
            return cluster.replace(node as usize).await.map_err(failed);
        }
        self.server(node).kill().map_err(failed)?;
        let folder = if self.servers.kind.is_etcd() { "data/member" } else { "data/version-2" };
        let data = self.server(node).folder().join(folder);
        fs::remove_dir_all(&data).map_err(|error| Error::failed(format!("{}: {error}", data.display())))
    }

    /// Somebody reads the file in one transaction.
    pub(super) async fn long_reader(&self, millis: u64) -> Result<()> {
        let options = SqliteConnectOptions::new().filename(self.servers.file()).read_only(true);
        let mut reader: SqliteConnection = options.connect().await?;
        let mut transaction = reader.begin().await?;
        sqlx::query("SELECT count(*) FROM sqlite_schema").execute(&mut *transaction).await?;
        tokio::time::sleep(Duration::from_millis(millis)).await;
        transaction.rollback().await?;
        reader.close().await?;
        Ok(())
    }

    pub(super) async fn fill_disk(&self, millis: u64) -> Result<()> {
        let disk = self.servers.disk.as_ref().ok_or_else(|| Error::failed("there is no small disk"))?;
        disk.fill(Duration::from_millis(millis)).await
    }
}

/// Runs a program to its end.
pub(super) async fn run(program: &str, arguments: &[&OsStr]) -> Result<()> {
    let output = Command::new(program).args(arguments).output().await?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::failed(format!("{program}: {}", String::from_utf8_lossy(&output.stderr))))
}

/// The answer of a server to a command, which is no error.
pub(super) fn tell(node: &Redis, words: &[&str]) -> Result<String> {
    well(node.command(words).map_err(failed)?)
}

/// An answer that is no error.
fn well(answer: String) -> Result<String> {
    if answer.starts_with('-') { Err(Error::failed(answer)) } else { Ok(answer) }
}

/// The append-only files to which Redis adds: in a folder since version 7, and one file before.
fn logs(folder: &Path) -> Result<Vec<std::path::PathBuf>> {
    let mut found = Vec::new();
    for folder in [folder.to_owned(), folder.join("appendonlydir")] {
        let Ok(files) = fs::read_dir(&folder) else { continue };
        for file in files {
            let path = file?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.ends_with(".incr.aof") || name == "appendonly.aof" {
                found.push(path);
            }
        }
    }
    Ok(found)
}
