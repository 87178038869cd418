//! The programs that the tests and the comparison can use, and their Debian packages.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::shell::text;

/// One package.
#[derive(Debug)]
pub(crate) struct Package {
    /// What is missing without it. A server has its name in `compare-bench --backend`.
    pub(crate) gives: &'static str,
    pub(crate) name: &'static str,
    sign: Sign,
}

/// How to find out whether a package is installed.
#[derive(Debug)]
enum Sign {
    /// A file. A name without a slash is looked for where programs are.
    File(&'static str),
    /// A module of Python.
    Module(&'static str),
}

/// Every server that the comparison starts.
pub(crate) const SERVERS: [Package; 5] = [
    Package { gives: "postgres", name: "postgresql", sign: Sign::File("postgres") },
    Package { gives: "mariadb", name: "mariadb-server", sign: Sign::File("mariadbd") },
    Package { gives: "redis", name: "redis-server", sign: Sign::File("redis-server") },
    Package { gives: "zookeeper", name: "zookeeper", sign: Sign::File("/usr/share/java/zookeeper.jar") },
    Package { gives: "etcd", name: "etcd-server", sign: Sign::File("etcd") },
];

/// What else the tests use: a pooler, and what the lock clients of others need,
/// which ours are tested with. Those of Python and Node come from their indexes.
pub(crate) const TOOLS: [Package; 7] = [
    Package { gives: "the pooler before PostgreSQL", name: "pgbouncer", sign: Sign::File("pgbouncer") },
    Package {
        gives: "Curator",
        name: "libcurator-recipes-java",
        sign: Sign::File("/usr/share/java/curator-recipes.jar"),
    },
    Package { gives: "the Java compiler", name: "default-jdk-headless", sign: Sign::File("javac") },
    Package { gives: "kazoo and redis-py", name: "python3-venv", sign: Sign::Module("ensurepip") },
    Package { gives: "the first day of docs", name: "curl", sign: Sign::File("curl") },
    Package { gives: "node-redlock", name: "npm", sign: Sign::File("npm") },
    Package { gives: "disks that hang", name: "strace", sign: Sign::File("strace") },
];

/// Debian keeps daemons out of an ordinary user's `PATH`.
const DAEMON_FOLDERS: [&str; 5] = ["/usr/sbin", "/usr/local/sbin", "/sbin", "/usr/bin", "/usr/local/bin"];

impl Package {
    pub(crate) fn is_installed(&self) -> bool {
        match self.sign {
            Sign::File(file) => is_there(file),
            Sign::Module(module) => {
                text(Command::new("python3").args(["-c", &format!("import {module}")])).is_ok()
            }
        }
    }
}

fn is_there(file: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path)
        .chain(DAEMON_FOLDERS.iter().map(PathBuf::from))
        // Debian has one folder for each version of Postgres, and none of them in the path.
        .chain(versions_of_postgres(Path::new("/usr/lib/postgresql")));
    // Joining an absolute path to a folder yields that path.
    folders.into_iter().any(|folder| folder.join(file).is_file())
}

fn versions_of_postgres(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path().join("bin")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_found_and_what_is_not_is_not() {
        assert!(is_there("sh"));
        assert!(is_there("/etc/passwd"));
        assert!(!is_there("no-such-program"));
        assert!(!is_there("/no/such/file"));
        let package = Package { gives: "x", name: "x", sign: Sign::Module("no_such_module") };
        assert!(!package.is_installed());
    }
}
