//! What the peers in Rust share. Each says by [`Library`] how its locks are had, and is driven by [`run`].
//!
//! The addresses of the servers come in `PEER_URLS`, with commas between them. An order is a line, and its
//! answer is a line of JSON, also the one at the start, which says who this is and what time it is:
//!
//! * `cycles NAME TASKS NANOS`: that many tasks lock and unlock, each a name of its own, for so long.
//! * `contend NAME TASKS HOLD_NANOS UNTIL_NANOS`: that many tasks contend for the one name until then.
//!
//! All times are nanoseconds of the boot clock, as lockwell's workers write them.

mod pool;
mod work;

use std::error::Error;
use std::future::Future;
use std::io::Write;
use std::process::ExitCode;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::work::{contend, cycles};

pub use crate::pool::{Place, Pool};

/// The outcome of a part of the work.
pub type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// How many connections a library has at most that needs one for each lock.
pub const CONNECTIONS: usize = 64;

/// A lock library that is connected.
pub trait Library: Clone + Send + Sync + 'static {
    /// A lock that is held.
    type Held: Send;

    /// Connects. An error says why that is not possible.
    fn connect(urls: &[&str]) -> impl Future<Output = Result<Self>> + Send;

    /// Which release it is: usually that which its package pins ([`pinned`]).
    fn version(&self) -> String;

    /// How it is set up.
    fn setup(&self) -> String;

    /// What it does not do of what lockwell does.
    fn lacks(&self) -> &'static str;

    /// Waits until this lock is had.
    fn acquire(&self, name: &str) -> impl Future<Output = Result<Self::Held>> + Send;

    /// Gives it back.
    fn release(&self, held: Self::Held) -> impl Future<Output = Result<()>> + Send;
}

/// The whole program.
pub async fn run<L: Library>() -> ExitCode {
    // On a thread of the runtime, where an application's tasks are.
    match tokio::spawn(serve::<L>()).await {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            println!("{}", json!({ "error": error.to_string() }));
            ExitCode::FAILURE
        }
        Err(_) => ExitCode::FAILURE,
    }
}

async fn serve<L: Library>() -> Result<()> {
    let urls = std::env::var("PEER_URLS")?;
    let library = L::connect(&urls.split(',').collect::<Vec<_>>()).await?;
    // What the first lock of a connection costs is not measured.
    let own = format!("compare/peer/{}", std::process::id());
    library.release(library.acquire(&own).await?).await?;
    let (version, setup, lacks, now) = (library.version(), library.setup(), library.lacks(), work::nanos());
    answer(&json!({ "version": version, "setup": setup, "lacks": lacks, "now": now }))?;
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    while let Some(order) = orders.next_line().await? {
        let words: Vec<_> = order.split(' ').collect();
        let done = match words[..] {
            ["cycles", name, tasks, length] => cycles(&library, name, tasks.parse()?, length.parse()?).await,
            ["contend", name, tasks, hold, until] => {
                contend(&library, name, tasks.parse()?, hold.parse()?, until.parse()?).await
            }
            _ => Err(format!("what is {order:?}?").into()),
        };
        answer(&done?)?;
    }
    Ok(())
}

fn answer(value: &Value) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{value}")?;
    Ok(out.flush()?)
}

/// The address of the server that this library is measured on. An error says that it needs one alone.
pub fn one<'a>(urls: &[&'a str]) -> Result<&'a str> {
    let [url] = urls else { return Err("it is measured on one server".into()) };
    Ok(url)
}

/// The version of a recipe that is called through a crate, which this manifest pins.
#[must_use]
pub fn through(manifest: &str, name: &str) -> String {
    format!("through {name} {}", pinned(manifest, name))
}

/// The release of a crate that a manifest pins, since crates do not tell it themselves.
#[must_use]
pub fn pinned<'a>(manifest: &'a str, name: &str) -> &'a str {
    let of_crate = |line: &'a str| line.strip_prefix(name)?.trim_start().strip_prefix('=');
    let pin = manifest.lines().find_map(of_crate).and_then(|rest| rest.split_once("\"="));
    pin.and_then(|(_, rest)| rest.split('"').next()).unwrap_or("?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_manifest() {
        let text = "name = \"peer-a\"\n[dependencies]\na-b = { version = \"=1.0.0\", features = [] }\na = \"=2.0.0\"\n";
        assert_eq!(pinned(text, "a"), "2.0.0");
        assert_eq!(pinned(text, "a-b"), "1.0.0");
        assert_eq!(pinned(text, "c"), "?");
        assert_eq!(pinned("c = \"2\"", "c"), "?", "not pinned");
        assert_eq!(through(text, "a"), "through a 2.0.0");
    }

    #[test]
    fn several_servers_are_not_one() {
        assert_eq!(one(&["a"]).unwrap(), "a");
        assert!(one(&["a", "b"]).is_err() && one(&[]).is_err());
    }
}
