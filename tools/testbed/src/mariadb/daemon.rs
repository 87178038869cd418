//! What MariaDB and MySQL have in common.

use std::net::SocketAddr;

use crate::{Durability, Error, Release, kind::Site};

pub(super) const PACKAGE: &str = "mariadb-server";

/// The server's program of a release.
pub(crate) fn daemon(release: &Release) -> Result<String, Error> {
    release.program(if release.name().starts_with("mysql") { "mysqld" } else { "mariadbd" }, PACKAGE)
}

/// What a server that takes connections is told besides.
pub(super) fn serving(site: &Site<'_>, addr: SocketAddr) -> Result<Vec<String>, Error> {
    let settings = [
        format!("--port={}", addr.port()),
        "--bind-address=127.0.0.1".to_owned(),
        // Relative to the data folder: a path in a deep temporary folder would be too long for a socket.
        "--socket=socket".to_owned(),
        format!("--pid-file={}", site.path("pid")?),
        format!("--init-file={}", site.path("init.sql")?),
        "--max-connections=300".to_owned(),
        format!("--innodb-flush-log-at-trx-commit={}", flush(site.options.durability)),
    ];
    let extra = site.options.settings.iter().map(|(name, value)| format!("--{name}={value}"));
    Ok(settings.into_iter().chain(extra).collect())
}

/// When the log is written to the file and to the disk.
fn flush(durability: Durability) -> u8 {
    match durability {
        Durability::Disk => 1,
        Durability::OsCache => 2,
        Durability::Fast => 0,
    }
}
