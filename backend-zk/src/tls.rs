//! TLS.

use lockcore::Result;
use lockcore::tls::{TlsFiles, choose_provider, read_certificates, read_key, unusable};
use zookeeper_client::TlsOptions;

/// Trust in the certificates of these files, and in no others. The files are read anew for each session, so that
/// renewed ones are used.
pub(crate) fn options(files: &TlsFiles) -> Result<TlsOptions> {
    choose_provider();
    let mut options = TlsOptions::new();
    if let Some(ca) = &files.ca {
        options = options.with_pem_ca(&read_certificates(ca)?).map_err(|error| unusable(ca, &error))?;
    }
    let Some((cert, key)) = &files.identity else { return Ok(options) };
    options
        .with_pem_identity(&read_certificates(cert)?, &read_key(key)?)
        .map_err(|error| unusable(&format!("{cert} and {key}"), &error))
}
