//! What fetched releases are made of.

use std::{fs, path::Path};

/// Counts the ways in which we have unpacked releases, so that what an older way left is fetched anew.
const WAY: u32 = 1;

/// What a release is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Recipe {
    /// The suite of Debian in which it is.
    pub(super) suite: &'static str,
    /// The packages with its programs. Libraries come by themselves.
    pub(super) packages: &'static [&'static str],
    /// Its programs, as paths below the root.
    pub(crate) programs: &'static [&'static str],
}

/// The first release with RESP3, which the backend needs.
pub(super) const REDIS_6: Recipe = Recipe {
    suite: "bullseye",
    // The last two are libraries, in spite of their names.
    packages: &["redis-server", "redis-tools", "lua-bitop", "lua-cjson"],
    programs: &["usr/bin/redis-server"],
};

pub(super) const REDIS_8: Recipe = Recipe {
    suite: "trixie",
    packages: &["redis-server", "redis-tools"],
    programs: &["usr/bin/redis-server"],
};

pub(super) const VALKEY_9: Recipe = Recipe {
    suite: "sid",
    packages: &["valkey-server", "valkey-tools"],
    programs: &["usr/bin/valkey-server"],
};

pub(super) const MARIADB_11: Recipe = Recipe {
    suite: "trixie",
    packages: &["mariadb-server-core", "mariadb-client-core", "mariadb-common"],
    programs: &[
        "usr/sbin/mariadbd",
        "usr/bin/mariadb",
        // Used by the script mariadb-install-db.
        "usr/bin/my_print_defaults",
        "usr/bin/resolveip",
        "usr/bin/mariadb-install-db",
    ],
};

pub(super) const MYSQL_9: Recipe =
    Recipe { suite: "sid", packages: &["mysql-server-core"], programs: &["usr/sbin/mysqld"] };

pub(super) const POSTGRES_18: Recipe = Recipe {
    suite: "sid",
    packages: &["postgresql-18", "postgresql-client-18"],
    programs: &[
        "usr/lib/postgresql/18/bin/initdb",
        "usr/lib/postgresql/18/bin/postgres",
        "usr/lib/postgresql/18/bin/psql",
    ],
};

pub(super) const PGBOUNCER_1_26: Recipe =
    Recipe { suite: "sid", packages: &["pgbouncer"], programs: &["usr/sbin/pgbouncer"] };

/// The server is a Java archive, and runs on the machine's own Java.
pub(super) const ZOOKEEPER_3_9: Recipe =
    Recipe { suite: "trixie", packages: &["zookeeper", "libzookeeper-java"], programs: &[] };

pub(super) const ETCD_3_5: Recipe =
    Recipe { suite: "trixie", packages: &["etcd-server"], programs: &["usr/bin/etcd"] };

impl Recipe {
    /// What a whole folder says about itself.
    pub(super) fn mark(&self) -> String {
        format!("{WAY} {} {}\n", self.suite, self.packages.join(" "))
    }

    /// Whether a package is worth its space. What only sets up an installed system is not.
    pub(super) fn keeps(&self, package: &str) -> bool {
        let java = package.starts_with("lib") && package.ends_with("-java");
        let unused =
            ["libperl", "libpam-", "libc-l10n", "libicu-dev"].iter().any(|it| package.starts_with(it));
        let native = package.starts_with("lib") && !java && !unused && !package.ends_with("-perl");
        self.packages.contains(&package) || if self.programs.is_empty() { java } else { native }
    }
}

/// Whether the folder holds all of it.
pub(super) fn is_whole(recipe: &Recipe, root: &Path) -> bool {
    fs::read_to_string(root.join(".whole")).is_ok_and(|mark| mark == recipe.mark())
}
