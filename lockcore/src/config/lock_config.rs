//! The configuration of locks.

use std::env::VarError;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::url::COMMON_OPTIONS;
use super::written::trimmed;
use super::{HandOver, password_file};
use crate::{Error, ErrorKind, Requirement, Result, ServerUrl};

/// Where the lock server is, and the defaults of its clients.
///
/// ```
/// use std::time::Duration;
/// let config = lockcore::LockConfig::from_toml(r#"
///     url = "memory://"
///     ttl = "10s"
///     wait = "1m 30s"
///     require = ["fencing", "fifo"]
/// "#)?;
/// assert_eq!(config.wait, Some(Duration::from_secs(90)));
/// # Ok::<_, lockcore::Error>(())
/// ```
///
/// The URL can contain the same options: `memory://?ttl=10s&require=fencing,fifo`. An option in both places
/// is an error. Only the URL has `password_file`: a file whose only line is the password, such as a mounted
/// secret. It is read once, on connecting.
///
/// Its fields are those of the file, so they are public; later versions may add some.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct LockConfig {
    /// The address: the scheme picks the backend.
    pub url: String,
    /// The default lease: see [`LockRequest::ttl`](crate::LockRequest::ttl).
    #[serde(default, with = "humantime_serde", skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Duration>,
    /// The default wait; `None` means without a limit.
    #[serde(default, with = "humantime_serde", skip_serializing_if = "Option::is_none")]
    pub wait: Option<Duration>,
    /// The default label; `None` means host and process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Whether the tasks of a client queue in memory: see [`Locks::coalesce`](crate::Locks::coalesce).
    #[serde(default)]
    pub coalesce: bool,
    /// How often tasks pass a lock on, as in `"1000/20ms"`: see
    /// [`Locks::hand_over`](crate::Locks::hand_over).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hand_over: Option<HandOver>,
    /// What the application requires of the backend. Connecting to a backend that does not promise it fails.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub require: Vec<Requirement>,
}

impl LockConfig {
    /// The name of the environment variable that holds the address.
    pub const ENV: &'static str = "LOCKWELL_URL";

    /// A configuration with this address and nothing else.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            ttl: None,
            wait: None,
            label: None,
            coalesce: false,
            hand_over: None,
            require: Vec::new(),
        }
    }

    /// The configuration in this TOML text. Durations are written as `"10s"`.
    pub fn from_toml(text: &str) -> Result<Self> {
        toml::from_str(text).map_err(|error| {
            // The message alone: the complete error quotes the line, which may contain a password.
            Error::new(ErrorKind::InvalidInput, format!("the lock configuration: {}", error.message()))
        })
    }

    /// The configuration in the environment variable `LOCKWELL_URL`.
    pub fn from_env() -> Result<Self> {
        let bad = |text: String| Err(Error::new(ErrorKind::InvalidInput, text));
        match std::env::var(Self::ENV) {
            Ok(url) if !trimmed(&url).is_empty() => Ok(Self::new(url)),
            Err(VarError::NotUnicode(_)) => bad(format!("the address in {} is not UTF-8", Self::ENV)),
            _ => bad(format!(
                "no lock server is named: set {} to an address such as sqlite://locks.db",
                Self::ENV
            )),
        }
    }

    /// Sets the default lease.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Sets the default wait.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Sets the default label.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Lets tasks queue in memory.
    #[must_use]
    pub fn coalesce(mut self) -> Self {
        self.coalesce = true;
        self
    }

    /// Lets tasks queue in memory and pass locks on, [`HandOver::MOST`] times at most.
    #[must_use]
    pub fn hand_over(mut self, max: u32, span: Duration) -> Self {
        self.hand_over = Some(HandOver::new(max, span));
        self
    }

    /// Adds a requirement.
    #[must_use]
    pub fn require(mut self, requirement: Requirement) -> Self {
        self.require.push(requirement);
        self
    }

    /// Parses the address and moves the common options of its query into the other fields. If the address
    /// names a `password_file`, reads the password from it.
    pub fn resolve(mut self) -> Result<(ServerUrl, Self)> {
        let mut url: ServerUrl = self.url.parse()?;
        let (ttl, wait) = (url.duration("ttl")?, url.duration("wait")?);
        let label = url.option("label").map(str::to_owned);
        let coalesce = url.parsed("coalesce", "true or false")?;
        let hand_over = url.option("hand_over").map(str::parse).transpose()?;
        let require = url.option("require").map(demands).transpose()?;
        if let Some(file) = url.take_option(password_file::OPTION) {
            if url.password().is_some() {
                let text = "the password is given twice: in the address and by password_file";
                return Err(Error::new(ErrorKind::InvalidInput, text));
            }
            url = url.with_password(password_file::read(&file)?);
        }
        for name in COMMON_OPTIONS {
            url.take_option(name);
        }
        merge(&mut self.ttl, ttl, "ttl")?;
        merge(&mut self.wait, wait, "wait")?;
        merge(&mut self.label, label, "label")?;
        merge(&mut self.hand_over, hand_over, "hand_over")?;
        merge(&mut self.coalesce.then_some(true), coalesce, "coalesce")?;
        self.coalesce |= coalesce.unwrap_or_default();
        self.require.extend(require.unwrap_or_default());
        Ok((url, self))
    }
}

fn demands(text: &str) -> Result<Vec<Requirement>> {
    text.split(',').map(str::parse).collect()
}

fn merge<T>(field: &mut Option<T>, from_url: Option<T>, name: &str) -> Result<()> {
    match (&field, from_url) {
        (Some(_), Some(_)) => Err(Error::new(
            ErrorKind::InvalidInput,
            format!("{name} is set twice: in the address and beside it"),
        )),
        (None, from_url) => {
            *field = from_url;
            Ok(())
        }
        (Some(_), None) => Ok(()),
    }
}

impl std::fmt::Debug for LockConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let url = self.url.parse::<ServerUrl>().map_or_else(|_| "***".to_owned(), |url| url.to_string());
        f.debug_struct("LockConfig")
            .field("url", &url)
            .field("ttl", &self.ttl)
            .field("wait", &self.wait)
            .field("label", &self.label)
            .field("coalesce", &self.coalesce)
            .field("hand_over", &self.hand_over)
            .field("require", &self.require)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_may_hold_the_common_options() {
        let config = LockConfig::new(
            "memory://?ttl=3s&wait=250ms&label=me&require=fifo,fencing&coalesce=true&hand_over=1000/20ms",
        );
        let (url, config) = config.resolve().unwrap();
        url.allow_options(&[]).unwrap();
        assert_eq!(config.ttl, Some(Duration::from_secs(3)));
        assert_eq!(config.wait, Some(Duration::from_millis(250)));
        assert_eq!(config.label.as_deref(), Some("me"));
        assert!(config.coalesce);
        assert_eq!(config.hand_over.unwrap().to_string(), "1000/20ms");
        assert_eq!(config.require, [Requirement::Fifo, Requirement::Fencing]);
    }

    #[test]
    fn twice_is_once_too_often() {
        let config = LockConfig::new("memory://?ttl=3s").ttl(Duration::from_secs(4));
        assert!(config.resolve().unwrap_err().to_string().contains("ttl is set twice"));
        let config = LockConfig::new("memory://?hand_over=3/1s").hand_over(3, Duration::from_secs(1));
        assert!(config.resolve().unwrap_err().to_string().contains("hand_over is set twice"));
    }

    #[test]
    fn no_way_leads_past_the_most_hand_overs() {
        let span = Duration::from_secs(1);
        let config = LockConfig::new("memory://").hand_over(u32::MAX, span);
        assert_eq!(config.hand_over, Some(HandOver::new(HandOver::MOST, span)));
        assert_eq!(HandOver::new(u32::MAX, span).max(), HandOver::MOST);
        assert!("4294967295/1s".parse::<HandOver>().is_err());
        assert!(LockConfig::from_toml("url = 'memory://'\nhand_over = '4294967295/1s'").is_err());
    }

    #[test]
    fn bad_hand_overs_are_refused() {
        for text in ["", "3", "3/", "/1s", "x/1s", "3/x", "-1/1s", "10001/1s"] {
            let error = LockConfig::new(format!("memory://?hand_over={text}")).resolve().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text}");
            assert!(error.to_string().contains("1000/20ms"), "{error}");
        }
        let config = LockConfig::from_toml("url = 'memory://'\nhand_over = '5/2s'\ncoalesce = true").unwrap();
        assert_eq!(config.hand_over, Some(HandOver::new(5, Duration::from_secs(2))));
    }

    #[test]
    fn bad_durations_are_refused() {
        for text in ["-5s", "ten", "99999999999999999999s", ""] {
            let error = LockConfig::new(format!("memory://?wait={text}")).resolve().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text}");
        }
        let error = LockConfig::from_toml("url = 'memory://'\nttl = '-1s'").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }

    #[test]
    fn nothing_prints_the_password() {
        let config = LockConfig::new("mysql://ann:hunter2@db/app");
        assert!(!format!("{config:?}").contains("hunter2"));
        let error = LockConfig::from_toml("url = \"mysql://ann:hunter2@db\"\ntll = \"1s\"").unwrap_err();
        let text = format!("{error:#} {error:?}");
        assert!(text.contains("tll") && !text.contains("hunter2"), "{text}");
    }

    #[test]
    fn toml_goes_both_ways() {
        let config = LockConfig::new("memory://").ttl(Duration::from_secs(5)).require(Requirement::HerdFree);
        let text = toml_of(&config);
        assert_eq!(LockConfig::from_toml(&text).unwrap(), config);
    }

    fn toml_of(config: &LockConfig) -> String {
        format!("url = {:?}\nttl = \"5s\"\nrequire = [\"{}\"]", config.url, config.require[0])
    }
}
