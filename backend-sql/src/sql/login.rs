//! How a connection logs in.

use std::fmt;
use std::time::Duration;

use lockwell_core::backend::set_nodelay;
use lockwell_core::{Error, ErrorKind, Passwords, Result, ServerUrl};
use sqlx::ConnectOptions;

/// How long a new connection waits for its options to be set.
const PATIENCE: Duration = Duration::from_millis(100);

/// The options of connections, and where each of them gets its password.
#[derive(Clone)]
pub(crate) struct Login<O> {
    options: O,
    /// `None`: the options have the password, or there is none.
    passwords: Option<Passwords>,
    set: fn(O, &str) -> O,
    /// The port of the server. `None`: it is reached by a Unix socket.
    port: Option<u16>,
}

impl<O: ConnectOptions<Connection: Sized> + Clone> Login<O> {
    pub(crate) fn new(
        options: O,
        passwords: Option<Passwords>,
        set: fn(O, &str) -> O,
        port: Option<u16>,
    ) -> Self {
        Self { options, passwords, set, port }
    }

    /// The same with other options.
    #[cfg(feature = "postgres")]
    pub(crate) fn with(&self, change: impl FnOnce(O) -> O) -> Self {
        Self { options: change(self.options.clone()), ..self.clone() }
    }

    /// The options with the present password.
    #[cfg(feature = "postgres")]
    pub(crate) async fn options(&self) -> sqlx::Result<O> {
        let Some(passwords) = &self.passwords else { return Ok(self.options.clone()) };
        let password = passwords.current().await.map_err(unavailable)?;
        Ok((self.set)(self.options.clone(), password.expose()))
    }

    /// Makes a connection.
    ///
    /// sqlx does not set `TCP_NODELAY`. It writes what does not fit into one record of TLS, which has 16 KiB,
    /// in parts, and the second part would wait until the server acknowledges the first one. That takes some
    /// 40 ms.
    pub(crate) async fn connect(&self) -> sqlx::Result<O::Connection> {
        let conn = self.log_in().await?;
        if let Some(port) = self.port {
            let set = move || set_nodelay(|peer| peer.port() == port);
            // The application may have taken all threads for that: then it is set when one is free.
            let set = tokio::time::timeout(PATIENCE, tokio::task::spawn_blocking(set)).await;
            if let Ok(Ok(Err(error))) = set {
                tracing::debug!(%error, "TCP_NODELAY cannot be set");
            }
        }
        Ok(conn)
    }

    /// If the server refuses the password, and there is another by now, it tries that.
    async fn log_in(&self) -> sqlx::Result<O::Connection> {
        let Some(passwords) = &self.passwords else { return self.options.connect().await };
        let password = passwords.current().await.map_err(unavailable)?;
        let with = |password: &str| (self.set)(self.options.clone(), password);
        match with(password.expose()).connect().await {
            Err(error) if is_refused(&error) => match passwords.other_than(&password).await {
                Some(other) => with(other.expose()).connect().await,
                None => Err(error),
            },
            done => done,
        }
    }
}

impl<O> fmt::Debug for Login<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("passwords", &self.passwords).finish_non_exhaustive()
    }
}

/// As if the server could not be reached: it is tried again.
fn unavailable(error: Error) -> sqlx::Error {
    sqlx::Error::Io(std::io::Error::other(error))
}

/// SQLSTATE 28: invalid authorization. MySQL uses it, too.
fn is_refused(error: &sqlx::Error) -> bool {
    error
        .as_database_error()
        .and_then(sqlx::error::DatabaseError::code)
        .is_some_and(|code| code.starts_with("28"))
}

/// Refuses an address that says where the server is, beside options of the application that say it.
pub(crate) fn names_no_server(url: &ServerUrl) -> Result<()> {
    if url.location().is_empty() && url.user().is_none() {
        return Ok(());
    }
    let text = format!(
        "the options of the application name server, user and database: write {}://?OPTIONS, not {url}",
        url.scheme()
    );
    Err(Error::new(ErrorKind::InvalidInput, text))
}

/// The server of the application's options, for errors.
pub(crate) fn server(host: &str, port: u16, socket: Option<&std::path::PathBuf>) -> String {
    match socket {
        Some(socket) => socket.display().to_string(),
        None if host.contains(':') => format!("[{host}]:{port}"),
        None => format!("{host}:{port}"),
    }
}
