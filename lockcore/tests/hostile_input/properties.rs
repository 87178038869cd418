//! What holds for every text.

use lockwell_core::backend::{escape, unescape};
use lockwell_core::{LockConfig, LockName, ServerUrl};

/// An address or a configuration is understood or refused. What is understood can be shown and understood
/// again.
pub(crate) fn address(text: &str) {
    if let Ok(url) = text.parse::<ServerUrl>() {
        drop((url.hosts(), url.timeout(), url.allow_options(&[]), url.location(), format!("{url:?}")));
        let again = url.clone().with_option("ttl", "10s");
        assert_eq!((again.scheme(), again.user(), again.path()), (url.scheme(), url.user(), url.path()));
        assert_eq!(again.option("ttl"), Some("10s"));
    }
    drop(LockConfig::new(text).resolve());
    if let Ok(config) = LockConfig::from_toml(text) {
        drop(config.resolve());
    }
}

/// A password that should have been escaped, somewhere in the middle of it, is not shown. Only the value of
/// an option may be.
pub(crate) fn password(before: &str, after: &str, host: &str) {
    const SECRET: &str = "hunter2";
    let text = format!("mysql://ann:{before}{SECRET}{after}@{host}/app?ttl=10s");
    let shown = match text.parse::<ServerUrl>() {
        Ok(url) => format!("{url} {url:?} {:?} {:?}", url.hosts().err(), url.allow_options(&[]).err()),
        Err(error) => format!("{error} {error:?}"),
    };
    let resolved = LockConfig::new(&text).resolve();
    let shown = format!("{shown} {:?}", resolved.as_ref().map(|(url, _)| url));
    assert!(!shown.contains(SECRET), "{text}: {shown}");
}

/// A name is a lock name by its rules alone, and every one can be written into a key and read back.
pub(crate) fn name(text: &str) {
    let is_good = (1..=LockName::MAX_BYTES).contains(&text.len()) && !text.chars().any(char::is_control);
    assert_eq!(LockName::new(text).is_ok(), is_good, "{text:?}");
    let key = escape(text, |_, c| c.is_ascii_alphanumeric());
    assert!(key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'%'));
    assert_eq!(unescape(&key).as_deref(), Some(text));
    if let Some(name) = unescape(text) {
        assert!(name.len() <= text.len());
    }
}
