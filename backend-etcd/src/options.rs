//! The options of an address.

use std::fmt;
use std::time::Duration;

use lockwell_core::tls::TlsFiles;
use lockwell_core::{Error, ErrorKind, Passwords, Result, ServerUrl};

const DEFAULT_PORT: u16 = 2379;

/// The beginning of all keys where the address names no other.
const PREFIX: &str = "lockwell";

/// The contents of an address.
#[derive(Clone)]
pub(crate) struct EtcdOptions {
    /// As errors name them.
    pub(crate) servers: String,
    /// Where each server is: `http://HOST:PORT`.
    pub(crate) endpoints: Vec<String>,
    /// The beginning of all keys, without the slash after it.
    pub(crate) prefix: String,
    pub(crate) login: Option<(String, Passwords)>,
    /// How long a request may take, with all its repetitions.
    pub(crate) timeout: Duration,
    /// Uses TLS.
    pub(crate) tls: Option<TlsFiles>,
}

impl EtcdOptions {
    pub(crate) fn read(url: &ServerUrl) -> Result<Self> {
        url.allow_options(&["ca", "cert", "key", "timeout"])?;
        let is_safe = url.scheme() == "etcds";
        let files = TlsFiles::of(url, TlsFiles::OPTIONS)?;
        if !is_safe && !files.is_empty() {
            return Err(bad("the options ca, cert and key need the scheme etcds://"));
        }
        if is_safe && cfg!(not(feature = "tls")) {
            let text = "etcds:// needs the feature \"tls\"";
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        if is_safe && files.ca().is_none() {
            return Err(bad("etcds:// needs ca=FILE: the certificates to trust, in PEM"));
        }
        files.check()?;
        let login = match (url.user(), url.passwords()) {
            (None, None) => None,
            (Some(user), Some(password)) => Some((user.to_owned(), password)),
            _ => return Err(bad("a user needs a password: USER:PASSWORD@HOST")),
        };
        let scheme = if is_safe { "https" } else { "http" };
        let path = url.path().trim_matches('/');
        Ok(Self {
            servers: url.servers(DEFAULT_PORT),
            endpoints: url
                .hosts()?
                .iter()
                .map(|host| format!("{scheme}://{}", host.authority(DEFAULT_PORT)))
                .collect(),
            prefix: if path.is_empty() { PREFIX } else { path }.to_owned(),
            login,
            timeout: url.timeout()?,
            tls: is_safe.then_some(files),
        })
    }
}

impl fmt::Debug for EtcdOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdOptions")
            .field("servers", &self.servers)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

fn bad(message: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<EtcdOptions> {
        EtcdOptions::read(&url.parse()?)
    }

    #[test]
    fn an_address_names_servers_and_keys() {
        let options = read("etcd://ann:secret@a,[::1]:1/app/locks/").unwrap();
        assert_eq!(options.endpoints, ["http://a:2379", "http://[::1]:1"]);
        assert_eq!((options.servers.as_str(), options.prefix.as_str()), ("a:2379,[::1]:1", "app/locks"));
        assert!(!format!("{options:?}").contains("secret"));
        assert_eq!(read("etcd://a").unwrap().prefix, PREFIX);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for url in ["etcd://ann@a", "etcd://a?ca=x", "etcds://a", "etcd://a?prefix=x"] {
            let kind = read(url).unwrap_err().kind();
            assert!(matches!(kind, ErrorKind::InvalidInput | ErrorKind::Unsupported), "{url}");
        }
    }
}
