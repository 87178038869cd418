//! How a connection logs in.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use lockwell_core::backend::{by_name_or_address, run_blocking, set_nodelay};
use lockwell_core::{Error, ErrorKind, Passwords, Result, ServerUrl};
use sqlx_core::connection::ConnectOptions;

use crate::sql::unread::{Reread, is_dropped};

/// How long a new connection waits for its options to be set.
const PATIENCE: Duration = Duration::from_millis(100);

/// The options of connections, and where each of them gets its password.
#[derive(Clone)]
pub(crate) struct Login<O> {
    options: O,
    /// `None`: the options have the password, or there is none.
    passwords: Option<Passwords>,
    set: fn(O, &str) -> O,
    /// Where the server is. `None`: it is reached by a Unix socket.
    place: Option<Place<O>>,
}

/// Where a server is.
#[derive(Clone)]
pub(crate) struct Place<O> {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Replaces the host of the options by one of its addresses.
    pub(crate) at: fn(O, SocketAddr) -> O,
}

impl<O: ConnectOptions<Connection: Sized> + Clone + Reread> Login<O> {
    pub(crate) fn new(
        options: O,
        passwords: Option<Passwords>,
        set: fn(O, &str) -> O,
        place: Option<Place<O>>,
    ) -> Self {
        Self { options, passwords, set, place }
    }

    /// This login with other options.
    #[cfg(feature = "postgres")]
    pub(crate) fn with(&self, change: impl FnOnce(O) -> O) -> Self {
        Self { options: change(self.options.clone()), ..self.clone() }
    }

    /// Makes a connection.
    ///
    /// sqlx does not set `TCP_NODELAY`. It writes what does not fit into one record of TLS, which has 16 KiB,
    /// in parts, and the second part would wait until the server acknowledges the first one. That takes some
    /// 40 ms.
    pub(crate) async fn connect(&self) -> sqlx_core::Result<O::Connection> {
        let conn = self.reach(|options| async move { try_once(&options).await }).await?;
        if let Some(Place { port, .. }) = self.place {
            let set = move || set_nodelay(|peer| peer.port() == port);
            let set = tokio::time::timeout(PATIENCE, run_blocking("lockwell-nodelay", set)).await;
            match set {
                Ok(Ok(Err(error))) => tracing::debug!(%error, "TCP_NODELAY cannot be set"),
                Ok(Err(error)) => tracing::debug!(%error, "TCP_NODELAY is not set"),
                _ => (),
            }
        }
        Ok(conn)
    }

    /// Connects to the server by its name and, if it is silent there, by each address of the name.
    pub(crate) async fn reach<T, F>(&self, open: impl Fn(O) -> F) -> sqlx_core::Result<T>
    where
        F: Future<Output = sqlx_core::Result<T>>,
    {
        let Some(Place { host, port, at }) = &self.place else {
            return self.log_in(self.options.clone(), &open).await;
        };
        let open = &open;
        let reached = by_name_or_address(host, *port, |place| async move {
            let (options, by_name) = (self.options.clone(), place.is_none());
            let options = place.map_or(options.clone(), |place| at(options, place));
            match self.log_in(options, open).await {
                Err(error) if !is_answer(&error, by_name) => Err(error),
                answer => Ok(answer),
            }
        });
        reached.await?
    }

    /// If the server refuses the password, and there is another by now, it tries that.
    async fn log_in<T, F>(&self, options: O, open: impl Fn(O) -> F) -> sqlx_core::Result<T>
    where
        F: Future<Output = sqlx_core::Result<T>>,
    {
        let Some(passwords) = &self.passwords else { return open(options).await };
        let password = passwords.current().await.map_err(unavailable)?;
        let with = |password: &str| open((self.set)(options.clone(), password));
        match with(password.expose()).await {
            Err(error) if is_refused(&error) => match passwords.other_than(&password).await {
                Some(other) => with(other.expose()).await,
                None => Err(error),
            },
            done => done,
        }
    }
}

/// If sqlx drops the answer of the server, the server is asked for its code.
async fn try_once<O: ConnectOptions + Reread>(options: &O) -> sqlx_core::Result<O::Connection>
where
    O::Connection: Sized,
{
    let error = match options.connect().await {
        Err(error) if is_dropped(&error) => error,
        done => return done,
    };
    Err(Box::pin(options.reread()).await.map_or(error, |unread| sqlx_core::Error::Database(Box::new(unread))))
}

impl<O> fmt::Debug for Login<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("passwords", &self.passwords).finish_non_exhaustive()
    }
}

/// As if the server could not be reached: it is tried again.
fn unavailable(error: Error) -> sqlx_core::Error {
    sqlx_core::Error::Io(std::io::Error::other(error))
}

/// Whether a server has answered with this error. TLS verifies the address if sqlx has that for the host, and some
/// routers of clouds (XX000) know a server by the name alone: that is no answer to who connects by an address.
fn is_answer(error: &sqlx_core::Error, by_name: bool) -> bool {
    match error {
        sqlx_core::Error::Io(_) => false,
        sqlx_core::Error::Database(error) => by_name || error.code().as_deref() != Some("XX000"),
        _ => by_name,
    }
}

/// SQLSTATE 28: invalid authorization. MySQL uses it, too.
fn is_refused(error: &sqlx_core::Error) -> bool {
    error
        .as_database_error()
        .and_then(sqlx_core::error::DatabaseError::code)
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
