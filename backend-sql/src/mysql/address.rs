//! From the address to the connection.

use lockwell_core::tls::TlsFiles;
use lockwell_core::{Error, ErrorKind, Result, ServerUrl};
use sqlx_core::connection::ConnectOptions;
use sqlx_mysql::{MySqlConnectOptions, MySqlSslMode};

use crate::sql::options::{Listens, database, one_server};

/// The port that a server has by default.
pub(super) const PORT: u16 = 3306;

/// The options for TLS.
pub(super) const FILES: [&str; 3] = ["sslca", "sslcert", "sslkey"];

pub(super) fn options(url: &ServerUrl) -> Result<MySqlConnectOptions> {
    let server = one_server(url)?;
    let Some(database) = database(url)? else {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!("the address {url} names no database: write mysql://HOST/DATABASE"),
        ));
    };
    let options = MySqlConnectOptions::new();
    let options = match server {
        Listens::At(host) => options.host(host.name()).port(host.port().unwrap_or(PORT)),
        Listens::On(path) => options.socket(path),
    };
    let mut options = options.username(url.user().unwrap_or("root")).database(database);
    if let Some(mode) = url.option("sslmode") {
        options = options.ssl_mode(ssl_mode(mode)?);
    }
    let files = TlsFiles::of(url, FILES)?;
    files.check()?;
    if let Some(file) = files.ca() {
        options = options.ssl_ca(file);
    }
    if let Some((cert, key)) = files.identity() {
        options = options.ssl_client_cert(cert).ssl_client_key(key);
    }
    Ok(ours(options))
}

/// The options with what our statements need, whoever has made the options.
pub(super) fn ours(options: MySqlConnectOptions) -> MySqlConnectOptions {
    options
        .statement_cache_capacity(64)
        // What a session is set to is written in `session.rs`. sqlx would add to the modes of the server.
        .pipes_as_concat(false)
        .no_engine_substitution(false)
        .timezone(None)
        .set_names(false)
        // Whoever knows an owner can release its lock.
        .disable_statement_logging()
}

fn ssl_mode(mode: &str) -> Result<MySqlSslMode> {
    let mode = mode.parse().map_err(|_| {
        Error::new(
            ErrorKind::InvalidInput,
            format!("sslmode={mode} is none of disabled, preferred, required, verify_ca, verify_identity"),
        )
    })?;
    let needs_tls =
        matches!(mode, MySqlSslMode::Required | MySqlSslMode::VerifyCa | MySqlSslMode::VerifyIdentity);
    if needs_tls && !cfg!(feature = "tls") {
        return Err(Error::new(ErrorKind::Unsupported, "TLS needs the feature \"tls\" of lockwell"));
    }
    Ok(mode)
}
