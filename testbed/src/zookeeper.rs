//! A throwaway `ZooKeeper`.

use std::{net::SocketAddr, ops::Deref, path::Path};

use crate::{
    Durability, Error, Options, Server,
    kind::{Kind, Site},
    programs::{find, missing},
    redis::exchange,
};

/// Where Debian puts the server's Java archive. It names the libraries that it needs itself.
const ARCHIVE: &str = "/usr/share/java/zookeeper.jar";

/// A logger that needs no configuration. Without one, nothing says why a server did not start.
const LOGGER: &str = "/usr/share/java/slf4j-simple.jar";

/// A throwaway `ZooKeeper`, a single one and no ensemble. It never holds a write in its own memory, so
/// [`Durability::Fast`] is the same as [`Durability::OsCache`].
///
/// It is a [`Server`], which see for killing, pausing and restarting.
#[derive(Debug, Clone)]
pub struct ZooKeeper {
    server: Server,
}

impl ZooKeeper {
    /// Whether the program is on this machine, and if not, why.
    pub fn installed() -> Result<(), Error> {
        Java::find().map(drop)
    }

    /// Starts one with the default options.
    pub async fn start() -> Result<Self, Error> {
        Self::start_with(&Options::new()).await
    }

    /// Starts one. Settings are those of `zoo.cfg`.
    pub async fn start_with(options: &Options) -> Result<Self, Error> {
        Ok(Self { server: Server::start(Java::find()?, options).await? })
    }

    /// Its URL.
    pub fn url(&self) -> String {
        self.url_via(self.addr())
    }

    /// The same URL through another address, that of a [`Proxy`](crate::Proxy).
    pub fn url_via(&self, addr: SocketAddr) -> String {
        format!("zk://{addr}")
    }
}

impl Deref for ZooKeeper {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

#[derive(Debug)]
struct Java(String);

impl Java {
    fn find() -> Result<Self, Error> {
        if !Path::new(ARCHIVE).is_file() {
            return Err(missing(ARCHIVE, "zookeeper"));
        }
        find("java", "default-jre-headless").map(Self)
    }
}

impl Kind for Java {
    fn name(&self) -> &'static str {
        "zookeeper"
    }

    fn prepare(&self, site: &Site<'_>) -> Result<Vec<Vec<String>>, Error> {
        Ok(vec![vec!["mkdir".to_owned(), site.path("data")?]])
    }

    fn command(&self, site: &Site<'_>, addr: SocketAddr) -> Result<Vec<String>, Error> {
        let mut settings = vec![
            ("tickTime".to_owned(), "500".to_owned()),
            ("dataDir".to_owned(), site.path("data")?),
            ("clientPort".to_owned(), addr.port().to_string()),
            ("clientPortAddress".to_owned(), "127.0.0.1".to_owned()),
            ("admin.enableServer".to_owned(), "false".to_owned()),
            // The default of 60 for each address is soon met on loopback.
            ("maxClientCnxns".to_owned(), "0".to_owned()),
            ("4lw.commands.whitelist".to_owned(), "*".to_owned()),
        ];
        if site.options.durability != Durability::Disk {
            settings.push(("forceSync".to_owned(), "no".to_owned()));
        }
        // The file is read as a table: a name that comes again replaces the first.
        settings.extend(site.options.settings.iter().cloned());
        let lines: Vec<String> = settings.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        site.write("zoo.cfg", &lines.concat())?;
        let mut command = vec![self.0.clone(), "-Xmx256m".to_owned()];
        // A file in the system's temporary folder, which a killed one would leave behind.
        command.push("-XX:-UsePerfData".to_owned());
        // It would look for another logger than ours.
        command.push("-Dzookeeper.jmx.log4j.disable=true".to_owned());
        command.extend(["-cp".to_owned(), format!("{ARCHIVE}:{LOGGER}")]);
        command.push("org.apache.zookeeper.server.quorum.QuorumPeerMain".to_owned());
        command.push(site.path("zoo.cfg")?);
        Ok(command)
    }

    fn ready(&self, site: &Site<'_>, addr: SocketAddr, _pid: u32, _log: &str) -> bool {
        // The folder that it names tells ours from a stranger.
        site.path("data").is_ok_and(|data| {
            exchange(addr, b"conf").is_ok_and(|conf| conf.contains(&format!("dataDir={data}/")))
                && exchange(addr, b"ruok").is_ok_and(|answer| answer == "imok")
        })
    }
}
