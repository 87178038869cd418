//! TLS.

use lockcore::{Error, ErrorKind, Result};
use zookeeper_client::TlsOptions;

/// Trust in the certificates of this PEM file, and in no others.
pub(crate) fn options(ca: &str) -> Result<TlsOptions> {
    let bad = |error: String| {
        Error::new(ErrorKind::InvalidInput, format!("the certificates in {ca} cannot be used"))
            .with_source(error)
    };
    let pem = std::fs::read_to_string(ca).map_err(|error| bad(error.to_string()))?;
    TlsOptions::new().with_pem_ca(&pem).map_err(|error| bad(error.to_string()))
}
