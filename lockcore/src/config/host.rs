//! Hosts of addresses.

/// One host of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    name: String,
    port: Option<u16>,
}

impl Host {
    /// Reads `HOST` or `HOST:PORT`, with an IPv6 address in brackets.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (name, port) = if let Some(rest) = text.strip_prefix('[') {
            let (name, rest) = rest.split_once(']')?;
            (name, rest.strip_prefix(':').or(rest.is_empty().then_some(""))?)
        } else {
            text.split_once(':').unwrap_or((text, ""))
        };
        if name.is_empty()
            || name.contains(char::is_whitespace)
            || (!text.starts_with('[') && port.contains(':'))
        {
            return None;
        }
        let port = match port {
            "" if text.ends_with(':') => return None,
            "" => None,
            digits => Some(digits.parse().ok().filter(|&port| port != 0)?),
        };
        Some(Self { name: name.to_owned(), port })
    }

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
