//! What MariaDB and MySQL have in common.

use crate::{Durability, Error, Release};

pub(super) const PACKAGE: &str = "mariadb-server";

/// The server's program of a release.
pub(crate) fn daemon(release: &Release) -> Result<String, Error> {
    release.program(if release.name().starts_with("mysql") { "mysqld" } else { "mariadbd" }, PACKAGE)
}

/// When the log is written to the file and to the disk.
pub(super) fn flush(durability: Durability) -> u8 {
    match durability {
        Durability::Disk => 1,
        Durability::OsCache => 2,
        Durability::Fast => 0,
    }
}
