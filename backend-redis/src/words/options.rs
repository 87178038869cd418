//! The options of an address.

use std::time::Duration;

use lockwell_core::tls::TlsFiles;
use lockwell_core::{Error, ErrorKind, Result, ServerUrl};

/// The options that one server and Redlock share, beside the files for TLS.
const SHARED: [&str; 5] = ["accept_loss", "db", "namespace", "strict", "timeout"];

#[derive(Clone, Debug)]
pub(crate) struct RedisOptions {
    /// The prefix of every key.
    pub(crate) namespace: String,
    /// How long one request may take, reconnecting and repeating included.
    pub(crate) timeout: Duration,
    /// Whether a server that may lose locks is refused rather than warned about.
    pub(crate) strict: bool,
    /// Whether it is known that the server may lose locks, so that nobody is warned.
    pub(crate) accept_loss: bool,
}

impl RedisOptions {
    /// Reads the shared options. `others` are the names of the backend's own.
    pub(crate) fn read(url: &ServerUrl, others: &[&str]) -> Result<Self> {
        let allowed: Vec<_> = SHARED.iter().chain(others).chain(&TlsFiles::OPTIONS).copied().collect();
        url.allow_options(&allowed)?;
        let timeout = url.timeout()?;
        let namespace = url.option("namespace").unwrap_or("lockwell:");
        if namespace.len() > 256 || namespace.chars().any(char::is_control) {
            let text = "a namespace has at most 256 bytes and no control characters";
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        let is_true = |name| Ok::<_, Error>(url.parsed(name, "true or false")?.unwrap_or(false));
        let (strict, accept_loss) = (is_true("strict")?, is_true("accept_loss")?);
        if strict && accept_loss {
            let text = "strict=true refuses what accept_loss=true accepts: give one of them";
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        Ok(Self { namespace: namespace.to_owned(), timeout, strict, accept_loss })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_and_bounds() {
        let read = |url: &str| RedisOptions::read(&url.parse()?, &["wait_replicas"]);
        let options = read("redis://a").unwrap();
        assert_eq!((options.namespace.as_str(), options.strict), ("lockwell:", false));
        assert_eq!(read("redis://a?namespace=").unwrap().namespace, "");
        assert!(read("redis://a?timeout=1ms").is_err());
        assert!(read("redis://a?namespace=a%0Ab").is_err());
        assert!(read("redis://a?accept_loss=true").unwrap().accept_loss);
        assert!(read("redis://a?accept_loss=true&strict=true").is_err());
        assert!(read("redis://a?strcit=true").unwrap_err().to_string().contains("strict, timeout"));
    }
}
