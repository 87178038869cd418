//! Groups of servers: started together, and ready when their members agree.

use std::{
    future::Future,
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use crate::{Error, Server, server::blocking};

/// How long a group gets to come to an agreement.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Starts all at the same time. If one fails, the others are taken down again.
pub(crate) async fn start_all<T, F>(starts: impl IntoIterator<Item = F>) -> Result<Vec<T>, Error>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Error>> + Send + 'static,
{
    let tasks: Vec<_> = starts.into_iter().map(tokio::spawn).collect();
    let mut outcomes = Vec::new();
    for task in tasks {
        outcomes.push(match task.await {
            Ok(outcome) => outcome,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(Error::State("the runtime is shutting down".into())),
        });
    }
    outcomes.into_iter().collect()
}

/// Whether a group is ready.
pub(crate) enum Readiness {
    Ready,
    /// Why not.
    NotYet(String),
}

/// Checks the group repeatedly until it is ready. `readiness` may block.
pub(crate) async fn until_ready(
    server: &'static str,
    mut readiness: impl FnMut() -> Result<Readiness, Error> + Send + 'static,
    log: impl FnOnce() -> String + Send + 'static,
) -> Result<(), Error> {
    blocking(move || {
        let begun = Instant::now();
        loop {
            let why = match readiness()? {
                Readiness::Ready => break,
                Readiness::NotYet(why) => why,
            };
            if begun.elapsed() > TIMEOUT {
                let why = format!("after {TIMEOUT:?}: {why}");
                return Err(Error::Startup { server, why, log: log() });
            }
            thread::sleep(Duration::from_millis(20));
        }
        tracing::debug!(server, took = ?begun.elapsed(), "the group is ready");
        Ok(())
    })
    .await
}

/// The addresses as they stand in a URL.
pub(crate) fn hosts(addresses: &[SocketAddr]) -> String {
    let hosts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    hosts.join(",")
}

/// The ends of the logs of all.
pub(crate) fn logs<'a>(servers: impl Iterator<Item = &'a Server>) -> String {
    let logs = servers.map(|server| format!("{}:\n{}\n", server.addr(), server.log_tail()));
    logs.collect::<Vec<_>>().concat()
}
