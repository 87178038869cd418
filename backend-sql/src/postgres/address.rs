//! From the address to the connection.

use lockcore::tls::TlsFiles;
use lockcore::{Error, ErrorKind, Result, ServerUrl};
use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgSslMode};

use crate::options::{database, one_host};

/// The options for TLS.
pub(super) const FILES: [&str; 3] = ["sslrootcert", "sslcert", "sslkey"];

pub(super) fn options(url: &ServerUrl) -> Result<PgConnectOptions> {
    let host = one_host(url)?;
    // Without the password file and the environment of libpq: the address says everything.
    let mut options = PgConnectOptions::new_without_pgpass()
        .host(host.name())
        .port(host.port().unwrap_or(5432))
        .username(url.user().unwrap_or("postgres"))
        // Poolers do not know this one by default, and there are no floats here.
        .extra_float_digits(None)
        .application_name("lockwell")
        // Arguments that are written into the text of a statement, owners among them, must not get into logs.
        .disable_statement_logging();
    if let Some(password) = url.password() {
        options = options.password(password.expose());
    }
    // As libpq does, but never what the environment names.
    options = options.database(database(url)?.or(url.user()).unwrap_or("postgres"));
    if let Some(mode) = url.option("sslmode") {
        options = options.ssl_mode(ssl_mode(mode)?);
    }
    let files = TlsFiles::of(url, FILES)?;
    files.check()?;
    if let Some(file) = files.ca() {
        options = options.ssl_root_cert(file);
    }
    if let Some((cert, key)) = files.identity() {
        options = options.ssl_client_cert(cert).ssl_client_key(key);
    }
    Ok(options)
}

fn ssl_mode(mode: &str) -> Result<PgSslMode> {
    let mode = mode.parse().map_err(|_| {
        Error::new(
            ErrorKind::InvalidInput,
            format!("sslmode={mode} is none of disable, allow, prefer, require, verify-ca, verify-full"),
        )
    })?;
    let needs_tls = matches!(mode, PgSslMode::Require | PgSslMode::VerifyCa | PgSslMode::VerifyFull);
    if needs_tls && !cfg!(feature = "tls") {
        return Err(Error::new(ErrorKind::Unsupported, "TLS needs the feature \"tls\" of lockwell"));
    }
    Ok(mode)
}
