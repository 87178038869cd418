//! What is compared: backends that we start ourselves, or addresses that we are pointed at.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use lockwell::ServerUrl;
use tempfile::TempDir;

use crate::error::{Error, Result};
use crate::machine::file_system;

/// A backend that can be started here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    Memory,
    Sqlite,
    Postgres,
    #[value(alias = "mysql")]
    Mariadb,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Memory, Self::Sqlite, Self::Postgres, Self::Mariadb];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Mariadb => "mariadb",
        }
    }

    /// Why it cannot be started here, if it cannot.
    pub(crate) fn missing(self) -> Option<String> {
        let installed = match self {
            Self::Memory | Self::Sqlite => Ok(()),
            Self::Postgres => testbed::Postgres::installed(),
            Self::Mariadb => testbed::MariaDb::installed(),
        };
        installed.err().map(|error| error.to_string())
    }
}

/// What is to be measured.
#[derive(Clone, Debug)]
pub(crate) enum Choice {
    /// A backend that is started for the purpose, with its data below a folder.
    Own(Kind, PathBuf),
    /// A server that somebody else runs.
    Given { name: String, url: String },
}

impl Choice {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Own(kind, _) => kind.name(),
            Self::Given { name, .. } => name,
        }
    }

    /// Starts what has to be started.
    pub(crate) async fn start(&self) -> Result<Target> {
        let (url, storage, keep) = match self {
            Self::Own(kind, folder) => {
                let (url, keep) = start(*kind, folder).await?;
                let storage = match kind {
                    Kind::Memory => "memory".to_owned(),
                    _ => file_system(folder),
                };
                (url, storage, keep)
            }
            Self::Given { url, .. } => (url.clone(), "unknown".to_owned(), Keep::Nothing),
        };
        let parsed: ServerUrl = url.parse()?;
        Ok(Target { name: self.name().to_owned(), url, parsed, storage, _keep: keep })
    }
}

/// A backend that is running now.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) name: String,
    /// With the password: for connecting, never for showing.
    pub(crate) url: String,
    pub(crate) parsed: ServerUrl,
    /// Where the data is.
    pub(crate) storage: String,
    _keep: Keep,
}

impl Target {
    /// Whether other processes can reach it.
    pub(crate) fn is_shared(&self) -> bool {
        self.parsed.scheme() != "memory"
    }
}

/// What must live for as long as the target is used. Dropping it ends the server and removes its data.
#[derive(Debug)]
enum Keep {
    Nothing,
    Folder { _folder: TempDir },
    Postgres { _server: testbed::Postgres },
    MariaDb { _server: testbed::MariaDb },
}

async fn start(kind: Kind, folder: &Path) -> Result<(String, Keep)> {
    let options = testbed::Options::new().parent(folder);
    let failed = |error: testbed::Error| Error::failed(error.to_string());
    Ok(match kind {
        Kind::Memory => ("memory://".to_owned(), Keep::Nothing),
        Kind::Sqlite => {
            let folder = tempfile::Builder::new().prefix("lockwell-compare-").tempdir_in(folder)?;
            let file = folder.path().join("locks.db");
            (format!("sqlite://{}", file.display()), Keep::Folder { _folder: folder })
        }
        Kind::Postgres => {
            let server = testbed::Postgres::start_with(&options).await.map_err(failed)?;
            (server.url(), Keep::Postgres { _server: server })
        }
        Kind::Mariadb => {
            let server = testbed::MariaDb::start_with(&options).await.map_err(failed)?;
            (server.url(), Keep::MariaDb { _server: server })
        }
    })
}

/// Names for addresses: the scheme, with a number where there are several of it.
pub(crate) fn given(urls: &[String]) -> Result<Vec<Choice>> {
    let mut choices: Vec<Choice> = Vec::new();
    for url in urls {
        let parsed: ServerUrl = url.parse()?;
        let scheme = parsed.scheme();
        let before = choices.iter().filter(|choice| choice.name().split('-').next() == Some(scheme)).count();
        let name = if before == 0 { scheme.to_owned() } else { format!("{scheme}-{}", before + 1) };
        choices.push(Choice::Given { name, url: url.clone() });
    }
    Ok(choices)
}

/// The folder for data: on `/dev/shm` if asked for, else the first usual one that is on a disk.
pub(crate) fn data_folder(tmpfs: bool) -> Result<PathBuf> {
    if tmpfs {
        let shm = PathBuf::from("/dev/shm");
        return match file_system(&shm).as_str() {
            "tmpfs" => Ok(shm),
            other => Err(Error::failed(format!("--tmpfs needs a tmpfs at /dev/shm; it is {other}"))),
        };
    }
    let here = std::env::current_dir()?;
    let folders = [std::env::temp_dir(), PathBuf::from("/var/tmp"), here];
    let on_disk = folders.iter().find(|folder| folder.is_dir() && file_system(folder) != "tmpfs");
    // Without a disk the result says so: the storage is looked up, not assumed.
    Ok(on_disk.unwrap_or(&folders[0]).clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_of_a_scheme_are_numbered() {
        let urls = ["postgres://a/x", "sqlite://f", "postgres://b/x"].map(str::to_owned);
        let choices = given(&urls).unwrap();
        let names: Vec<_> = choices.iter().map(Choice::name).collect();
        assert_eq!(names, ["postgres", "sqlite", "postgres-2"]);
        assert!(given(&["nonsense".to_owned()]).is_err());
    }
}
