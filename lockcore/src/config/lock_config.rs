//! The configuration of locks.

use std::env::VarError;
use std::future::Future;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::password_file::{self, PasswordFile};
use super::url::COMMON_OPTIONS;
use super::written::trimmed;
use super::{HandOff, Passwords};
use crate::{Error, ErrorKind, Requirement, Result, ServerUrl};

/// Where the lock server is, and the defaults of its clients.
///
/// ```
/// # use lockwell_core as lockwell;
/// use std::time::Duration;
/// let config = lockwell::LockConfig::from_toml(r#"
///     url = "memory://"
///     ttl = "10s"
///     wait = "1m 30s"
///     require = ["fencing", "fifo"]
/// "#)?;
/// assert_eq!(config.wait, Some(Duration::from_secs(90)));
/// # Ok::<_, lockwell::Error>(())
/// ```
///
/// The URL can contain the same options: `memory://?ttl=10s&require=fencing,fifo`. An option in both places
/// is an error.
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
    /// The default label, at most 255 bytes without control characters; `None` means host and process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The default class: see [`LockRequest::class`](crate::LockRequest::class).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Whether each request has a place of its own in the queue of the server: see
    /// [`Locks::server_order`](crate::Locks::server_order). Requiring `fifo` implies it.
    #[serde(default)]
    pub server_order: bool,
    /// Whether the client connects with its first request, so that the server may be away when the program
    /// starts: `lockwell::connect_lazy`.
    #[serde(default)]
    pub lazy: bool,
    /// How often tasks pass a lock on, as in `"1000/20ms"`: see
    /// [`Locks::hand_off`](crate::Locks::hand_off).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hand_off: Option<HandOff>,
    /// What the application requires of the backend. Connecting to a backend that does not promise it fails.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub require: Vec<Requirement>,
    /// A file whose only line is the password, such as a mounted secret. It is read on connecting, and for
    /// each further connection, so the password may change meanwhile. A pipe is read once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_file: Option<String>,
    #[serde(skip)]
    passwords: Option<Passwords>,
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
            class: None,
            server_order: false,
            lazy: false,
            hand_off: None,
            require: Vec::new(),
            password_file: None,
            passwords: None,
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

    /// Sets the default label: see [`LockRequest::label`](crate::LockRequest::label).
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Sets the default class: see [`LockRequest::class`](crate::LockRequest::class).
    #[must_use]
    pub fn class(mut self, class: impl Into<String>) -> Self {
        self.class = Some(class.into());
        self
    }

    /// Lets the server serve all requests in the order of their arrival.
    #[must_use]
    pub fn server_order(mut self) -> Self {
        self.server_order = true;
        self
    }

    /// Lets the client connect with its first request.
    #[must_use]
    pub fn lazy(mut self) -> Self {
        self.lazy = true;
        self
    }

    /// Lets tasks pass locks on, [`HandOff::MOST`] times at most.
    #[must_use]
    pub fn hand_off(mut self, max: u32, span: Duration) -> Self {
        self.hand_off = Some(HandOff::new(max, span));
        self
    }

    /// Adds a requirement.
    #[must_use]
    pub fn require(mut self, requirement: Requirement) -> Self {
        self.require.push(requirement);
        self
    }

    /// Reads the password from this file, for each connection: see [`password_file`](Self::password_file).
    #[must_use]
    pub fn password_file(mut self, path: impl Into<String>) -> Self {
        self.password_file = Some(path.into());
        self
    }

    /// Calls this function for the password of each new connection, for passwords that end by themselves or
    /// are changed, such as those of a vault.
    ///
    /// ```
    /// # use lockwell_core as lockwell;
    /// # async fn ask_the_vault() -> Result<String, std::io::Error> { Ok("secret".to_owned()) }
    /// let config = lockwell::LockConfig::new("postgres://app@db/app").password_from(ask_the_vault);
    /// ```
    ///
    /// It runs on a thread of its own, with a runtime of lockwell's, so that it is called whatever the
    /// application's runtime does, and may block. A connection waits for it for 1.5 s. If it takes longer,
    /// fails or panics, that connection is not made, with an error of kind
    /// [`Unreachable`](ErrorKind::Unreachable), and the next try calls it again, or waits for the call that
    /// is under way. Connections that are there go on. At most four calls are under way at a time. The text
    /// of its error is logged, and must not contain the password.
    #[must_use]
    pub fn password_from<F, E>(mut self, ask: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<String, E>> + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.passwords = Some(Passwords::function(ask));
        self
    }

    /// Parses the address and moves the common options of its query into the other fields. Reads the password
    /// from its file, if there is one. A function for the password is not called yet.
    pub fn resolve(mut self) -> Result<(ServerUrl, Self)> {
        let mut url: ServerUrl = self.url.parse()?;
        let (ttl, wait) = (url.duration("ttl")?, url.duration("wait")?);
        let label = url.option("label").map(str::to_owned);
        let class = url.option("class").map(str::to_owned);
        let server_order = url.parsed("server_order", "true or false")?;
        let lazy = url.parsed("lazy", "true or false")?;
        let hand_off = url.option("hand_off").map(str::parse).transpose()?;
        let require = url.option("require").map(demands).transpose()?;
        merge(&mut self.password_file, url.take_option(password_file::OPTION), password_file::OPTION)?;
        let ways = [url.password().is_some(), self.password_file.is_some(), self.passwords.is_some()];
        if ways.into_iter().filter(|is_given| *is_given).count() > 1 {
            let text = "the password is given twice: in the address, by password_file, or by a function";
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        if let Some(path) = &self.password_file {
            let (passwords, present) = Passwords::read(PasswordFile::new(password_file::OPTION, path))?;
            url = url.with_passwords(passwords, Some(present));
        }
        if let Some(passwords) = &self.passwords {
            url = url.with_passwords(passwords.clone(), None);
        }
        for name in COMMON_OPTIONS {
            url.take_option(name);
        }
        merge(&mut self.ttl, ttl, "ttl")?;
        merge(&mut self.wait, wait, "wait")?;
        merge(&mut self.label, label, "label")?;
        merge(&mut self.class, class, "class")?;
        merge(&mut self.hand_off, hand_off, "hand_off")?;
        merge(&mut self.server_order.then_some(true), server_order, "server_order")?;
        self.server_order |= server_order.unwrap_or_default();
        merge(&mut self.lazy.then_some(true), lazy, "lazy")?;
        self.lazy |= lazy.unwrap_or_default();
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
            .field("class", &self.class)
            .field("server_order", &self.server_order)
            .field("lazy", &self.lazy)
            .field("hand_off", &self.hand_off)
            .field("require", &self.require)
            .field("password_file", &self.password_file)
            .field("passwords", &self.passwords)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_may_hold_the_common_options() {
        let config = LockConfig::new(
            "memory://?ttl=3s&wait=250ms&label=me&class=orders&require=fifo,fencing&server_order=true&lazy=true&hand_off=1000/20ms",
        );
        let (url, config) = config.resolve().unwrap();
        url.allow_options(&[]).unwrap();
        assert_eq!(config.ttl, Some(Duration::from_secs(3)));
        assert_eq!(config.wait, Some(Duration::from_millis(250)));
        assert_eq!((config.label.as_deref(), config.class.as_deref()), (Some("me"), Some("orders")));
        assert!(config.server_order && config.lazy);
        assert_eq!(config.hand_off.unwrap().to_string(), "1000/20ms");
        assert_eq!(config.require, [Requirement::Fifo, Requirement::Fencing]);
    }

    #[test]
    fn twice_is_once_too_often() {
        let config = LockConfig::new("memory://?ttl=3s").ttl(Duration::from_secs(4));
        assert!(config.resolve().unwrap_err().to_string().contains("ttl is set twice"));
        let config = LockConfig::new("memory://?hand_off=3/1s").hand_off(3, Duration::from_secs(1));
        assert!(config.resolve().unwrap_err().to_string().contains("hand_off is set twice"));
    }

    #[test]
    fn no_way_leads_past_the_most_hand_offs() {
        let span = Duration::from_secs(1);
        let config = LockConfig::new("memory://").hand_off(u32::MAX, span);
        assert_eq!(config.hand_off, Some(HandOff::new(HandOff::MOST, span)));
        assert_eq!(HandOff::new(u32::MAX, span).max(), HandOff::MOST);
        assert!("4294967295/1s".parse::<HandOff>().is_err());
        assert!(LockConfig::from_toml("url = 'memory://'\nhand_off = '4294967295/1s'").is_err());
    }

    #[test]
    fn bad_hand_offs_are_refused() {
        for text in ["", "3", "3/", "/1s", "x/1s", "3/x", "-1/1s", "10001/1s"] {
            let error = LockConfig::new(format!("memory://?hand_off={text}")).resolve().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text}");
            assert!(error.to_string().contains("1000/20ms"), "{error}");
        }
        let config =
            LockConfig::from_toml("url = 'memory://'\nhand_off = '5/2s'\nserver_order = true").unwrap();
        assert_eq!(config.hand_off, Some(HandOff::new(5, Duration::from_secs(2))));
        let error = LockConfig::from_toml("url = 'memory://'\nhand_over = '5/2s'").unwrap_err();
        assert!(error.to_string().contains("unknown field `hand_over`, expected one of"), "{error}");
        assert!(error.to_string().contains("`hand_off`"), "{error}");
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
