//! What is compared: backends that we start ourselves, or addresses that we are pointed at.

pub(crate) mod kind;
pub(crate) mod server;
pub(crate) mod slow_disk;

use std::path::PathBuf;

use lockwell::Locks;
use lockwell::backend::ServerUrl;

use crate::error::{Error, Result};
use crate::record::disk::file_system;
use crate::target::kind::Kind;
use crate::target::server::{Running, Site};

/// What is to be measured.
#[derive(Clone, Debug)]
pub(crate) enum Choice {
    /// A backend that is started for the purpose.
    Own(Kind, Site),
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

    /// The scheme of its address.
    pub(crate) fn scheme(&self) -> &str {
        match self {
            Self::Own(kind, _) => kind.scheme(),
            Self::Given { url, .. } => url.split("://").next().unwrap_or(url),
        }
    }

    /// Whether other processes can reach it.
    pub(crate) fn is_shared(&self) -> bool {
        self.scheme() != "memory"
    }

    /// Whether its address has this option.
    pub(crate) fn has(&self, option: &str) -> bool {
        match self {
            Self::Own(..) => false,
            Self::Given { url, .. } => url.parse().is_ok_and(|url: ServerUrl| url.option(option).is_some()),
        }
    }

    /// Starts what has to be started.
    pub(crate) async fn start(&self) -> Result<Target> {
        let (url, storage, running) = match self {
            Self::Own(kind, site) => {
                let (url, running) = site.start(*kind).await?;
                (url, site.storage(*kind), running)
            }
            Self::Given { url, .. } => (url.clone(), "unknown".to_owned(), Running::default()),
        };
        let parsed: ServerUrl = url.parse()?;
        let floor = running.floor().map_or_else(|| url.clone(), str::to_owned);
        Ok(Target { name: self.name().to_owned(), url, parsed, floor, storage, running })
    }

    /// The backend, if we start it ourselves and nothing lies between us and its servers.
    pub(crate) fn near(&self) -> Option<Kind> {
        match self {
            Self::Own(kind, site) if site.delay.is_zero() => Some(*kind),
            _ => None,
        }
    }
}

/// A backend that is running now.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) name: String,
    /// With the password: for connecting, never for showing.
    pub(crate) url: String,
    pub(crate) parsed: ServerUrl,
    /// Where the raw statements go. With the password, too.
    pub(crate) floor: String,
    /// Where the data is.
    pub(crate) storage: String,
    pub(crate) running: Running,
}

impl Target {
    /// The address with one more option; `None` if that option is in it already.
    pub(crate) fn url_with(&self, name: &str, value: &str) -> Option<String> {
        let sign = if self.url.contains('?') { '&' } else { '?' };
        self.parsed.option(name).is_none().then(|| format!("{}{sign}{name}={value}", self.url))
    }

    /// Whether other processes can reach it.
    pub(crate) fn is_shared(&self) -> bool {
        self.parsed.scheme() != "memory"
    }
}

/// A client of ours.
pub(crate) async fn connect(url: &str) -> Result<Locks> {
    Ok(lockwell::connect(url).await?)
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
