//! The way to the lock server.

use std::sync::Arc;
use std::time::Duration;

use lockwell::{DistributedLock, Error, ErrorKind, LockConfig, Operation, Result};

use crate::args::Server;

/// How long connecting may take: as long as the caller would wait for the lock, within these bounds.
const SHORTEST: Duration = Duration::from_secs(3);
const LONGEST: Duration = Duration::from_secs(10);

/// Connects to the server that the command line or the environment names. Also returns what the address says beside
/// the way to the server.
pub(crate) async fn connect(
    server: &Server,
    label: Option<&str>,
    wait: Option<Duration>,
) -> Result<(Arc<dyn DistributedLock>, LockConfig)> {
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
    let (url, config) = config.resolve()?;
    let limit = wait.or(config.wait).map_or(LONGEST, |wait| wait.clamp(SHORTEST, LONGEST));
    let backend =
        tokio::time::timeout(limit, lockwell::connect_backend(&url)).await.unwrap_or_else(|_| {
            let limit = humantime::format_duration(limit);
            let message = format!("no answer from the lock server within {limit}");
            Err(Error::new(ErrorKind::Unreachable, message).during(Operation::Connect))
        })?;
    Ok((backend, config))
}
