//! How one kind of server is run, for `Server`.

use std::{
    fmt::Debug,
    fs::{self, File},
    io::{Read, Seek, SeekFrom},
    net::SocketAddr,
    path::Path,
};

use rustix::process::Signal;

use crate::{Error, Options, programs::text};

/// One kind of server. Its methods are called on a thread that may block.
pub(crate) trait Kind: Debug + Send + Sync + 'static {
    /// Its name, in messages and in the name of its folder.
    fn name(&self) -> &'static str;

    /// How many ports it needs beside the one on which clients connect. They stay the same over a restart.
    fn more_ports(&self) -> usize {
        0
    }

    /// Commands that make the data folder, to be run one after the other before the first start.
    fn prepare(&self, site: &Site<'_>) -> Result<Vec<Vec<String>>, Error>;

    /// The programs that make the folder `data`, if it is like every other that they make with the same
    /// arguments: then one is kept, and copied for each server that is not measured. None: each is made.
    fn makers(&self) -> Result<Vec<String>, Error> {
        Ok(Vec::new())
    }

    /// Files of that folder that no copy has: each server makes its own.
    fn own_files(&self) -> &'static [&'static str] {
        &[]
    }

    /// The command that starts the server. Also writes its configuration, if it has any.
    fn command(&self, site: &Site<'_>, addr: SocketAddr) -> Result<Vec<String>, Error>;

    /// True if the server takes connections, and is the process `pid` and not a stranger on the same port.
    /// `log` is what it has written since it was started.
    fn ready(&self, site: &Site<'_>, addr: SocketAddr, pid: u32, log: &str) -> bool;

    /// The signal on which it ends in good order.
    fn stop_signal(&self) -> Signal {
        Signal::TERM
    }

    /// Shell functions `before_kill` and `after_kill` that clear away what a killed server leaves outside its
    /// folder. `$dir` is the folder, `$tree` the ids of all processes, which are stopped before they are
    /// killed.
    fn hooks(&self) -> &'static str {
        ""
    }
}

/// Where a server lives, and how it is to be run.
#[derive(Debug)]
pub(crate) struct Site<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) options: &'a Options,
    /// As many as [`Kind::more_ports`] says, once it is started; none while the data folder is made.
    pub(crate) more_ports: &'a [u16],
}

impl Site<'_> {
    /// A path in the server's folder, as text.
    pub(crate) fn path(&self, name: &str) -> Result<String, Error> {
        text(&self.folder.join(name))
    }

    /// The path of a folder in the server's folder, which is made if there is none yet.
    pub(crate) fn folder(&self, name: &str) -> Result<String, Error> {
        fs::create_dir_all(self.folder.join(name)).map_err(Error::io(name))?;
        self.path(name)
    }

    /// The contents of a file in the server's folder, empty if there is none yet.
    pub(crate) fn read(&self, name: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.folder.join(name)).unwrap_or_default()).into_owned()
    }

    /// How long the log is now.
    pub(crate) fn log_length(&self) -> u64 {
        fs::metadata(self.folder.join("log")).map_or(0, |log| log.len())
    }

    /// What the log holds behind its first `start` bytes.
    pub(crate) fn log_since(&self, start: u64) -> String {
        let mut bytes = Vec::new();
        let read = File::open(self.folder.join("log")).and_then(|mut log| {
            log.seek(SeekFrom::Start(start))?;
            log.read_to_end(&mut bytes)
        });
        // There is no log before the first line of it.
        read.map_or_else(|_| String::new(), |_| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Writes a file in the server's folder.
    pub(crate) fn write(&self, name: &str, contents: &str) -> Result<(), Error> {
        fs::write(self.folder.join(name), contents).map_err(Error::io(name))
    }

    /// Writes a script that becomes the command: the process id stays the same.
    pub(crate) fn script(&self, name: &str, command: &[String]) -> Result<(), Error> {
        let quoted: Vec<String> =
            command.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
        self.write(name, &format!("exec {}\n", quoted.join(" ")))
    }
}
