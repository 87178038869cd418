//! Server addresses.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::written::{bad, bare, decode, no_control, no_fragment, no_space_around};
use super::{Host, Passwords, Secret};
use crate::{Error, Result};

/// The options that every address understands.
pub(super) const COMMON_OPTIONS: [&str; 9] =
    ["class", "hand_off", "label", "lazy", "password_file", "require", "server_order", "ttl", "wait"];

/// The address of a lock server: `scheme://user:password@host:port,host:port/path?option=value`.
///
/// Unlike general URLs it may name several hosts, and has no fragment. User, password, path and options are
/// percent-decoded, and have no control characters. ASCII white space around the address is ignored; quotes
/// or a byte order mark are an error, since the address with them would be that of another server. `Display`
/// and `Debug` hide the password.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerUrl {
    scheme: String,
    user: Option<String>,
    password: Option<Secret>,
    /// Where the password comes from, if not from the text of the address.
    passwords: Option<Passwords>,
    authority: String,
    path: String,
    options: BTreeMap<String, String>,
}

impl ServerUrl {
    /// The part before `://`, in lower case.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// The user.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The password, as it was when the address was resolved: see [`passwords`](Self::passwords). `None` also
    /// if a function gives it that has not been called yet.
    pub fn password(&self) -> Option<&Secret> {
        self.password.as_ref()
    }

    /// Where each new connection gets its password: from the text of the address, from a file, or from a
    /// function of the application ([`LockConfig::password_from`](crate::LockConfig::password_from)).
    pub fn passwords(&self) -> Option<Passwords> {
        self.passwords.clone().or_else(|| self.password.clone().map(Passwords::fixed))
    }

    /// This address with the [present](Passwords::current) password as its
    /// [`password`](Self::password), for backends that log in once.
    ///
    /// # Errors
    /// Those of [`Passwords::current`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn with_present_password(self) -> Result<Self> {
        let password = match &self.passwords {
            Some(passwords) => Some(passwords.current().await?),
            None => self.password,
        };
        Ok(Self { password, ..self })
    }

    /// The path, with its leading slash; empty if there is none.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Hosts and path as one text, for schemes whose "address" is a file or a name.
    pub fn location(&self) -> String {
        format!("{}{}", self.authority, self.path)
    }

    /// The hosts, at least one.
    pub fn hosts(&self) -> Result<Vec<Host>> {
        if self.authority.is_empty() {
            return Err(bad(format!("the address {self} names no host: write {}://HOST:PORT", self.scheme)));
        }
        let host = |text| {
            Host::parse(text).ok_or_else(|| {
                let text = shown(text);
                bad(format!("{text:?} in the address {self} is not HOST or HOST:PORT, or USER:PASSWORD@HOST"))
            })
        };
        self.authority.split(',').map(host).collect()
    }

    /// The servers as errors name them: `HOST:PORT`, several with commas between, with `port` for hosts
    /// without one; the path of a socket, where the address names one. No user, no password, no path.
    ///
    /// ```
    /// # use lockwell_core as lockwell;
    /// let url: lockwell::backend::ServerUrl = "postgres://ann:secret@db,[::1]:5433/app".parse()?;
    /// assert_eq!(url.servers(5432), "db:5432,[::1]:5433");
    /// # Ok::<_, lockwell::Error>(())
    /// ```
    pub fn servers(&self, port: u16) -> String {
        match (self.option("socket"), self.hosts()) {
            (Some(socket), _) => socket.to_owned(),
            (None, Ok(hosts)) => hosts.iter().map(|host| host.authority(port)).collect::<Vec<_>>().join(","),
            (None, Err(_)) => format!("{}{}", shown(&self.authority), self.path),
        }
    }

    /// Refuses options that are not in this list. The error lists the allowed options.
    pub fn allow_options(&self, allowed: &[&str]) -> Result<()> {
        let Some(unknown) = self.options.keys().find(|name| !allowed.contains(&name.as_str())) else {
            return Ok(());
        };
        let mut known: Vec<_> = allowed.to_vec();
        known.extend(COMMON_OPTIONS);
        known.sort_unstable();
        Err(bad(format!("{}:// has no option {unknown:?}; it has {}", self.scheme, known.join(", "))))
    }

    /// The option's text.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.get(name).map(String::as_str)
    }

    /// The option's value.
    pub fn parsed<T: FromStr>(&self, name: &str, expected: &str) -> Result<Option<T>> {
        let Some(text) = self.option(name) else { return Ok(None) };
        text.parse()
            .map(Some)
            .map_err(|_| bad(format!("the option {name}={text} of the address is not {expected}")))
    }

    /// The option's value as a duration, as in `10s` or `250ms`.
    pub fn duration(&self, name: &str) -> Result<Option<Duration>> {
        let Some(text) = self.option(name) else { return Ok(None) };
        humantime::parse_duration(text).map(Some).map_err(|_| {
            if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
                return bad(format!(
                    "the option {name}={text} of the address has no unit: write {name}={text}s for seconds"
                ));
            }
            bad(format!("the option {name}={text} of the address is not a duration such as 10s or 250ms"))
        })
    }

    /// The option `timeout`: how long one request may take, reconnecting and repeating included.
    pub fn timeout(&self) -> Result<Duration> {
        let timeout = self.duration("timeout")?.unwrap_or(Duration::from_secs(5));
        if timeout < Duration::from_millis(50) || timeout > Duration::from_secs(600) {
            return Err(bad("timeout must be between 50ms and 10m"));
        }
        Ok(timeout)
    }

    /// This address with the option, which replaces an earlier value.
    #[must_use]
    pub fn with_option(mut self, name: &str, value: &str) -> Self {
        self.options.insert(name.to_owned(), value.to_owned());
        self
    }

    /// This address with another text for hosts and path, as [`location`](Self::location) returns it.
    #[must_use]
    pub fn with_location(mut self, location: &str) -> Self {
        let (authority, path) = location.find('/').map_or((location, ""), |at| location.split_at(at));
        (self.authority, self.path) = (authority.to_owned(), path.to_owned());
        self
    }

    /// This address with a password that comes from there; `present` is what it is now, if that is known.
    pub(super) fn with_passwords(self, passwords: Passwords, present: Option<Secret>) -> Self {
        Self { password: present, passwords: Some(passwords), ..self }
    }

    /// Removes an option and returns its value.
    pub(crate) fn take_option(&mut self, name: &str) -> Option<String> {
        self.options.remove(name)
    }
}

/// Hosts as errors and logs show them. Without the `@` and the host behind them, a user and a password look
/// like a host and its port.
fn shown(authority: &str) -> Cow<'_, str> {
    match authority.split_once(':') {
        Some((user, rest))
            if !rest.is_empty() && !authority.split(',').all(|host| Host::parse(host).is_some()) =>
        {
            format!("{user}:***").into()
        }
        _ => authority.into(),
    }
}

/// The options of a query.
fn options(query: &str) -> Result<BTreeMap<String, String>> {
    for part in query.split(['&', '=']) {
        no_space_around(part, "query")?;
    }
    let mut options = BTreeMap::new();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        no_control(&name, "name of an option")?;
        no_control(&value, &format!("option {name:?}"))?;
        if options.insert(name.to_string(), value.into_owned()).is_some() {
            return Err(bad(format!("the address has the option {name:?} twice")));
        }
    }
    Ok(options)
}

impl FromStr for ServerUrl {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        // The text may contain a password, so no error quotes it.
        let (scheme, rest) = bare(text)?
            .split_once("://")
            .ok_or_else(|| bad("an address starts with a scheme, as in postgres://localhost/app"))?;
        let valid = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        if scheme.is_empty() || !scheme.chars().all(valid) {
            return Err(bad("the scheme of an address consists of letters and digits, as in postgres://"));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        // Errors and logs show the text after the hosts. It must not be a part of a password.
        let may_be_password = path.contains('@') && authority.contains([':', '@']);
        if may_be_password
            || query.split('&').any(|option| option.split('=').next().unwrap_or("").contains('@'))
        {
            let text = "the address has an @ behind its hosts: in a user or password write / as %2F, ? as %3F and @ as %40; in a \
                        path write @ as %40";
            return Err(bad(text));
        }
        let (userinfo, authority) = match authority.rsplit_once('@') {
            Some((userinfo, hosts)) => (Some(userinfo), hosts),
            None => (None, authority),
        };
        let (user, password) = match userinfo.map(|text| text.split_once(':').unwrap_or((text, ""))) {
            Some((user, password)) => (
                Some(decode(user, "user")?).filter(|user| !user.is_empty()),
                Some(decode(password, "password")?).filter(|text| !text.is_empty()).map(Secret::new),
            ),
            None => (None, None),
        };
        for part in [authority, path, query] {
            no_fragment(part)?;
        }
        Ok(Self {
            scheme: scheme.to_ascii_lowercase(),
            user,
            password,
            passwords: None,
            authority: decode(authority, "host")?,
            path: decode(path, "path")?,
            options: options(query)?,
        })
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme)?;
        match (&self.user, self.password.is_some() || self.passwords.is_some()) {
            (None, false) => (),
            (user, false) => write!(f, "{}@", user.as_deref().unwrap_or_default())?,
            (user, true) => write!(f, "{}:***@", user.as_deref().unwrap_or_default())?,
        }
        write!(f, "{}{}", shown(&self.authority), self.path)
    }
}

impl fmt::Debug for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> ServerUrl {
        text.parse().unwrap()
    }

    #[test]
    fn the_parts_of_an_address() {
        let url = parse("Postgres://ann:s%40cret@db:5433,[::1]:5434,c/app?table=x&ttl=10s");
        assert_eq!(url.scheme(), "postgres");
        assert_eq!(url.user(), Some("ann"));
        assert_eq!(url.password().unwrap().expose(), "s@cret");
        assert_eq!(url.path(), "/app");
        let hosts = url.hosts().unwrap();
        let parts: Vec<_> = hosts.iter().map(|host| (host.name(), host.port())).collect();
        assert_eq!(parts, [("db", Some(5433)), ("::1", Some(5434)), ("c", None)]);
        assert_eq!(url.servers(1), "db:5433,[::1]:5434,c:1");
        assert_eq!(parse("redis+unix:///run/redis.sock?db=3").servers(6379), "/run/redis.sock");
        assert_eq!(parse("postgres://ann:s@/app?socket=/run/pg").servers(5432), "/run/pg");
        assert_eq!(url.duration("ttl").unwrap(), Some(Duration::from_secs(10)));
        assert_eq!(parse("sqlite://dir/locks.db").location(), "dir/locks.db");
        assert_eq!(parse("sqlite:///var/locks.db").location(), "/var/locks.db");
    }

    #[test]
    fn the_password_is_never_printed() {
        let url = parse("mysql://ann:hunter2@db/app");
        assert_eq!(url.to_string(), "mysql://ann:***@db/app");
        assert!(!format!("{url:?} {:?}", url.password()).contains("hunter2"));
        for text in [
            "hunter2@db",
            "my sql://a:hunter2@db",
            "mysql://a:hunter2@db:x/",
            "mysql://a:slash/hunter2@db/app",
            "mysql://a:mark?hunter2@db/app",
            "mysql://a:both@/hunter2@db/app",
            "mysql://ann:hunter2/app",
            "redis://:hunter2",
            "redis://a:1,ann:hunter2",
        ] {
            let error = match text.parse::<ServerUrl>() {
                Ok(url) => url.hosts().unwrap_err(),
                Err(error) => error,
            };
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        let forgotten = parse("redis://ann:hunter2");
        assert!(!format!("{forgotten:?} {}", forgotten.servers(6379)).contains("hunter2"));
        assert_eq!(parse("sqlite://C:/locks.db").to_string(), "sqlite://C:/locks.db");
    }

    #[test]
    fn complaints_help() {
        let url = parse("postgres://db/app?tabel=x");
        let error = url.allow_options(&["table"]).unwrap_err().to_string();
        assert!(error.contains("no option \"tabel\"") && error.contains("table, ttl, wait"), "{error}");
        assert!(parse("redis://").hosts().unwrap_err().to_string().contains("names no host"));
        for hosts in ["a:0", "a:70000", "a:b", "a:", ":1", "::1", "[::1", "[::1]x", "a,,b"] {
            assert!(parse(&format!("redis://{hosts}")).hosts().is_err(), "{hosts}");
        }
        assert!("redis://a?x=1&x=2".parse::<ServerUrl>().is_err());
        let error = parse("redis://a?ttl=ten").duration("ttl").unwrap_err().to_string();
        assert!(error.contains("10s"), "{error}");
        let error = parse("redis://a?ttl=5").duration("ttl").unwrap_err().to_string();
        assert!(error.contains("ttl=5s"), "{error}");
    }
}
