//! The releases of servers that the tests know, and where their programs are.
//!
//! What the machine's package system has installed is used as it is. Other releases, older and newer ones,
//! lie in folders of their own, from which they run with the libraries that belong to them;
//! [`Release::fetch`] puts them there.

mod apt;
mod recipes;
mod unpack;
mod version;

use std::{
    env,
    path::{Path, PathBuf},
};

pub(crate) use self::recipes::Recipe;
use crate::{
    Error,
    programs::{self, Nobody, text},
};

/// The variable with the releases that servers use whose options name none, as in `valkey9,postgres18`.
const CHOSEN: &str = "LOCKWELL_RELEASES";

/// The variable with the folder in which fetched releases are kept.
const FOLDER: &str = "LOCKWELL_SERVERS_FOLDER";

/// Which servers can stand for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Family {
    /// Redis and Valkey.
    Redis,
    /// `MariaDB` and MySQL.
    MySql,
    /// `PostgreSQL`.
    Postgres,
    /// `PgBouncer`.
    PgBouncer,
    /// `ZooKeeper`.
    ZooKeeper,
    /// etcd.
    Etcd,
}

/// A release of a server.
#[derive(Debug, PartialEq, Eq)]
pub struct Release {
    name: &'static str,
    product: &'static str,
    version: &'static str,
    family: Family,
    /// How to fetch it. Without one it is what the machine has.
    recipe: Option<Recipe>,
}

/// All of them. Those of the machine come first in their families.
static ALL: [Release; 15] = [
    installed("redis7", "Redis", "7.0", Family::Redis),
    fetched("redis6", "Redis", "6.0", Family::Redis, &recipes::REDIS_6),
    fetched("redis8", "Redis", "8.0", Family::Redis, &recipes::REDIS_8),
    fetched("valkey9", "Valkey", "9.1", Family::Redis, &recipes::VALKEY_9),
    installed("mariadb10", "MariaDB", "10.11", Family::MySql),
    fetched("mariadb11", "MariaDB", "11.8", Family::MySql, &recipes::MARIADB_11),
    fetched("mysql9", "MySQL", "9.7", Family::MySql, &recipes::MYSQL_9),
    installed("postgres15", "PostgreSQL", "15", Family::Postgres),
    fetched("postgres18", "PostgreSQL", "18", Family::Postgres, &recipes::POSTGRES_18),
    installed("pgbouncer1.18", "PgBouncer", "1.18", Family::PgBouncer),
    fetched("pgbouncer1.26", "PgBouncer", "1.26", Family::PgBouncer, &recipes::PGBOUNCER_1_26),
    installed("zookeeper3.8", "ZooKeeper", "3.8", Family::ZooKeeper),
    fetched("zookeeper3.9", "ZooKeeper", "3.9", Family::ZooKeeper, &recipes::ZOOKEEPER_3_9),
    installed("etcd3.4", "etcd", "3.4", Family::Etcd),
    fetched("etcd3.5", "etcd", "3.5", Family::Etcd, &recipes::ETCD_3_5),
];

const fn installed(
    name: &'static str,
    product: &'static str,
    version: &'static str,
    family: Family,
) -> Release {
    Release { name, product, version, family, recipe: None }
}

const fn fetched(
    name: &'static str,
    product: &'static str,
    version: &'static str,
    family: Family,
    recipe: &Recipe,
) -> Release {
    Release { name, product, version, family, recipe: Some(*recipe) }
}

impl Release {
    /// Every release.
    pub fn all() -> &'static [Self] {
        &ALL
    }

    /// The release of this name: `redis8`.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn named(name: &str) -> &'static Self {
        let found = ALL.iter().find(|release| release.name == name);
        found.unwrap_or_else(|| {
            panic!("there is no release {name:?}, but {:?}", ALL.each_ref().map(Self::name))
        })
    }

    /// Its name in options and variables: `redis8`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Its name in the documentation: `Redis 8.0`. What the machine has may be another version, see
    /// [`Release::surprise`].
    pub fn title(&self) -> String {
        format!("{} {}", self.product, self.version)
    }

    /// Which servers it can stand for.
    pub fn family(&self) -> Family {
        self.family
    }

    /// Whether it is fetched, and not what the machine has installed.
    pub fn is_fetched(&self) -> bool {
        self.recipe.is_some()
    }

    /// Whether it is Redis 6.0, which lacks much that tests use.
    pub fn is_redis_6(&self) -> bool {
        self.name == "redis6"
    }

    /// Whether one server of it belongs to every run of the tests although it is fetched: MySQL, which is
    /// another program than the machine has.
    pub fn is_usual(&self) -> bool {
        !self.is_fetched() || self.name == "mysql9"
    }

    /// What is to be said about a version that is another than the documentation names.
    pub fn surprise(&self, version: &str) -> Option<String> {
        let rest = version.strip_prefix(self.version);
        let expected = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        (!expected)
            .then(|| format!("{} is {version} here; the documentation names {}", self.product, self.version))
    }

    /// The release of a server of this family whose options name none: one that the environment names, or
    /// what is installed.
    pub fn chosen(family: Family) -> Result<&'static Self, Error> {
        Self::choose(family, None)
    }

    /// The release for a server of this family: the one that was asked for, one that the environment names,
    /// or what is installed.
    pub(crate) fn choose(family: Family, asked: Option<&'static Self>) -> Result<&'static Self, Error> {
        let named = env::var(CHOSEN).unwrap_or_default();
        let named: Vec<_> = named.split(',').filter(|name| !name.is_empty()).map(Self::named).collect();
        let chosen = asked.or_else(|| named.into_iter().find(|release| release.family == family));
        let chosen = chosen.or_else(|| ALL.iter().find(|release| release.family == family));
        let fits = chosen.filter(|release| release.family == family);
        fits.ok_or_else(|| Error::State(format!("{asked:?} is not of the family {family:?}")))
    }

    /// The folder of a fetched release, which stands for the root of its file system. An error if it was not
    /// fetched.
    pub(crate) fn root(&self) -> Result<Option<PathBuf>, Error> {
        let Some(recipe) = &self.recipe else { return Ok(None) };
        let root = fetched_folder().join(self.name);
        if recipes::is_whole(recipe, &root) {
            return Ok(Some(root));
        }
        let (title, name) = (self.title(), self.name);
        Err(Error::NotInstalled(format!("{title} was not fetched: cargo xtask servers fetch {name}")))
    }

    /// The path of one of its programs. `package` is where an installed one comes from.
    pub(crate) fn program(&self, program: &str, package: &str) -> Result<String, Error> {
        let Some(root) = self.root()? else { return programs::find(program, package) };
        let found = self.recipe.iter().flat_map(|recipe| recipe.programs);
        let found = found.map(|path| root.join(path)).find(|path| path.ends_with(program));
        text(&found.ok_or_else(|| Error::State(format!("{} has no {program}", self.title())))?)
    }

    /// Whether the user `nobody`, which some servers run as if we are root, may run its programs.
    pub(crate) fn open_to_nobody(&self) -> Result<(), Error> {
        let (Some(root), Some(_)) = (self.root()?, Nobody::if_root()) else { return Ok(()) };
        let closed = |folder: &&Path| {
            use std::os::unix::fs::PermissionsExt;
            folder.metadata().is_ok_and(|its| its.permissions().mode() & 0o001 == 0)
        };
        let Some(folder) = root.ancestors().find(closed) else { return Ok(()) };
        let why = format!("the user nobody may not enter {}: set {FOLDER} to another", folder.display());
        Err(Error::NotInstalled(format!("{} cannot run: {why}", self.title())))
    }
}

/// Where fetched releases are kept: a folder of the workspace's target folder, or what the environment says.
fn fetched_folder() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new("."));
    env::var_os(FOLDER).map_or_else(|| workspace.join("target/servers"), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_the_documentation_does_not_name_is_a_surprise() {
        let redis = Release::named("redis8");
        assert_eq!(redis.title(), "Redis 8.0");
        for expected in ["8.0", "8.0.2"] {
            assert_eq!(redis.surprise(expected), None);
        }
        for other in ["8.01", "8.2.0", "18.0", "7.0.15"] {
            assert!(redis.surprise(other).is_some_and(|text| text.contains(other)), "{other}");
        }
    }

    #[test]
    fn every_run_has_each_kind_of_program() {
        let usual = |name| Release::named(name).is_usual();
        assert!(["redis7", "postgres15", "mariadb10", "mysql9"].into_iter().all(usual));
        assert!(!usual("mariadb11") && !usual("redis8"));
    }

    #[test]
    fn a_server_gets_what_its_options_say() {
        let asked = Release::named("valkey9");
        assert_eq!(Release::choose(Family::Redis, Some(asked)).expect("it fits"), asked);
        Release::choose(Family::Postgres, Some(asked)).expect_err("another kind of server");
        assert_eq!(Release::chosen(Family::Etcd).expect("there is one").family(), Family::Etcd);
    }
}
