//! TLS.

use lockwell_core::Result;
use lockwell_core::tls::{TlsFiles, choose_provider, read_certificates, read_key, unusable};
use redis::{Client, ClientTlsConfig, TlsCertificates};

/// The contents of the files. They are read anew for each connection, so that renewed ones are used.
///
/// Without a `ca`, the certificate authorities of Mozilla are trusted.
pub(crate) fn certificates(files: &TlsFiles) -> Result<TlsCertificates> {
    choose_provider();
    let root_cert = files.ca().map(read_certificates).transpose()?.map(String::into_bytes);
    let client_tls = match files.identity() {
        Some((cert, key)) => Some(ClientTlsConfig {
            client_cert: read_certificates(cert)?.into_bytes(),
            client_key: read_key(key)?.into_bytes(),
        }),
        None => None,
    };
    Ok(TlsCertificates { client_tls, root_cert })
}

/// Refuses files that the client crate would refuse when it connects.
pub(crate) fn check(files: &TlsFiles) -> Result<()> {
    Client::build_with_tls("rediss://localhost", certificates(files)?)
        .map(drop)
        .map_err(|error| unusable("one of the files ca, cert and key", &error))
}
