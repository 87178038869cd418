//! A peer's process.

use std::process::Stdio;
use std::time::Duration;

use faults::nanos;
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::{Peer, addresses};
use crate::error::{Error, Result};
use crate::measure::contend::TIMEOUT;
use crate::measure::history::Turn;
use crate::stats::Sample;

pub(crate) struct Process {
    child: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

/// What a peer says about itself.
#[derive(Clone, Debug)]
pub(crate) struct About {
    pub(crate) version: String,
    pub(crate) setup: String,
    /// What it does not do of what lockwell does, where it says so.
    pub(crate) lacks: Option<String>,
}

impl Process {
    /// Starts it, and returns when it is connected.
    pub(crate) async fn start(peer: &Peer, url: &str) -> Result<(Self, About)> {
        let before = nanos();
        let [program, arguments @ ..] = &peer.program.command[..] else {
            return Err(Error::failed("there is no program"));
        };
        let mut child = Command::new(program)
            .args(arguments)
            // Not an argument: the address may hold a password, and arguments are for all to see.
            .env("PEER_URLS", addresses(url))
            // For languages that only know the clock that stands still while the machine sleeps.
            .env("PEER_CLOCK_AHEAD", ahead().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let missing = || Error::failed("the process has no pipe");
        let orders = child.stdin.take().ok_or_else(missing)?;
        let answers = BufReader::new(child.stdout.take().ok_or_else(missing)?).lines();
        let mut this = Self { child, orders, answers };
        let hello = this.answer(TIMEOUT).await?;
        // What it says about time is compared with what others say.
        if !hello["now"].as_u64().is_some_and(|now| (before..=nanos()).contains(&now)) {
            return Err(Error::failed("its clock is not ours"));
        }
        let text = |field: &str| hello[field].as_str().unwrap_or("?").to_owned();
        let lacks = hello["lacks"].as_str().map(str::to_owned);
        Ok((this, About { version: text("version"), setup: text("setup"), lacks }))
    }

    /// Kills it, and the processes that it has started.
    pub(crate) async fn kill(mut self) -> Result<()> {
        let group = self.child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let group = group.ok_or_else(|| Error::failed("it ended early"))?;
        kill_process_group(group, Signal::KILL).map_err(std::io::Error::from)?;
        self.child.wait().await?;
        Ok(())
    }

    pub(crate) async fn order(&mut self, order: &str) -> Result<()> {
        Ok(self.orders.write_all(format!("{order}\n").as_bytes()).await?)
    }

    /// The answer to one order, which may take this time and a little longer.
    async fn answer(&mut self, length: Duration) -> Result<Value> {
        let line = tokio::time::timeout(length + TIMEOUT, self.answers.next_line()).await;
        let line = line.map_err(|_| Error::failed("it does not answer"))??;
        let line = line.ok_or_else(|| Error::failed("it ended early"))?;
        let answer: Value = serde_json::from_str(&line).map_err(std::io::Error::from)?;
        match answer["error"].as_str() {
            Some(error) => Err(Error::failed(error)),
            None => Ok(answer),
        }
    }

    /// The answer to an order to do cycles.
    pub(crate) async fn sample(&mut self, length: Duration) -> Result<Sample> {
        let answer = self.answer(length).await?;
        let mut sample = Sample::new();
        for latency in answer["latencies_ns"].as_array().ok_or_else(bad)? {
            sample.note(Duration::from_nanos(latency.as_u64().ok_or_else(bad)?), 1);
        }
        sample.took(Duration::from_nanos(answer["elapsed_ns"].as_u64().ok_or_else(bad)?));
        Ok(sample)
    }

    /// The answer to an order to contend. The parties of this process have numbers from `first` on.
    pub(crate) async fn turns(&mut self, length: Duration, first: usize) -> Result<Vec<Turn>> {
        let answer = self.answer(length).await?;
        answer["turns"].as_array().ok_or_else(bad)?.iter().map(|turn| read(turn, first)).collect()
    }
}

/// How far the boot clock is ahead of the monotonic one.
fn ahead() -> i64 {
    let monotonic = clock_gettime(ClockId::Monotonic);
    let monotonic = monotonic.tv_sec * 1_000_000_000 + monotonic.tv_nsec;
    i64::try_from(nanos()).unwrap_or(i64::MAX) - monotonic
}

fn read(turn: &Value, first: usize) -> Result<Turn> {
    let number = |place: usize| turn[place].as_u64().ok_or_else(bad);
    Ok(Turn {
        party: first + usize::try_from(number(0)?).map_err(|_| bad())?,
        token: 0,
        asked: number(1)?,
        acquired: number(2)?,
        released: number(3)?,
    })
}

fn bad() -> Error {
    Error::failed("it answers in another form")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_read_or_refused() {
        let turn = read(&serde_json::json!([1, 10, 20, 30]), 2).unwrap();
        assert_eq!(turn, Turn { party: 3, token: 0, asked: 10, acquired: 20, released: 30 });
        assert!(read(&serde_json::json!([1, 10, "x", 30]), 0).is_err());
        assert!(read(&serde_json::json!({}), 0).is_err());
    }
}
