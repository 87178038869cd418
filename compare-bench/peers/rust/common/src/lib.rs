//! What the peers in Rust share. Each says by [`Library`] how its locks are had, and is driven by [`run`].
//!
//! The addresses of the servers come in `PEER_URLS`, with commas between them. An order is a line, and its
//! answer is a line of JSON, also the one at the start, which says who this is and what time it is:
//!
//! * `cycles NAME TASKS NANOS`: that many tasks lock and unlock, each a name of its own, for so long.
//! * `contend NAME TASKS HOLD_NANOS UNTIL_NANOS`: that many tasks contend for the one name until then.
//!
//! All times are nanoseconds of the boot clock, as lockwell's workers write them.

mod work;

use std::error::Error;
use std::future::Future;
use std::io::Write;
use std::process::ExitCode;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::work::{contend, cycles};

/// The outcome of a part of the work.
pub type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// A lock library that is connected.
pub trait Library: Clone + Send + Sync + 'static {
    /// The name of its crate.
    const NAME: &'static str;

    /// A lock that is held.
    type Held: Send;

    /// Connects. An error says why that is not possible.
    fn connect(urls: &[&str]) -> impl Future<Output = Result<Self>> + Send;

    /// How it is set up.
    fn setup(&self) -> String;

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
    let (version, setup) = (version(LOCK_FILE, L::NAME), library.setup());
    answer(&json!({ "name": L::NAME, "version": version, "setup": setup, "now": work::nanos() }))?;
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

const LOCK_FILE: &str = include_str!("../../Cargo.lock");

/// The version that was built in, which libraries do not tell themselves.
fn version<'a>(lock_file: &'a str, name: &str) -> &'a str {
    let mut lines = lock_file.lines();
    lines.find(|line| *line == format!("name = \"{name}\""));
    lines.next().and_then(|line| line.split('"').nth(1)).unwrap_or("?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_lock_file() {
        let text = "[[package]]\nname = \"a-b\"\nversion = \"1.0.0\"\n\n[[package]]\nname = \"a\"\nversion = \"2.0.0\"\n";
        assert_eq!(version(text, "a"), "2.0.0");
        assert_eq!(version(text, "a-b"), "1.0.0");
        assert_eq!(version(text, "c"), "?");
    }
}
