//! The worker itself.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use faults::nanos;
use futures_util::future::try_join_all;
use lockwell::{LockConfig, LockGuard, Locks};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::error::{Error, Result};
use crate::measure::contend::{ContendedLock, TIMEOUT, contend};
use crate::measure::floor::Floor;
use crate::measure::history::Turn;
use crate::target::connect;

/// How many locks it asks for at once.
const TOGETHER: usize = 500;

/// The process.
pub(crate) async fn main(name: String) -> ExitCode {
    // On a thread of the runtime, where an application's tasks are: the main thread is woken in another way.
    match tokio::spawn(work(name)).await.map_err(Error::from).flatten() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error {error}");
            ExitCode::FAILURE
        }
    }
}

async fn work(name: String) -> Result<()> {
    let url = std::env::var(LockConfig::ENV).map_err(|_| Error::failed("a worker needs an address"))?;
    let locks = connect(&url).await?;
    // Warm connections and statements, on a name that nobody contends for.
    let own = format!("{name}/{}", std::process::id());
    locks.lock(own.as_str()).wait(TIMEOUT).await?.release().await?;
    answer(&[])?;
    let lock = ContendedLock::Lock(locks.clone(), name.clone());
    let (mut held, mut floor): (Vec<LockGuard>, Option<Floor>) = (Vec::new(), None);
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    while let Some(order) = orders.next_line().await? {
        let words: Vec<_> = order.split(' ').collect();
        // An address in it may hold a password.
        let bad = || Error::failed(format!("a worker process got a wrong order {:?}", words[0]));
        let number =
            |place: usize| words.get(place).and_then(|word| word.parse::<u64>().ok()).ok_or_else(bad);
        let turns = match words[0] {
            "contend" => contend(&lock, 0, Duration::from_nanos(number(1)?), &number(2)?.into(), 0).await?,
            // Two turns make a cycle, however short the round is.
            "alone" => contend(&lock, 0, Duration::ZERO, &number(1)?.into(), 2).await?,
            "raw" => {
                let floor = match &mut floor {
                    Some(floor) => floor,
                    floor => floor.insert(Floor::connect(words.get(1).ok_or_else(bad)?).await?),
                };
                raw(floor, number(2)?).await?
            }
            "hold" => {
                let count = usize::try_from(number(1)?).map_err(|_| bad())?;
                let (guards, turns) = hold(&locks, &name, count, Duration::from_millis(number(2)?)).await?;
                held.extend(guards);
                turns
            }
            "lost" => {
                let lost = held.iter().filter(|guard| guard.check().is_err());
                lost.map(|guard| Turn {
                    party: 0,
                    token: guard.token().get(),
                    asked: 0,
                    acquired: 0,
                    released: 0,
                })
                .collect()
            }
            "ask" => {
                locks.inspect(name.as_str()).await?;
                Vec::new()
            }
            _ => return Err(bad()),
        };
        answer(&turns)?;
    }
    for guard in held {
        guard.release().await?;
    }
    locks.close().await?;
    match floor {
        Some(floor) => floor.finish().await,
        None => Ok(()),
    }
}

/// The raw cycle again and again, until this moment.
async fn raw(floor: &mut Floor, until: u64) -> Result<Vec<Turn>> {
    if !floor.is_known() {
        return Err(Error::failed("no raw statements are known for this server"));
    }
    let name = usize::try_from(std::process::id()).unwrap_or_default();
    let mut turns = Vec::new();
    loop {
        let asked = nanos();
        if asked >= until && turns.len() >= 2 {
            return Ok(turns);
        }
        floor.cycles(name).await?;
        let now = nanos();
        turns.push(Turn { party: 0, token: 0, asked, acquired: now, released: now });
        tokio::task::consume_budget().await;
    }
}

/// Takes these locks, many at a time.
async fn hold(
    locks: &Locks,
    name: &str,
    count: usize,
    lease: Duration,
) -> Result<(Vec<LockGuard>, Vec<Turn>)> {
    let (mut guards, mut turns) = (Vec::new(), Vec::new());
    let numbers: Vec<usize> = (0..count).collect();
    for some in numbers.chunks(TOGETHER) {
        let asked = nanos();
        let one = |number: &usize| {
            let request = locks.lock(format!("{name}/{number}")).ttl(lease).wait(TIMEOUT);
            async move { request.await }
        };
        for guard in try_join_all(some.iter().map(one)).await? {
            let now = nanos();
            turns.push(Turn { party: 0, token: guard.token().get(), asked, acquired: now, released: now });
            guards.push(guard);
        }
    }
    Ok((guards, turns))
}

fn answer(turns: &[Turn]) -> Result<()> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for Turn { token, asked, acquired, released, .. } in turns {
        writeln!(out, "{token} {asked} {acquired} {released}")?;
    }
    writeln!(out, "done")?;
    Ok(out.flush()?)
}
