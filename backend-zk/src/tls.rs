//! TLS.

use lockcore::{Error, ErrorKind, Result};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use zookeeper_client::TlsOptions;

use crate::options::TlsFiles;

/// Trust in the certificates of these files, and in no others. The files are read anew for each session, so that
/// renewed ones are used.
pub(crate) fn options(files: &TlsFiles) -> Result<TlsOptions> {
    // Where two providers are compiled in, the crate would panic unless one of them has been chosen.
    if CryptoProvider::get_default().is_none() {
        // It fails if somebody else chooses at this moment, which is as good.
        drop(aws_lc_rs::default_provider().install_default());
    }
    let options = TlsOptions::new().with_pem_ca(&read(&files.ca)?).map_err(|error| bad(&files.ca, &error))?;
    let Some((cert, key)) = &files.identity else { return Ok(options) };
    options
        .with_pem_identity(&read(cert)?, &read(key)?)
        .map_err(|error| bad(&format!("{cert} and {key}"), &error))
}

fn read(file: &str) -> Result<String> {
    std::fs::read_to_string(file).map_err(|error| bad(file, &error))
}

fn bad(what: &str, error: &dyn std::error::Error) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("{what} cannot be used for TLS"))
        .with_source(error.to_string())
}
