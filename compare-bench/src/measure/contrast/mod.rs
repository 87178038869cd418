//! Common but faulty recipes for locks, which are measured as well: as processes of this program that take
//! the orders of the peers.
//!
//! They are written as they are usually found, without improvements.

mod legacy_setnx;
mod naive_node;
mod plain_row;
mod recipe;

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use faults::nanos;
use lockwell::backend::ServerUrl;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::task::JoinSet;

use self::legacy_setnx::LegacySetnx;
use self::naive_node::NaiveNode;
use self::plain_row::PlainRow;
use crate::error::{Error, Result};
use crate::measure::contrast::recipe::Recipe;
use crate::measure::cycles::{cycles, together};
use crate::measure::hold::held;

/// The process.
pub(crate) async fn main(name: &str) -> ExitCode {
    match serve(name).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{}", json!({ "error": error.to_string() }));
            ExitCode::FAILURE
        }
    }
}

async fn connect(name: &str) -> Result<&'static dyn Recipe> {
    let address = std::env::var("PEER_URLS").map_err(|_| Error::failed("PEER_URLS is not set"))?;
    // For the rest of the process, so that tasks can have it.
    Ok(match name {
        "naive-node" => Box::leak(Box::new(NaiveNode::connect(&address).await?)),
        "legacy-setnx" => Box::leak(Box::new(LegacySetnx::connect(&address.parse()?).await?)),
        "plain-row" => Box::leak(Box::new(PlainRow::connect(&address.parse::<ServerUrl>()?).await?)),
        _ => return Err(Error::failed(format!("there is no recipe {name:?}"))),
    })
}

async fn serve(name: &str) -> Result<()> {
    let recipe = connect(name).await?;
    // What the first lock of a connection costs is not measured.
    let own = format!("compare/contrast/{}", std::process::id());
    recipe.acquire(&own).await?;
    recipe.release(&own).await?;
    let version = env!("CARGO_PKG_VERSION");
    answer(&json!({ "name": name, "version": version, "setup": recipe.setup(), "now": nanos() }))?;
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    while let Some(order) = orders.next_line().await? {
        let bad = || Error::failed(format!("a recipe got the order {order:?}"));
        let words: Vec<_> = order.split(' ').collect();
        let number =
            |place: usize| words.get(place).and_then(|word| word.parse::<u64>().ok()).ok_or_else(bad);
        let tasks = usize::try_from(number(2)?).map_err(|_| bad())?;
        let done = match words[..] {
            ["cycles", name, ..] => alone(recipe, name, tasks, Duration::from_nanos(number(3)?)).await,
            ["contend", name, ..] => {
                contend(recipe, name, tasks, Duration::from_nanos(number(3)?), number(4)?).await
            }
            _ => Err(bad()),
        };
        answer(&done?)?;
    }
    Ok(())
}

/// Each task on a name of its own.
async fn alone(recipe: &'static dyn Recipe, name: &str, tasks: usize, length: Duration) -> Result<Value> {
    let sample = together(tasks, |task| {
        let name = format!("{name}/{task}");
        async move {
            cycles(length, || async {
                recipe.acquire(&name).await?;
                recipe.release(&name).await
            })
            .await
        }
    })
    .await?;
    let elapsed = u64::try_from(sample.elapsed().as_nanos()).unwrap_or(u64::MAX);
    Ok(json!({ "latencies_ns": sample.nanos(), "elapsed_ns": elapsed }))
}

/// All tasks on one name. A turn is `[task, asked, acquired, released]`.
async fn contend(
    recipe: &'static dyn Recipe,
    name: &str,
    tasks: usize,
    hold: Duration,
    until: u64,
) -> Result<Value> {
    let mut set: JoinSet<Result<Vec<Value>>> = JoinSet::new();
    for task in 0..tasks {
        let name = name.to_owned();
        set.spawn(async move {
            let mut turns = Vec::new();
            loop {
                let asked = nanos();
                if asked >= until {
                    return Ok(turns);
                }
                recipe.acquire(&name).await?;
                let acquired = nanos();
                held(hold).await?;
                let released = nanos();
                recipe.release(&name).await?;
                turns.push(json!([task, asked, acquired, released]));
            }
        });
    }
    let mut turns = Vec::new();
    while let Some(done) = set.join_next().await {
        turns.extend(done??);
    }
    Ok(json!({ "turns": turns }))
}

fn answer(value: &Value) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{value}")?;
    Ok(out.flush()?)
}
