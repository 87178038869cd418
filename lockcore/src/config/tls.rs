//! TLS, for authors of backends: the files that an address names, and the crypto provider.

use std::fs;
#[cfg(feature = "tls")]
use std::{net::SocketAddr, net::TcpStream, sync::Arc, time::Duration};

use crate::{Error, ErrorKind, Result, ServerUrl};

/// Whether rustls has refused the certificate of a server with this text.
pub fn is_untrusted(refusal: &str) -> bool {
    refusal.contains("invalid peer certificate")
}

/// The error about such a server. `ca`: the option that names the authorities to trust.
pub fn untrusted(refusal: &str, ca: &str) -> Error {
    let has = |word: &str| refusal.contains(word);
    let why = if has("CaUsedAsEndEntity") {
        "the server shows the certificate of an authority, as one that signs itself often is: let it show one with \
         basicConstraints=CA:FALSE"
    } else if has("not valid for name") {
        "the certificate of the server is for other names than that of this host: connect by one of them"
    } else if has("expired") || has("not valid yet") {
        "the certificate of the server is not valid at this time: renew it, or set the clocks"
    } else {
        "the certificate of the server is not trusted"
    };
    let text = format!("{why}; the option {ca} names the authority that signed it");
    Error::new(ErrorKind::Misconfigured, text).with_source(refusal.to_owned())
}

/// PEM files that an address names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    ca: Option<String>,
    identity: Option<(String, String)>,
}

impl TlsFiles {
    /// The usual names of the options, for servers whose tools have no other names.
    pub const OPTIONS: [&'static str; 3] = ["ca", "cert", "key"];

    /// Reads the names of the files, not their contents. `names` are the names of the options.
    pub fn of(url: &ServerUrl, names: [&str; 3]) -> Result<Self> {
        let [ca, cert, key] = names.map(|name| url.option(name).map(str::to_owned));
        let identity = match (cert, key) {
            (None, None) => None,
            (Some(cert), Some(key)) => Some((cert, key)),
            _ => {
                let text = format!("{} and {} go together", names[1], names[2]);
                return Err(Error::new(ErrorKind::InvalidInput, text));
            }
        };
        let files = Self { ca, identity };
        if !files.is_empty() && cfg!(not(feature = "tls")) {
            let text = format!("the options {} need the feature \"tls\"", names.join(", "));
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        Ok(files)
    }

    /// The certificates to trust.
    pub fn ca(&self) -> Option<&str> {
        self.ca.as_deref()
    }

    /// The client certificate and its key.
    pub fn identity(&self) -> Option<(&str, &str)> {
        self.identity.as_ref().map(|(cert, key)| (cert.as_str(), key.as_str()))
    }

    /// Refuses files that are missing or have other contents.
    pub fn check(&self) -> Result<()> {
        self.ca.as_deref().map(read_certificates).transpose()?;
        if let Some((cert, key)) = &self.identity {
            read_certificates(cert)?;
            read_key(key)?;
        }
        Ok(())
    }

    /// Whether no file is named.
    pub fn is_empty(&self) -> bool {
        self.ca.is_none() && self.identity.is_none()
    }
}

/// A file with certificates.
pub fn read_certificates(file: &str) -> Result<String> {
    read_pem(file, "CERTIFICATE-----", "it has no certificate in PEM")
}

/// A file with a private key.
pub fn read_key(file: &str) -> Result<String> {
    read_pem(file, "PRIVATE KEY-----", "it has no private key in PEM")
}

fn read_pem(file: &str, mark: &str, complaint: &str) -> Result<String> {
    let text = fs::read_to_string(file).map_err(|error| unusable(file, &error))?;
    if text.contains(mark) { Ok(text) } else { Err(unusable(file, &complaint)) }
}

/// An error that names the file which cannot be used for TLS.
pub fn unusable(what: &str, why: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("{what} cannot be used for TLS")).with_source(why.to_string())
}

/// Makes sure that the process has a default crypto provider. Without one, rustls panics unless exactly one
/// provider is compiled in, and the application determines which providers are.
#[cfg(feature = "tls")]
pub fn choose_provider() {
    use rustls::crypto::{CryptoProvider, aws_lc_rs};
    if CryptoProvider::get_default().is_none() {
        // This fails if another thread sets a provider at this moment, which is fine.
        drop(aws_lc_rs::default_provider().install_default());
    }
}

/// Why the certificate of the server at this address is [not trusted](is_untrusted), for a client crate that
/// does not say it. `ca`: a file with certificates. Blocks; each step takes up to `limit`.
#[cfg(feature = "tls")]
pub fn refusal(host: &str, place: SocketAddr, ca: &str, limit: Duration) -> Option<String> {
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    choose_provider();
    let (ca, mut roots) = (read_certificates(ca).ok()?, rustls::RootCertStore::empty());
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(ca.as_bytes()).filter_map(Result::ok));
    let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let name = host.to_owned().try_into().ok()?;
    let mut session = rustls::ClientConnection::new(Arc::new(config), name).ok()?;
    let mut stream = TcpStream::connect_timeout(&place, limit).ok()?;
    stream.set_read_timeout(Some(limit)).and_then(|()| stream.set_write_timeout(Some(limit))).ok()?;
    session.complete_io(&mut stream).err().map(|error| error.to_string()).filter(|text| is_untrusted(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(options: &str) -> Result<TlsFiles> {
        TlsFiles::of(&format!("redis://a?{options}").parse().unwrap(), TlsFiles::OPTIONS)
    }

    #[test]
    fn a_certificate_comes_with_its_key() {
        assert!(of("timeout=5s").unwrap().is_empty());
        for half in ["cert=a", "key=b", "ca=c&key=b"] {
            assert_eq!(of(half).unwrap_err().kind(), ErrorKind::InvalidInput, "{half}");
        }
        let whole = of("ca=c&cert=a&key=b");
        if cfg!(feature = "tls") {
            let files = whole.unwrap();
            assert_eq!((files.ca.as_deref(), files.identity), (Some("c"), Some(("a".into(), "b".into()))));
        } else {
            assert_eq!(whole.unwrap_err().kind(), ErrorKind::Unsupported);
        }
    }

    #[test]
    fn a_file_that_is_no_good_is_named() {
        for read in [read_certificates, read_key] {
            let error = read("/no/such/file.pem").unwrap_err();
            assert!(error.to_string().contains("/no/such/file.pem"), "{error}");
            let error = read("/proc/self/status").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(format!("{error:#}").contains("PEM"), "{error:#}");
        }
    }
}
