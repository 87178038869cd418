//! Other lock libraries, measured beside ours in the same rounds.
//!
//! Each is a program of its own in `peers/`, so that what it depends on stays out of ours. It reads orders,
//! one per line, and answers each with a line of JSON.

pub(crate) mod process;
mod program;

use std::ffi::OsString;
use std::str::FromStr;

use crate::measure::peer::program::Program;

/// The first argument of a process of this program that takes orders for a recipe.
pub(crate) const CONTRAST: &str = "__contrast";

/// A library that can be measured.
#[derive(Debug)]
pub(crate) struct Library {
    /// Its name, which is that of its folder or package, too.
    pub(crate) name: &'static str,
    /// The schemes of the addresses that it can work with.
    pub(crate) schemes: &'static [&'static str],
    language: Language,
    /// Why its locks are unsafe, for a recipe that is measured for contrast.
    unsafe_because: Option<&'static str>,
}

#[derive(Debug)]
enum Language {
    /// A package in the workspace of the peers in Rust.
    Rust,
    /// With the libraries of the system.
    Java,
    /// With the library of the system, or with one from the package index.
    Python,
    /// With libraries from the package index.
    Node,
    /// This program itself.
    Contrast,
}

/// Every one of them.
pub(crate) const ALL: [Library; 14] = [
    Library::new("rslock", &["redis", "redlock"], Language::Rust),
    Library::new("distributed-lock", &["redis", "redlock", "postgres", "postgresql"], Language::Rust),
    Library::new("pg-advisory-lock", &["postgres", "postgresql"], Language::Rust),
    Library::new("get-lock", &["mysql", "mariadb"], Language::Rust),
    Library::new("flock", &["sqlite"], Language::Rust),
    Library::new("redis-py", &["redis"], Language::Python),
    Library::new("node-redlock", &["redis", "redlock"], Language::Node),
    Library::new("curator", &["zk"], Language::Java),
    Library::new("kazoo", &["zk"], Language::Python),
    Library::new("etcd-client", &["etcd"], Language::Rust),
    Library::new("etcdctl", &["etcd"], Language::Rust),
    Library {
        unsafe_because: Some(
            "one node that all watch: each release wakes all who wait, and any of them is next",
        ),
        ..Library::new("naive-node", &["zk"], Language::Contrast)
    },
    Library {
        unsafe_because: Some(
            "UNSAFE: it compares the clocks of clients, and its release deletes the lock of the next holder",
        ),
        ..Library::new("legacy-setnx", &["redis"], Language::Contrast)
    },
    Library {
        unsafe_because: Some("a row without a lease: a holder that dies keeps the lock for ever"),
        ..Library::new("plain-row", &["postgres", "postgresql", "mysql", "mariadb"], Language::Contrast)
    },
];

/// A library that is built, or a program that was given.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) name: String,
    /// `None` for all.
    schemes: Option<&'static [&'static str]>,
    program: Program,
    is_light: bool,
    pub(crate) unsafe_because: Option<&'static str>,
}

impl Library {
    const fn new(name: &'static str, schemes: &'static [&'static str], language: Language) -> Self {
        Self { name, schemes, language, unsafe_because: None }
    }

    /// Whether it is no library, but a recipe that is there for contrast.
    pub(crate) fn is_contrast(&self) -> bool {
        matches!(self.language, Language::Contrast)
    }

    pub(crate) fn serves(&self, scheme: &str) -> bool {
        self.schemes.contains(&scheme)
    }

    /// Builds it, which may take minutes the first time. Otherwise says why not.
    pub(crate) async fn build(&self) -> Result<Peer, String> {
        let program = match self.language {
            Language::Rust => Program::build("rust", self.name).await?,
            Language::Java => Program::build("java", self.name).await?,
            Language::Python => Program::build("python", self.name).await?,
            Language::Node => Program::build("node", self.name).await?,
            Language::Contrast => {
                let program = std::env::current_exe().map_err(|error| error.to_string())?;
                Program::new(vec![program.into(), CONTRAST.into(), self.name.into()])
            }
        };
        let (name, schemes) = (self.name.to_owned(), Some(self.schemes));
        let is_light = matches!(self.language, Language::Rust);
        Ok(Peer { name, schemes, program, is_light, unsafe_because: self.unsafe_because })
    }
}

/// A program of the user that measures a lock: `NAME=COMMAND`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GivenProgram {
    name: String,
    command: Vec<String>,
}

impl FromStr for GivenProgram {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, command) = text.split_once('=').unwrap_or((text, ""));
        let command: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        if name.is_empty() || command.is_empty() {
            return Err("a name and a command are needed, such as mine=./mine".to_owned());
        }
        Ok(Self { name: name.to_owned(), command })
    }
}

impl GivenProgram {
    pub(crate) fn peer(&self) -> Peer {
        let command = self.command.iter().map(OsString::from).collect();
        Peer {
            name: self.name.clone(),
            schemes: None,
            program: Program::new(command),
            is_light: false,
            unsafe_because: None,
        }
    }
}

impl Peer {
    pub(crate) fn serves(&self, scheme: &str) -> bool {
        self.schemes.is_none_or(|schemes| schemes.contains(&scheme))
    }

    /// Whether many processes of it start in a moment and need little memory.
    pub(crate) fn is_light(&self) -> bool {
        self.is_light
    }
}

/// The servers behind an address, as other libraries write them: with commas between them.
fn addresses(url: &str) -> String {
    let url = url.split('?').next().unwrap_or(url);
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (login, hosts) = authority.rsplit_once('@').map_or(("", authority), |(login, hosts)| (login, hosts));
    let at = if login.is_empty() { "" } else { "@" };
    // The schemes of lockwell's own are unknown elsewhere.
    let scheme = match scheme {
        "zk" => return hosts.to_owned(),
        // A file, not hosts.
        "sqlite" => return url.to_owned(),
        // The path is what keys begin with.
        "etcd" => {
            let urls: Vec<_> = hosts.split(',').map(|host| format!("http://{login}{at}{host}")).collect();
            return urls.join(",");
        }
        "redlock" => "redis",
        other => other,
    };
    let urls: Vec<_> = hosts.split(',').map(|host| format!("{scheme}://{login}{at}{host}/{path}")).collect();
    urls.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_has_an_address() {
        assert_eq!(addresses("redis://a:1"), "redis://a:1/");
        assert_eq!(
            addresses("redlock://u:p%40@a:1,b:2/3?namespace=x"),
            "redis://u:p%40@a:1/3,redis://u:p%40@b:2/3"
        );
        assert_eq!(addresses("postgres://u:p@a:1/db?pooled=true"), "postgres://u:p@a:1/db");
        assert_eq!(addresses("zk://u:p@a:1,b:2/base?session=2s"), "a:1,b:2");
        assert_eq!(addresses("etcd://a:1,b:2/base?ttl=5s"), "http://a:1,http://b:2");
        assert_eq!(addresses("sqlite:///a,b/c.db?ttl=5s"), "sqlite:///a,b/c.db");
    }
}
