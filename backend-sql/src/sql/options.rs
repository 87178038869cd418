//! The options in the address of a database.

use std::time::Duration;

#[cfg(any(feature = "postgres", feature = "mysql"))]
use lockwell_core::ErrorKind;
use lockwell_core::{Error, Result, ServerUrl};

use crate::sql::table::Table;

/// The options that all three databases share.
const SHARED: [&str; 4] = ["create", "purge_after", "table", "timeout"];

/// The option that names a Unix socket.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) const SOCKET: &str = "socket";

/// The options of an address, without user and password.
#[derive(Clone, Debug)]
pub(crate) struct SqlOptions {
    /// The server, for errors. `None` for a file.
    pub(crate) server: Option<String>,
    pub(crate) table: Table,
    /// Whether missing tables are created on connecting.
    pub(crate) create: bool,
    /// How long one request may take, reconnecting and repeating included.
    pub(crate) timeout: Duration,
    /// How long a lock must have been unused before its row is deleted; zero: never.
    pub(crate) purge_after: Duration,
}

impl SqlOptions {
    /// Reads the shared options. `others` are the names of options that only this database has.
    pub(crate) fn read(url: &ServerUrl, others: &[&str]) -> Result<Self> {
        let allowed: Vec<_> = SHARED.iter().chain(others).copied().collect();
        url.allow_options(&allowed)?;
        let timeout = url.timeout()?;
        Ok(Self {
            server: None,
            table: Table::of(url)?,
            create: url.parsed("create", "true or false")?.unwrap_or(true),
            timeout,
            purge_after: url.duration("purge_after")?.unwrap_or(Duration::from_hours(24)),
        })
    }

    /// These options with the server of this address, whose port is this one by default.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(crate) fn at(self, url: &ServerUrl, port: u16) -> Self {
        Self { server: Some(url.servers(port)), ..self }
    }

    /// These options with this server.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(crate) fn of(self, server: String) -> Self {
        Self { server: Some(server), ..self }
    }

    /// Adds the server to an error.
    pub(crate) fn named(&self, error: Error) -> Error {
        match &self.server {
            Some(server) => error.at(server.as_str()),
            None => error,
        }
    }
}

/// Where a server listens.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) enum Listens<'a> {
    /// On a port of a host.
    At(lockwell_core::Host),
    /// On this Unix socket.
    On(&'a str),
}

/// The one host of an address, or the path of its Unix socket.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) fn one_server(url: &ServerUrl) -> Result<Listens<'_>> {
    if let Some(socket) = url.option(SOCKET) {
        let bad = |text| Err(Error::new(ErrorKind::InvalidInput, text));
        if url.hosts().is_ok() {
            return bad(format!("{url} names a host, and the option socket a Unix socket: give one of them"));
        }
        // A relative path would be that of another server in another working directory.
        if !socket.starts_with('/') {
            return bad(format!("socket={socket} is no absolute path"));
        }
        return Ok(Listens::On(socket));
    }
    let mut hosts = url.hosts()?;
    if hosts.len() > 1 {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!("{}:// takes one host, the writer; {} are given", url.scheme(), hosts.len()),
        ));
    }
    Ok(Listens::At(hosts.remove(0)))
}

/// The name of the database: the path of the address.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) fn database(url: &ServerUrl) -> Result<Option<&str>> {
    let name = url.path().trim_start_matches('/');
    if name.contains('/') {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!("the path of {url} names a database, and has one part"),
        ));
    }
    Ok(Some(name).filter(|name| !name.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<SqlOptions> {
        SqlOptions::read(&url.parse().unwrap(), &["busy_timeout"])
    }

    #[test]
    fn defaults_and_bounds() {
        let options = read("sqlite://x.db").unwrap();
        assert!(options.create && options.timeout == Duration::from_secs(5));
        assert!(read("sqlite://x.db?timeout=1ms").is_err());
        assert!(read("sqlite://x.db?create=maybe").unwrap_err().to_string().contains("true or false"));
        let error = read("sqlite://x.db?tabel=x").unwrap_err().to_string();
        assert!(["busy_timeout", "create", "table"].iter().all(|known| error.contains(known)), "{error}");
    }
}
