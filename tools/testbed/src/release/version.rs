//! Fetches releases, and asks a program which version it is.

use super::{Family, Release, fetched_folder, unpack};
use crate::{Error, Redis, client, programs, zookeeper};

impl Release {
    /// The version that the program itself says that it is: `8.0.2`.
    pub fn version(&self) -> Result<String, Error> {
        ask(self)
    }

    /// Fetches a release that the machine has not installed, unless it is there already, and returns its
    /// version. The packages are those of the mirror that this machine's apt uses, in other suites of
    /// Debian. Takes some ten seconds and up to 400 MB; blocks.
    pub fn fetch(&self) -> Result<String, Error> {
        if let Some(recipe) = &self.recipe {
            unpack::fetch(self, recipe, &fetched_folder())?;
        }
        self.version()
    }
}

/// The version that a program says.
fn ask(release: &Release) -> Result<String, Error> {
    let said = match release.family {
        Family::ZooKeeper => {
            let class_path = zookeeper::class_path(release)?;
            let main = "org.apache.zookeeper.version.VersionInfoMain";
            client::run(&programs::find("java", "default-jre-headless")?, &["-cp", &class_path, main], "")?
        }
        family => {
            let program = match family {
                Family::Redis => Redis::program(release)?,
                Family::MySql => crate::mariadb::daemon(release)?,
                Family::Postgres => crate::postgres::daemon(release)?,
                Family::Etcd => crate::Etcd::program(release)?,
                _ => crate::pgbouncer::program(release)?,
            };
            client::run(&program, &["--version"], "")?
        }
    };
    let unclear = || Error::State(format!("{} does not say its version: {said:?}", release.title()));
    first_version(&said).map(str::to_owned).ok_or_else(unclear)
}

/// The first word that is a version, without what Debian adds to it.
fn first_version(text: &str) -> Option<&str> {
    text.split_whitespace().find_map(|word| {
        let word = word.trim_start_matches("v=");
        let end = word.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(word.len());
        let version = word[..end].trim_end_matches('.');
        version.contains('.').then_some(version)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_programs_say() {
        for (text, version) in [
            ("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64", "7.0.15"),
            ("Valkey server v=9.1.2 sha=00000000:0 malloc=jemalloc-5.3.0", "9.1.2"),
            ("/x/usr/sbin/mysqld  Ver 9.7.4-2 for Linux on x86_64 ((Debian))", "9.7.4"),
            ("mariadbd  Ver 10.11.14-MariaDB-0+deb12u2 for debian-linux-gnu on x86_64", "10.11.14"),
            ("postgres (PostgreSQL) 18.6 (Debian 18.6-3)", "18.6"),
            ("PgBouncer 1.26.1\nlibevent 2.1.12-stable", "1.26.1"),
            ("Apache ZooKeeper, version 3.9.3 2024-10-17 22:21 UTC", "3.9.3"),
        ] {
            assert_eq!(first_version(text), Some(version), "{text}");
        }
        assert_eq!(first_version("command not found"), None);
    }
}
