//! How MySQL is run.

use std::net::SocketAddr;

use super::daemon::{daemon, serving};
use crate::{
    Error, Release,
    kind::{Kind, Site},
    programs::{is_root, text},
};

/// Run at each start, before the first connection is taken. The administrator of a new server is known on its
/// socket only.
const INIT: &str = "\
CREATE DATABASE IF NOT EXISTS lockwell;
CREATE USER IF NOT EXISTS 'root'@'%' IDENTIFIED BY '';
GRANT ALL ON *.* TO 'root'@'%' WITH GRANT OPTION;
";

#[derive(Debug)]
pub(super) struct Programs {
    daemon: String,
    /// Where its other files are, if not where it looks for them.
    base: Option<String>,
}

impl Programs {
    pub(super) fn find(release: &Release) -> Result<Self, Error> {
        let base = release.root()?.map(|root| text(&root.join("usr"))).transpose()?;
        Ok(Self { daemon: daemon(release)?, base })
    }

    /// What the installation and the server have in common. A small log, since it is written out in full.
    fn common(&self, site: &Site<'_>) -> Result<Vec<String>, Error> {
        let mut command = vec![
            self.daemon.clone(),
            // Must come first.
            "--no-defaults".to_owned(),
            format!("--datadir={}", site.path("data")?),
            // Not the folder of all: a server that starts removes the temporary tables that it finds.
            format!("--tmpdir={}", site.folder("tmp")?),
            "--skip-name-resolve".to_owned(),
            "--innodb-redo-log-capacity=16M".to_owned(),
            "--innodb-buffer-pool-size=64M".to_owned(),
            // Nothing in a folder of the system, and no second port.
            "--secure-file-priv=NULL".to_owned(),
            "--mysqlx=OFF".to_owned(),
            "--skip-log-bin".to_owned(),
        ];
        if let Some(base) = &self.base {
            command.push(format!("--basedir={base}"));
            command.push(format!("--lc-messages-dir={base}/share/mysql"));
            command.push(format!("--character-sets-dir={base}/share/mysql/charsets"));
        }
        if is_root() {
            command.push("--user=root".to_owned());
        }
        Ok(command)
    }
}

impl Kind for Programs {
    fn name(&self) -> &'static str {
        "mysql"
    }

    fn prepare(&self, site: &Site<'_>) -> Result<Vec<Vec<String>>, Error> {
        site.write("init.sql", INIT)?;
        let mut command = self.common(site)?;
        command.extend(["--initialize-insecure", "--innodb-flush-log-at-trx-commit=0"].map(str::to_owned));
        Ok(vec![command])
    }

    fn makers(&self) -> Result<Vec<String>, Error> {
        Ok(vec![self.daemon.clone()])
    }

    fn own_files(&self) -> &'static [&'static str] {
        // The server's UUID.
        &["auto.cnf"]
    }

    fn command(&self, site: &Site<'_>, addr: SocketAddr) -> Result<Vec<String>, Error> {
        Ok([self.common(site)?, serving(site, addr)?].concat())
    }

    fn ready(&self, site: &Site<'_>, _addr: SocketAddr, pid: u32, log: &str) -> bool {
        // A killed server leaves an old file behind. It says that it is ready for each of its ports.
        site.read("pid").trim() == pid.to_string() && log.contains("ready for connections. Version")
    }
}
