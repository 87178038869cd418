//! Runs the commands of a server, and waits for what they do.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use crate::{
    Error,
    kept::Kept,
    kind::{Kind, Site},
    proctree,
    programs::text,
    supervisor::Supervisor,
};

/// How long a server gets to start or to stop. A loaded machine with two cores needs some of it.
pub(super) const TIMEOUT: Duration = Duration::from_secs(90);

/// What changes while the server lives.
pub(super) struct Run {
    pub(super) supervisor: Supervisor,
    pub(super) pid: Option<u32>,
}

/// How much of the log an error shows.
const TAIL: usize = 4000;

/// Makes the data folder, or copies one.
pub(super) fn make_data(kind: &dyn Kind, site: &Site<'_>, supervisor: &mut Supervisor) -> Result<(), Error> {
    let commands = kind.prepare(site)?;
    let kept = find_data(kind, site, &commands)?;
    if let Some(whole) = kept.as_ref().and_then(Kept::whole) {
        return copy(kind, site, supervisor, &whole, &site.folder.join("data"));
    }
    for command in &commands {
        prepare(kind, site, supervisor, command)?;
    }
    let Some(kept) = kept else { return Ok(()) };
    let filled = kept.fill(|folder| {
        copy(kind, site, supervisor, &site.folder.join("data"), folder)?;
        kind.own_files().iter().try_for_each(|file| Ok(fs::remove_file(folder.join(file))?))
    });
    if let Err(error) = filled {
        tracing::warn!(server = kind.name(), %error, "its data folder is not kept");
    }
    Ok(())
}

/// Looks for a data folder that these commands have made.
fn find_data(kind: &dyn Kind, site: &Site<'_>, commands: &[Vec<String>]) -> Result<Option<Kept>, Error> {
    let makers = kind.makers()?;
    if site.options.measured || makers.is_empty() {
        return Ok(None);
    }
    // They name the folder of this server, which is another each time.
    let folder = text(site.folder)?;
    let like: Vec<String> = commands.iter().flatten().map(|word| word.replace(&folder, "")).collect();
    Ok(Kept::find(kind.name(), &like, &makers))
}

/// Copies what is in a folder, with its owners. The copying ends with the server if this process is killed.
fn copy(
    kind: &dyn Kind,
    site: &Site<'_>,
    supervisor: &mut Supervisor,
    from: &Path,
    to: &Path,
) -> Result<(), Error> {
    let command = ["cp".to_owned(), "-a".to_owned(), text(&from.join("."))?, text(to)?];
    prepare(kind, site, supervisor, &command)
}

/// Runs one of the commands that make the data folder.
fn prepare(
    kind: &dyn Kind,
    site: &Site<'_>,
    supervisor: &mut Supervisor,
    command: &[String],
) -> Result<(), Error> {
    site.script("prepare.sh", command)?;
    let pid = supervisor.spawn("prepare.sh")?;
    let deadline = Instant::now() + TIMEOUT;
    while proctree::alive(pid) {
        if Instant::now() > deadline {
            return Err(failed(kind, &format!("{command:?} took over {TIMEOUT:?}"), &site.read("log")));
        }
        thread::sleep(Duration::from_millis(5));
    }
    match supervisor.collect(pid)?.as_str() {
        "0" => Ok(()),
        status => Err(failed(kind, &format!("{command:?} ended with status {status}"), &site.read("log"))),
    }
}

/// Starts the server process and waits until it takes connections.
pub(super) fn launch(kind: &dyn Kind, site: &Site<'_>, addr: SocketAddr, run: &mut Run) -> Result<(), Error> {
    let old_log = site.log_length();
    let mut command = kind.command(site, addr)?;
    if !site.options.environment.is_empty() {
        let variables = site.options.environment.iter().map(|(name, value)| format!("{name}={value}"));
        command.splice(0..0, std::iter::once("/usr/bin/env".to_owned()).chain(variables));
    }
    site.script("run.sh", &command)?;
    let pid = run.supervisor.spawn("run.sh")?;
    run.pid = Some(pid);
    let begun = Instant::now();
    loop {
        if kind.ready(site, addr, pid, &site.log_since(old_log)) {
            tracing::debug!(server = kind.name(), %addr, pid, took = ?begun.elapsed(), "ready");
            return Ok(());
        }
        let why = if !proctree::alive(pid) {
            "its process ended".to_owned()
        } else if begun.elapsed() > TIMEOUT {
            proctree::kill(pid)?;
            format!("it took no connections on {addr} within {TIMEOUT:?}")
        } else {
            thread::sleep(Duration::from_millis(5));
            continue;
        };
        run.forget()?;
        // Read again: the last words may be newer than the look above.
        return Err(failed(kind, &why, &site.log_since(old_log)));
    }
}

fn failed(kind: &dyn Kind, why: &str, log: &str) -> Error {
    Error::Startup { server: kind.name(), why: why.to_owned(), log: tail(log) }
}

/// The last lines of a log.
pub(super) fn tail(log: &str) -> String {
    let from = log.len().saturating_sub(TAIL);
    let start = (from..=log.len()).find(|at| log.is_char_boundary(*at)).unwrap_or(log.len());
    log.get(start..).unwrap_or_default().trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_keeps_whole_characters() {
        let log = "ü".repeat(TAIL);
        assert_eq!(tail(&log).len(), TAIL);
        assert_eq!(tail(&format!("x{log}")).len(), TAIL);
        assert_eq!(tail(&format!("{log}x")).len(), TAIL - 1);
        assert_eq!(tail("short\n"), "short");
    }
}
