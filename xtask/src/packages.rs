//! The servers that tests and comparison can use, and the Debian packages that they come in.

use std::path::{Path, PathBuf};

/// One server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Server {
    /// As `compare-bench --backend` calls it.
    pub(crate) backend: &'static str,
    pub(crate) package: &'static str,
    /// The file that shows that it is installed; a name without a slash is looked for where programs are.
    program: &'static str,
    /// Whether there is a backend that needs it. A new backend sets it to true.
    in_use: bool,
}

/// Every server. The last is for a backend to come.
const SERVERS: [Server; 4] = [
    Server { backend: "postgres", package: "postgresql", program: "postgres", in_use: true },
    Server { backend: "mariadb", package: "mariadb-server", program: "mariadbd", in_use: true },
    Server { backend: "redis", package: "redis-server", program: "redis-server", in_use: true },
    Server {
        backend: "zookeeper",
        package: "zookeeper",
        program: "/usr/share/java/zookeeper.jar",
        in_use: false,
    },
];

/// Debian keeps daemons out of an ordinary user's `PATH`.
const DAEMON_FOLDERS: [&str; 5] = ["/usr/sbin", "/usr/local/sbin", "/sbin", "/usr/bin", "/usr/local/bin"];

/// The servers that the backends of today need.
pub(crate) fn in_use() -> impl Iterator<Item = &'static Server> {
    SERVERS.iter().filter(|server| server.in_use)
}

impl Server {
    pub(crate) fn is_installed(&self) -> bool {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&path)
            .chain(DAEMON_FOLDERS.iter().map(PathBuf::from))
            // Debian has one folder for each version of Postgres, and none of them in the path.
            .chain(versions_of_postgres(Path::new("/usr/lib/postgresql")));
        // Joining an absolute path to a folder yields that path.
        folders.into_iter().any(|folder| folder.join(self.program).is_file())
    }
}

fn versions_of_postgres(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path().join("bin")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_and_a_missing_one_is_not() {
        let server = |program| Server { backend: "x", package: "x", program, in_use: true };
        assert!(server("sh").is_installed());
        assert!(server("/etc/passwd").is_installed());
        assert!(!server("no-such-program").is_installed());
        assert!(!server("/no/such/file").is_installed());
    }

    #[test]
    fn todays_backends_need_three_servers() {
        let packages: Vec<_> = in_use().map(|server| server.package).collect();
        assert_eq!(packages, ["postgresql", "mariadb-server", "redis-server"]);
    }
}
