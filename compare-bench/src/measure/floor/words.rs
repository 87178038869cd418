//! The commands of four letters of `ZooKeeper`.

use std::time::Duration;

use lockwell::backend::ServerUrl;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::error::Result;

const DEFAULT_PORT: u16 = 2181;

/// How long an answer may take.
const WORD: Duration = Duration::from_secs(10);

/// The servers that are asked, by commands of four letters, on a connection each, as they want it.
#[derive(Clone, Debug)]
pub(crate) struct Words {
    pub(crate) hosts: Vec<(String, u16)>,
}

/// The servers of an address.
pub(super) fn servers(url: &ServerUrl) -> Result<Vec<(String, u16)>> {
    let hosts = url.hosts()?.into_iter();
    Ok(hosts.map(|host| (host.name().to_owned(), host.port().unwrap_or(DEFAULT_PORT))).collect())
}

impl Words {
    pub(crate) fn of(url: &ServerUrl) -> Result<Self> {
        Ok(Self { hosts: servers(url)? })
    }

    /// The answer of the first server.
    pub(super) async fn first(&self, word: &str) -> Result<String> {
        match self.hosts.first() {
            Some(host) => self.ask(host, word).await,
            None => Ok(String::new()),
        }
    }

    pub(crate) async fn ask(&self, (name, port): &(String, u16), word: &str) -> Result<String> {
        let exchange = async {
            let mut stream = TcpStream::connect((name.as_str(), *port)).await?;
            stream.write_all(word.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            Ok(answer)
        };
        tokio::time::timeout(WORD, exchange).await.map_err(std::io::Error::from)?
    }
}
