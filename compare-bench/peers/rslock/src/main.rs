//! rslock under the workloads of `compare-bench --peers`.
//!
//! The addresses of the servers come in `PEER_URLS`, with commas between them. An order is a line, and its answer is a
//! line of JSON, also the one at the start, which says who this is and what time it is:
//!
//! * `cycles NAME TASKS NANOS`: that many tasks lock and unlock, each a name of its own, for so long.
//! * `fight NAME TASKS HOLD_NANOS UNTIL_NANOS`: that many tasks fight for the one name until then.
//!
//! All times are nanoseconds of the boot clock, as lockwell's workers write them.

mod work;

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

use rslock::LockManager;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::work::{cycles, fight};

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// How rslock is set up: as it comes. It offers no other way to wait.
const SETUP: &str = "defaults: 3 tries, up to 200 ms apart at random, and again; without tokens and renewal";

#[tokio::main]
async fn main() -> ExitCode {
    // On a thread of the runtime, where an application's tasks are.
    match tokio::spawn(serve()).await {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            println!("{}", json!({ "error": error.to_string() }));
            ExitCode::FAILURE
        }
        Err(_) => ExitCode::FAILURE,
    }
}

async fn serve() -> Result<()> {
    let urls = std::env::var("PEER_URLS")?;
    let manager = LockManager::new(urls.split(',').collect());
    // Makes the connections, and tells the servers the script. An error would be repeated for ever inside.
    let own = format!("compare/peer/{}", std::process::id());
    let lock = manager.lock(own.as_str(), work::TTL).await?;
    manager.unlock(&lock).await;
    answer(&json!({ "name": "rslock", "version": version(), "setup": SETUP, "now": work::nanos() }))?;
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    while let Some(order) = orders.next_line().await? {
        let words: Vec<_> = order.split(' ').collect();
        let done = match words[..] {
            ["cycles", name, tasks, length] => cycles(&manager, name, tasks.parse()?, length.parse()?).await,
            ["fight", name, tasks, hold, until] => {
                fight(&manager, name, tasks.parse()?, hold.parse()?, until.parse()?).await
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

/// The version that was built in, which rslock itself does not tell.
fn version() -> &'static str {
    let mut lines = include_str!("../Cargo.lock").lines();
    lines.find(|line| *line == "name = \"rslock\"");
    lines.next().and_then(|line| line.split('"').nth(1)).unwrap_or("?")
}
