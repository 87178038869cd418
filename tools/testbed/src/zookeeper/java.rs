//! How `ZooKeeper` is run.

use std::{fs, net::SocketAddr, path::Path};

use crate::{
    Durability, Error, Options, Release,
    kind::{Kind, Site},
    programs::{find, missing, text},
    release::Family,
    wire::{SHORT, exchange},
};

/// Where Debian puts Java archives.
const FOLDER: &str = "/usr/share/java";

/// The server. Debian's archive names the libraries that it needs itself, but not all that it needs of Netty
/// for TLS.
const SERVER: &str = "zookeeper";

/// What Curator's locks are in.
const CURATOR: &str = "curator-recipes";

/// What programs need that use the server or Curator. The logger needs no configuration: without one, nothing
/// says why a server did not start. Java passes over what is not there.
const ARCHIVES: [&str; 10] = [
    SERVER,
    "zookeeper-jute",
    "netty-codec",
    "netty-resolver",
    "slf4j-api",
    "slf4j-simple",
    CURATOR,
    "curator-framework",
    "curator-client",
    "guava",
];

/// What a fetched release needs beside these, where the server's archive would find older ones.
const NEWER: [&str; 8] = [
    "metrics-core",
    "snappy-java",
    "netty-buffer",
    "netty-common",
    "netty-handler",
    "netty-transport",
    "commons-io",
    "commons-cli",
];

fn archive(name: &str) -> String {
    format!("{FOLDER}/{name}.jar")
}

fn have(name: &str, package: &str) -> Result<(), Error> {
    let archive = archive(name);
    if Path::new(&archive).is_file() { Ok(()) } else { Err(missing(&archive, package)) }
}

/// The class path of programs that use a release of `ZooKeeper`.
pub(crate) fn class_path(release: &Release) -> Result<String, Error> {
    if let Some(root) = release.root()? {
        // The archive itself names libraries in the system's folder, which are those of another release: ours
        // come first.
        let folder = text(&root.join(&FOLDER[1..]))?;
        let names =
            NEWER.into_iter().chain(ARCHIVES.into_iter().filter(|name| *name != SERVER)).chain([SERVER]);
        return Ok(names.map(|name| format!("{folder}/{name}.jar")).collect::<Vec<_>>().join(":"));
    }
    have(SERVER, "zookeeper")?;
    Ok(ARCHIVES.map(archive).join(":"))
}

/// The same for programs that use Curator: that of the machine, with the client that belongs to it, whatever
/// release of the server it talks to.
pub(super) fn curator_class_path() -> Result<String, Error> {
    have(CURATOR, "libcurator-recipes-java")?;
    have(SERVER, "zookeeper")?;
    Ok(ARCHIVES.map(archive).join(":"))
}

/// What a server writes at each start, just before it takes the port for clients.
pub(super) const BINDING: &str = "binding to port";

/// A Java machine that lives for some seconds spends most of its processor time on its start: here only the
/// compiler that is quick runs, and memory is collected without threads for that.
const SHORT_LIVED: [&str; 2] = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"];

/// The file with settings that the server was given after its first start.
pub(super) const SINCE: &str = "since.cfg";

/// What is done with a file of [classes](super::classes).
#[derive(Debug, Clone)]
pub(super) enum Classes {
    /// There is none.
    Unused,
    /// This one is read.
    Read(String),
    /// One is written, into the server's folder, when the server is stopped.
    Write,
}

/// The file of classes, where it is written and where it is kept.
pub(super) const CLASSES: &str = "classes.jsa";

/// What makes a server the member of an ensemble.
#[derive(Debug)]
pub(super) struct Member {
    /// Its number, from 1.
    pub(super) id: usize,
    /// Where each member is to be found, as settings: `server.N`.
    pub(super) members: Vec<(String, String)>,
}

#[derive(Debug)]
pub(super) struct Java {
    path: String,
    class_path: String,
    member: Option<Member>,
    /// What it does with the file of classes.
    pub(super) classes: Classes,
}

impl Java {
    pub(super) fn find(member: Option<Member>, options: &Options) -> Result<Self, Error> {
        let class_path = class_path(options.release_of(Family::ZooKeeper)?)?;
        let path = find("java", "default-jre-headless")?;
        Ok(Self { path, class_path, member, classes: Classes::Unused })
    }

    /// The same for a single server that writes the file of classes.
    pub(super) fn writes_classes(&self) -> Self {
        let (path, class_path) = (self.path.clone(), self.class_path.clone());
        Self { path, class_path, member: None, classes: Classes::Write }
    }

    /// What decides what is in the file of classes: all files that Java reads them from.
    pub(super) fn files(&self) -> Vec<String> {
        let archives = self.class_path.split(':').filter(|archive| Path::new(archive).is_file());
        std::iter::once(&*self.path).chain(archives).map(str::to_owned).collect()
    }

    /// Properties of the Java machine.
    fn machine(&self) -> &'static [&'static str] {
        if self.member.is_none() {
            return &["-Xmx256m"];
        }
        // One that was alone for long asks the others again after this many milliseconds, and not after a
        // minute.
        &["-Xmx192m", "-Dzookeeper.fastleader.maxNotificationInterval=1000"]
    }
}

impl Kind for Java {
    fn name(&self) -> &'static str {
        "zookeeper"
    }

    fn prepare(&self, site: &Site<'_>) -> Result<Vec<Vec<String>>, Error> {
        let data = site.path("data")?;
        fs::create_dir(&data).map_err(Error::io(&data))?;
        if let Some(member) = &self.member {
            site.write("data/myid", &member.id.to_string())?;
        }
        Ok(Vec::new())
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
        if let Some(member) = &self.member {
            settings
                .extend([("initLimit", "10"), ("syncLimit", "4")].map(|(a, b)| (a.to_owned(), b.to_owned())));
            settings.extend(member.members.iter().cloned());
        }
        if site.options.durability != Durability::Disk {
            settings.push(("forceSync".to_owned(), "no".to_owned()));
        }
        // The file is read as a table: a name that comes again replaces the first.
        let (java, own): (Vec<_>, Vec<_>) =
            site.options.settings.iter().cloned().partition(|(name, _)| name.starts_with("-D"));
        settings.extend(own);
        let since = site.read(SINCE);
        settings.extend(
            since.lines().filter_map(|line| line.split_once('=')).map(|(a, b)| (a.to_owned(), b.to_owned())),
        );
        let lines: Vec<String> = settings.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        site.write("zoo.cfg", &lines.concat())?;
        let mut command = vec![self.path.clone()];
        command.extend(self.machine().iter().map(ToString::to_string));
        if !site.options.measured {
            command.extend(SHORT_LIVED.map(str::to_owned));
        }
        match &self.classes {
            Classes::Unused => {}
            Classes::Read(file) => command.push(format!("-XX:SharedArchiveFile={file}")),
            Classes::Write => command.push(format!("-XX:ArchiveClassesAtExit={}", site.path(CLASSES)?)),
        }
        // A file in the system's temporary folder, which a killed one would leave behind.
        command.push("-XX:-UsePerfData".to_owned());
        // It would look for another logger than ours.
        command.push("-Dzookeeper.jmx.log4j.disable=true".to_owned());
        command.extend(java.into_iter().map(|(name, value)| format!("{name}={value}")));
        command.extend(["-cp".to_owned(), self.class_path.clone()]);
        command.push("org.apache.zookeeper.server.quorum.QuorumPeerMain".to_owned());
        command.push(site.path("zoo.cfg")?);
        Ok(command)
    }

    fn ready(&self, site: &Site<'_>, addr: SocketAddr, _pid: u32, log: &str) -> bool {
        if self.member.is_some() {
            // It answers no more than this until it has found the others, who may be down. If the port is a
            // stranger's, it says so next and ends.
            return log.contains(BINDING)
                && exchange(addr, b"ruok", SHORT).is_ok_and(|answer| answer == "imok");
        }
        // The folder that it names tells ours from a stranger.
        site.path("data").is_ok_and(|data| {
            exchange(addr, b"conf", SHORT).is_ok_and(|conf| conf.contains(&format!("dataDir={data}/")))
                && exchange(addr, b"ruok", SHORT).is_ok_and(|answer| answer == "imok")
        })
    }
}
