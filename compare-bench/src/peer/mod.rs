//! Other lock libraries, measured beside ours in the same rounds.
//!
//! Each is a program with a workspace of its own in `peers/`, so that what it depends on stays out of ours. It is told
//! what to do line by line, and answers with a line of JSON.

mod build;
mod process;
mod rival;

use std::path::PathBuf;

pub(crate) use self::rival::Rival;

/// A library that can be measured.
#[derive(Debug)]
pub(crate) struct Library {
    /// Its name, which is that of its folder, too.
    pub(crate) name: &'static str,
    /// The schemes of the addresses that it can work with.
    pub(crate) schemes: &'static [&'static str],
}

/// Every one of them.
pub(crate) const ALL: [Library; 1] = [Library { name: "rslock", schemes: &["redis", "redlock"] }];

/// A library that is built.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    name: &'static str,
    schemes: &'static [&'static str],
    program: PathBuf,
}

impl Library {
    pub(crate) fn serves(&self, scheme: &str) -> bool {
        self.schemes.contains(&scheme)
    }

    /// Builds it, which may take minutes the first time. Otherwise says why not.
    pub(crate) async fn build(&self) -> Result<Peer, String> {
        let program = build::build(self.name).await?;
        Ok(Peer { name: self.name, schemes: self.schemes, program })
    }
}

impl Peer {
    pub(crate) fn serves(&self, scheme: &str) -> bool {
        self.schemes.contains(&scheme)
    }
}

/// The addresses of the single servers behind an address, as other libraries write them: with commas between them.
fn addresses(url: &str) -> String {
    let url = url.split('?').next().unwrap_or(url);
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (login, hosts) = authority.rsplit_once('@').map_or(("", authority), |(login, hosts)| (login, hosts));
    let at = if login.is_empty() { "" } else { "@" };
    let urls: Vec<_> = hosts.split(',').map(|host| format!("redis://{login}{at}{host}/{path}")).collect();
    urls.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_has_an_address() {
        assert_eq!(addresses("redis://a:1"), "redis://a:1/");
        assert_eq!(
            addresses("redlock://u:p%40@a:1,b:2/3?namespace=x"),
            "redis://u:p%40@a:1/3,redis://u:p%40@b:2/3"
        );
    }
}
