//! The way to the lock server.

use std::time::Duration;

use lockwell::{Error, ErrorKind, LockConfig, Locks, Operation, Result};

use crate::args::Server;

/// How long connecting may take: as long as the caller would wait for the lock, within these bounds.
const SHORTEST: Duration = Duration::from_secs(3);
const LONGEST: Duration = Duration::from_secs(10);

/// Connects to the server that the command line or the environment names.
pub(crate) async fn connect(server: &Server, label: Option<&str>, wait: Option<Duration>) -> Result<Locks> {
    let mut config = match server.url.as_deref() {
        Some(url) if !url.is_empty() => LockConfig::new(url),
        _ => {
            let message = format!(
                "no lock server is named: give --url or set {} to an address such as sqlite://locks.db",
                LockConfig::ENV
            );
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
    };
    config.label = label.map(str::to_owned);
    let limit = wait.map_or(LONGEST, |wait| wait.clamp(SHORTEST, LONGEST));
    tokio::time::timeout(limit, lockwell::connect_with(config)).await.unwrap_or_else(|_| {
        let limit = humantime::format_duration(limit);
        let message = format!("no answer from the lock server within {limit}");
        Err(Error::new(ErrorKind::Unreachable, message).during(Operation::Connect))
    })
}
