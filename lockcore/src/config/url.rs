//! Server addresses.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::written::{bad, bare, decode, no_control, no_fragment, no_space_around};
use crate::{Error, Result};

/// The options that every address understands.
pub(super) const COMMON_OPTIONS: [&str; 7] =
    ["coalesce", "hand_over", "label", "password_file", "require", "ttl", "wait"];

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps `text` from being printed.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// One host of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    name: String,
    port: Option<u16>,
}

impl Host {
    /// A name or an address; an IPv6 address without its brackets.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The port, if one was given.
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// `NAME:PORT`, as other addresses have it: with `default_port` if none was given, and an IPv6 address in
    /// brackets.
    pub fn authority(&self, default_port: u16) -> String {
        let (name, port) = (&self.name, self.port.unwrap_or(default_port));
        if name.contains(':') { format!("[{name}]:{port}") } else { format!("{name}:{port}") }
    }
}

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

    /// The password.
    pub fn password(&self) -> Option<&Secret> {
        self.password.as_ref()
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
        self.authority.split(',').map(|text| self.host(text)).collect()
    }

    fn host(&self, text: &str) -> Result<Host> {
        let complaint = || bad(format!("{text:?} in the address {self} is not HOST or HOST:PORT"));
        let (name, port) = if let Some(rest) = text.strip_prefix('[') {
            let (name, rest) = rest.split_once(']').ok_or_else(complaint)?;
            (name, rest.strip_prefix(':').or(rest.is_empty().then_some("")).ok_or_else(complaint)?)
        } else {
            text.split_once(':').unwrap_or((text, ""))
        };
        if name.is_empty()
            || name.contains(char::is_whitespace)
            || (!text.starts_with('[') && port.contains(':'))
        {
            return Err(complaint());
        }
        let port = match port {
            "" if text.ends_with(':') => return Err(complaint()),
            "" => None,
            digits => Some(digits.parse().ok().filter(|&port| port != 0).ok_or_else(complaint)?),
        };
        Ok(Host { name: name.to_owned(), port })
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
        if timeout < Duration::from_millis(50) || timeout > Duration::from_mins(10) {
            return Err(bad("timeout must be between 50ms and 10m"));
        }
        Ok(timeout)
    }

    /// The same address with this option, which replaces an earlier value.
    #[must_use]
    pub fn with_option(mut self, name: &str, value: &str) -> Self {
        self.options.insert(name.to_owned(), value.to_owned());
        self
    }

    /// The same address with this text for hosts and path, as [`location`](Self::location) returns it.
    #[must_use]
    pub fn with_location(mut self, location: &str) -> Self {
        let (authority, path) = location.find('/').map_or((location, ""), |at| location.split_at(at));
        (self.authority, self.path) = (authority.to_owned(), path.to_owned());
        self
    }

    /// The same address with this password.
    pub(super) fn with_password(mut self, password: Secret) -> Self {
        self.password = Some(password);
        self
    }

    /// Removes an option and returns its value.
    pub(crate) fn take_option(&mut self, name: &str) -> Option<String> {
        self.options.remove(name)
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
                Some(decode(password, "password")?).filter(|text| !text.is_empty()).map(Secret),
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
            authority: decode(authority, "host")?,
            path: decode(path, "path")?,
            options: options(query)?,
        })
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme)?;
        match (&self.user, &self.password) {
            (None, None) => (),
            (user, None) => write!(f, "{}@", user.as_deref().unwrap_or_default())?,
            (user, Some(_)) => write!(f, "{}:***@", user.as_deref().unwrap_or_default())?,
        }
        write!(f, "{}{}", self.authority, self.path)
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
        assert_eq!(hosts[0], Host { name: "db".into(), port: Some(5433) });
        assert_eq!(hosts[1], Host { name: "::1".into(), port: Some(5434) });
        assert_eq!(hosts[2], Host { name: "c".into(), port: None });
        let written: Vec<_> = hosts.iter().map(|host| host.authority(1)).collect();
        assert_eq!(written, ["db:5433", "[::1]:5434", "c:1"]);
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
        ] {
            let error = match text.parse::<ServerUrl>() {
                Ok(url) => url.hosts().unwrap_err(),
                Err(error) => error,
            };
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
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
