//! The processes that contend for a name or hold locks: this program again, with orders on its standard
//! input.
//!
//! An order is a line, and its answer is a line `TOKEN ASKED ACQUIRED RELEASED` for each turn and `done`, or
//! `error TEXT`. The worker ends when its input does.

mod serve;

use std::process::Stdio;
use std::time::Duration;

use faults::nanos;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::error::{Error, Result};
use crate::measure::contend::TIMEOUT;
use crate::measure::history::{History, Turn};
use crate::stats::{Sample, as_float, rate};

pub(crate) use self::serve::main;

/// The first argument of a worker.
pub(crate) const ARGUMENT: &str = "__worker";

/// How long it may take until the last worker has read its order. The contention ends at the same moment for
/// all.
const ORDER: Duration = Duration::from_millis(5);

/// All workers, on one name or on several.
pub(crate) struct Workers {
    all: Vec<Worker>,
    /// How many names they have.
    names: usize,
}

/// One of them.
pub(crate) struct Worker {
    child: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Workers {
    /// Starts them, and returns when all are connected and warm.
    pub(crate) async fn start(url: &str, name: &str, count: usize) -> Result<Self> {
        Self::start_each(url, &vec![name.to_owned(); count]).await
    }

    /// The same with a name for each. If some contend for the same name, as many contend for each other one,
    /// and they are neighbours.
    pub(crate) async fn start_each(url: &str, names: &[String]) -> Result<Self> {
        let mut all = Vec::new();
        for name in names {
            all.push(Worker::start(url, name)?);
        }
        for worker in &mut all {
            worker.turns(0).await?;
        }
        Ok(Self { all, names: names.chunk_by(|one, next| one == next).count() })
    }

    /// Lets each of them ask the server something that changes nothing.
    pub(crate) async fn ask_server(&mut self) -> Result<()> {
        for worker in &mut self.all {
            worker.order("ask").await?;
        }
        Ok(())
    }

    /// Lets all of them contend for this time.
    pub(crate) async fn round(&mut self, hold: Duration, length: Duration) -> Result<History> {
        let (turns, until) = self.turns(&format!("contend {}", hold.as_nanos()), length).await?;
        History::check(turns, self.all.len(), self.names, until)
    }

    /// Lets each of them take its own lock again and again for this time.
    pub(crate) async fn alone(&mut self, length: Duration) -> Result<Sample> {
        Ok(of_each(&self.turns("alone", length).await?.0))
    }

    /// Lets each of them do the raw cycle again and again for this time, on a connection of its own to the
    /// address `floor`. The first time they connect, which is not to be measured.
    pub(crate) async fn raw(&mut self, floor: &str, length: Duration) -> Result<Sample> {
        Ok(of_each(&self.turns(&format!("raw {floor}"), length).await?.0))
    }

    /// Gives this order with the moment when it ends, and returns that as well.
    async fn turns(&mut self, order: &str, length: Duration) -> Result<(Vec<Turn>, u64)> {
        let until = nanos() + u64::try_from((ORDER + length).as_nanos()).unwrap_or(u64::MAX);
        let order = format!("{order} {until}\n");
        for worker in &mut self.all {
            worker.orders.write_all(order.as_bytes()).await?;
        }
        let mut turns = Vec::new();
        for (party, worker) in self.all.iter_mut().enumerate() {
            let answer = tokio::time::timeout(length + 2 * TIMEOUT, worker.turns(party)).await;
            turns.extend(answer.map_err(|_| Error::failed("a worker process does not answer"))??);
        }
        Ok((turns, until))
    }

    /// Ends them in good order.
    pub(crate) async fn finish(self) -> Result<()> {
        for worker in self.all {
            worker.finish().await?;
        }
        Ok(())
    }
}

impl Worker {
    /// One that is connected and warm.
    pub(crate) async fn ready(url: &str, name: &str) -> Result<Self> {
        let mut this = Self::start(url, name)?;
        this.turns(0).await?;
        Ok(this)
    }

    /// Gives an order, and returns its answer.
    async fn order(&mut self, order: &str) -> Result<Vec<Turn>> {
        self.orders.write_all(format!("{order}\n").as_bytes()).await?;
        let answer = tokio::time::timeout(TIMEOUT, self.turns(0)).await;
        answer.map_err(|_| Error::failed("a worker process does not answer"))?
    }

    /// Takes this number of locks with leases of that length, and keeps them: `NAME/0` and so on.
    pub(crate) async fn hold(&mut self, locks: usize, lease: Duration) -> Result<Vec<Turn>> {
        self.order(&format!("hold {locks} {}", lease.as_millis())).await
    }

    /// Whether none of the locks that it took is lost, as far as it knows.
    pub(crate) async fn still_held(&mut self) -> Result<bool> {
        Ok(self.order("lost").await?.is_empty())
    }

    /// Waits for its lock, which it asks for within this time, and returns the turns that it had.
    pub(crate) async fn wait_once(&mut self, within: Duration) -> Result<Vec<Turn>> {
        let until = nanos() + u64::try_from(within.as_nanos()).unwrap_or(u64::MAX);
        self.order(&format!("contend 0 {until}")).await
    }

    /// Kills it, with what it holds.
    pub(crate) async fn kill(mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }

    /// The process; `None` once it has ended.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Ends it in good order.
    pub(crate) async fn finish(self) -> Result<()> {
        let Self { mut child, orders, .. } = self;
        drop(orders);
        let ended = tokio::time::timeout(TIMEOUT, child.wait()).await;
        let status = ended.map_err(|_| Error::failed("a worker process does not end"))??;
        if status.success() {
            Ok(())
        } else {
            Err(Error::failed(format!("a worker process ended with {status}")))
        }
    }

    fn start(url: &str, name: &str) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([ARGUMENT, name])
            // Not an argument: the address may hold a password, and arguments are for all to see.
            .env(lockwell::LockConfig::ENV, url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let missing = || Error::failed("a worker process has no pipe");
        let orders = child.stdin.take().ok_or_else(missing)?;
        let answers = BufReader::new(child.stdout.take().ok_or_else(missing)?).lines();
        Ok(Self { child, orders, answers })
    }

    /// The answer to one order.
    async fn turns(&mut self, party: usize) -> Result<Vec<Turn>> {
        let mut turns = Vec::new();
        loop {
            let Some(line) = self.answers.next_line().await? else {
                return Err(Error::failed("a worker process ended early"));
            };
            match line.split_once(' ') {
                None if line == "done" => return Ok(turns),
                Some(("error", text)) => return Err(Error::failed(format!("a worker process: {text}"))),
                _ => turns.push(parse(&line, party)?),
            }
        }
    }
}

/// The cycles of parties that each had a lock of its own. From one question to the next is a turn and its
/// release; the last turn of a party has no next question.
///
/// Parties begin and end at different moments. So their rate is the sum of the rates of each, and the time is
/// that in which so many cycles are done at this rate.
fn of_each(turns: &[Turn]) -> Sample {
    let (mut sample, mut cycles, mut per_second) = (Sample::new(), 0, 0.0);
    for turns in turns.chunk_by(|one, next| one.party == next.party) {
        for pair in turns.windows(2) {
            sample.note(Duration::from_nanos(pair[1].asked.saturating_sub(pair[0].asked)), 1);
        }
        let steps = u64::try_from(turns.len().saturating_sub(1)).unwrap_or(u64::MAX);
        let nanos = turns[turns.len() - 1].asked.saturating_sub(turns[0].asked);
        cycles += steps;
        per_second += rate(steps, Duration::from_nanos(nanos));
    }
    if per_second > 0.0 {
        sample.took(Duration::from_secs_f64(as_float(cycles) / per_second));
    }
    sample
}

fn parse(line: &str, party: usize) -> Result<Turn> {
    let numbers: Vec<u64> = line.split(' ').map_while(|word| word.parse().ok()).collect();
    match numbers[..] {
        [token, asked, acquired, released] => Ok(Turn { party, token, asked, acquired, released }),
        _ => Err(Error::failed(format!("a worker process wrote {line:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_counts_for_its_own_time() {
        let milli = 1_000_000;
        // Two processes that begin and end at different moments. Their cycles take 10 ms and 40 ms.
        let turn = |party, asked: u64| {
            let asked = asked * milli;
            Turn { party, token: 1, asked, acquired: asked + 1, released: asked + 2 }
        };
        let mut turns: Vec<Turn> = (0..11).map(|number| turn(0, 5 + 10 * number)).collect();
        turns.extend((0..3).map(|number| turn(1, 40 * number)));
        let sample = of_each(&turns);
        assert!((sample.per_second() - 125.0).abs() < 0.01, "{}", sample.per_second());
        assert_eq!(sample.spread().samples, 12);
        assert!(of_each(&[]).per_second().abs() < f64::EPSILON);
    }

    #[test]
    fn lines_are_parsed_or_refused() {
        let turn = parse("7 10 20 30", 3).unwrap();
        assert_eq!(turn, Turn { party: 3, token: 7, asked: 10, acquired: 20, released: 30 });
        for bad in ["", "7 10 20", "7 10 20 x", "7 10 20 30 40"] {
            assert!(parse(bad, 0).is_err(), "{bad:?}");
        }
    }
}
