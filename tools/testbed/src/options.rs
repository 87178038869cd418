//! How a throwaway server is to be started.

use std::path::{Path, PathBuf};

use crate::{Certificates, Error, Release, release::Family};

/// A folder in memory.
const MEMORY: &str = "/dev/shm";

/// What a committed write has to survive. The slower, the safer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Durability {
    /// The server's own defaults, or the safest setting where the default is not safe (Redis): each commit
    /// waits for the disk.
    #[default]
    Disk,
    /// A commit is handed to the operating system, which is not asked to write it out. It survives `kill -9`
    /// of the server, and would not survive a power cut. The right one for tests that kill servers.
    OsCache,
    /// A commit may still be in the server's own memory when it is reported: **`kill -9` loses the last
    /// ones**.
    Fast,
}

/// Options common to all servers.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub(crate) durability: Durability,
    pub(crate) settings: Vec<(String, String)>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) parent: Option<PathBuf>,
    pub(crate) measured: bool,
    release: Option<&'static Release>,
    /// The authority, the server's certificate and its key: files.
    pub(crate) tls: Option<[String; 3]>,
}

impl Options {
    /// The defaults: [`Durability::Disk`], no extra settings, a folder under the system's temporary folder.
    /// With another durability, and if the server is not measured, the folder is in memory where there is
    /// `/dev/shm`.
    pub fn new() -> Self {
        Self::default()
    }

    /// What a committed write has to survive.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// One more setting in the server's own words: `-c name=value` (Postgres), `--name=value` (`MariaDB`),
    /// `--name value` (Redis), `name=value` in `zoo.cfg`
    /// and in `pgbouncer.ini`, `--name=value` (etcd). Later ones win over earlier ones and over ours.
    #[must_use]
    pub fn setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// One more variable in the environment of the server, which has few otherwise: a library to load, for
    /// one.
    #[must_use]
    pub fn environment(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// The folder in which the server's own folder is made: `/dev/shm` to count round trips and not disks.
    #[must_use]
    pub fn parent(mut self, parent: impl AsRef<Path>) -> Self {
        self.parent = Some(parent.as_ref().to_owned());
        self
    }

    /// The server is measured, or runs for long: its Java machine is as it is by itself, and its own program
    /// makes its data folder. Otherwise the Java machine of `ZooKeeper` is one that costs little to start,
    /// and the data folder is the copy of one that was made before.
    #[must_use]
    pub fn measured(mut self) -> Self {
        self.measured = true;
        self
    }

    /// Which release of the server to start. The default is what `LOCKWELL_RELEASES` names, or what is
    /// installed.
    #[must_use]
    pub fn release(mut self, release: &'static Release) -> Self {
        self.release = Some(release);
        self
    }

    /// etcd takes TLS connections only. Redis takes them, too, on a port of its own and from those who show a
    /// certificate. The members of a Sentinel group or a cluster use nothing else among themselves, and tell
    /// clients these ports. The files are not copied.
    #[must_use]
    pub fn tls(mut self, certificates: &Certificates) -> Self {
        self.tls = Some(["ca.pem", "member.pem", "member.key"].map(|file| certificates.path(file)));
        self
    }

    /// The release for a server of this family.
    pub(crate) fn release_of(&self, family: Family) -> Result<&'static Release, Error> {
        Release::choose(family, self.release)
    }

    /// The value of a setting. The last one counts.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        let found = self.settings.iter().rfind(|(other, _)| other.eq_ignore_ascii_case(name));
        found.map(|(_, value)| &**value)
    }

    /// The same without settings and environment, for a server of another kind beside this one.
    pub(crate) fn without_settings(&self) -> Self {
        Self { settings: Vec::new(), environment: Vec::new(), ..self.clone() }
    }

    pub(crate) fn parent_folder(&self) -> PathBuf {
        let memory = || {
            let folder = Path::new(MEMORY);
            (self.durability != Durability::Disk && !self.measured && folder.is_dir())
                .then(|| folder.to_owned())
        };
        self.parent.clone().or_else(memory).unwrap_or_else(std::env::temp_dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_need_not_survive_is_in_memory() {
        let memory = Path::new(MEMORY);
        let memory = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        for durability in [Durability::OsCache, Durability::Fast] {
            let options = Options::new().durability(durability);
            assert_eq!(options.parent_folder(), memory);
            assert_eq!(options.clone().parent("/tmp/other").parent_folder(), Path::new("/tmp/other"));
            assert_eq!(options.measured().parent_folder(), std::env::temp_dir());
        }
        assert_eq!(Options::new().parent_folder(), std::env::temp_dir());
    }
}
