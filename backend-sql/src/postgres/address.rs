//! From the address to the connection.

use lockwell_core::tls::TlsFiles;
use lockwell_core::{Error, ErrorKind, Result, ServerUrl};
use sqlx_core::connection::ConnectOptions;
use sqlx_postgres::{PgConnectOptions, PgSslMode};

use crate::sql::options::{Listens, database, one_server};

/// The port that a server has by default.
pub(super) const PORT: u16 = 5432;

/// The options for TLS.
pub(super) const FILES: [&str; 3] = ["sslrootcert", "sslcert", "sslkey"];

pub(super) fn options(url: &ServerUrl) -> Result<PgConnectOptions> {
    let options = PgConnectOptions::new_without_pgpass();
    let added = options.get_options().map(|_| "PGOPTIONS");
    // The address says everything, and the environment of libpq nothing.
    let options = options
        .host("localhost")
        .password("")
        .ssl_mode(PgSslMode::default())
        .ssl_root_cert_from_pem(Vec::new());
    let options = match one_server(url)? {
        Listens::At(host) => options.host(host.name()).port(host.port().unwrap_or(PORT)),
        Listens::On(path) => {
            let (folder, port) = socket(path)?;
            options.port(port).socket(folder)
        }
    };
    let mut options = options.username(url.user().unwrap_or("postgres")).application_name("lockwell");
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
    let identity = files.identity();
    if let Some((cert, key)) = identity {
        options = options.ssl_client_cert(cert).ssl_client_key(key);
    }
    let set = |name: &&str| identity.is_none() && std::env::var_os(name).is_some();
    if let Some(name) = added.or_else(|| ["PGSSLCERT", "PGSSLKEY"].into_iter().find(set)) {
        let text = format!(
            "{name} is set in the environment, and sqlx would add it to what the address says: unset it"
        );
        return Err(Error::new(ErrorKind::Misconfigured, text));
    }
    Ok(ours(options))
}

/// The same with what our statements need, whoever has made the options.
pub(super) fn ours(options: PgConnectOptions) -> PgConnectOptions {
    options
        // Poolers do not know this one by default, and there are no floats here.
        .extra_float_digits(None)
        .statement_cache_capacity(100)
        // Arguments that are written into the text of a statement, owners among them, must not get into logs.
        .disable_statement_logging()
}

/// The folder of a socket, and the port that its name ends with. A path without such a name is that of the
/// folder.
fn socket(path: &str) -> Result<(&str, u16)> {
    let Some((folder, name)) = path.rsplit_once('/').filter(|(_, name)| name.starts_with(".s.")) else {
        return Ok((path, PORT));
    };
    let port = name.strip_prefix(".s.PGSQL.").and_then(|port| port.parse().ok()).ok_or_else(|| {
        Error::new(ErrorKind::InvalidInput, format!("socket={path} does not end with .s.PGSQL.PORT"))
    })?;
    Ok((folder, port))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_a_file_or_its_folder() {
        assert_eq!(socket("/run/postgresql").unwrap(), ("/run/postgresql", 5432));
        assert_eq!(socket("/run/postgresql/.s.PGSQL.5433").unwrap(), ("/run/postgresql", 5433));
        assert!(socket("/run/postgresql/.s.MYSQL.5433").is_err());
        for bad in ["postgres://h/app?socket=/run", "postgres:///app?socket=run", "postgres:///app"] {
            let error = options(&bad.parse().unwrap()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{bad}: {error}");
        }
    }
}
