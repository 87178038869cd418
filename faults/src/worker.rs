//! Workers: processes, so that they can be killed and stopped; with `memory://`, tasks of the runner.
//!
//! A worker process is this program again. It reads its `Order` from a line of its input, writes `ready`,
//! works from the next line to the one after it, and writes `done` or `error TEXT`. It ends when its input
//! does.

use std::path::PathBuf;
use std::pin::pin;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use lockwell::{LockConfig, Locks};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;

use super::work::work;
use crate::error::{Error, Result};
use crate::plan::{Crew, Misuse, Until, Work};

/// The first argument of a worker.
pub const ARGUMENT: &str = "__faults_worker";

/// The environment variable with the path of a program that every second worker is, as
/// `python/tests/contender.py`.
const CONTENDER: &str = "LOCKWELL_CONTENDER";

/// How long a worker may take to start on a busy machine.
const START: Duration = Duration::from_mins(1);

/// How long a client may take to close when its server is in trouble.
const CLOSE: Duration = Duration::from_secs(3);

/// What a worker process is told.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    url: String,
    work: Work,
}

/// A worker.
#[derive(Debug)]
pub(crate) enum Worker {
    Process { child: Child, orders: ChildStdin, answers: Lines<BufReader<ChildStdout>> },
    Tasks { locks: Locks, work: Box<Work>, until: Until, running: Option<JoinHandle<Result<()>>> },
}

async fn connect(url: &str, work: &Work) -> Result<Locks> {
    let config = LockConfig::new(url).ttl(work.ttl());
    let config = if work.in_order() { config.server_order() } else { config };
    let locks = lockwell::connect_with(config).await?;
    // Warm connections and statements, on a name of its own.
    let own = format!("{}/warm/{}", work.prefix, work.worker);
    locks.lock(own).wait(START).await?.release().await?;
    Ok(locks)
}

impl Worker {
    /// Starts a process with this added to its environment. It is ready when [`ready`](Self::ready) returns.
    pub(crate) async fn process(url: &str, work: Work, environment: &[(String, String)]) -> Result<Self> {
        let program = program(&work)?;
        let mut child = Command::new(program)
            .arg(ARGUMENT)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()?;
        let no_pipe = || Error::failed("a worker process has no pipe");
        let mut orders = child.stdin.take().ok_or_else(no_pipe)?;
        let answers = BufReader::new(child.stdout.take().ok_or_else(no_pipe)?).lines();
        let order = serde_json::to_string(&Order { url: url.to_owned(), work })
            .map_err(|error| Error::failed(error.to_string()))?;
        orders.write_all(format!("{order}\n").as_bytes()).await?;
        Ok(Self::Process { child, orders, answers })
    }

    /// Makes a client of this process.
    pub(crate) async fn tasks(url: &str, work: Work) -> Result<Self> {
        let locks = connect(url, &work).await?;
        Ok(Self::Tasks { locks, work: Box::new(work), until: Until::later(), running: None })
    }

    /// The process id, if it is a process.
    pub(crate) fn id(&self) -> Option<u32> {
        match self {
            Self::Process { child, .. } => child.id(),
            Self::Tasks { .. } => None,
        }
    }

    /// Waits until it is connected.
    pub(crate) async fn ready(&mut self) -> Result<()> {
        let Self::Process { answers, .. } = self else { return Ok(()) };
        let line = tokio::time::timeout(START, answers.next_line()).await;
        match line.map_err(|_| Error::failed("a worker process does not begin"))?? {
            Some(line) if line == "ready" => Ok(()),
            line => Err(Error::failed(format!("a worker process said {line:?}"))),
        }
    }

    /// Lets it begin.
    pub(crate) async fn begin(&mut self) -> Result<()> {
        match self {
            Self::Process { orders, .. } => orders.write_all(b"begin\n").await?,
            Self::Tasks { locks, work: what, until, running } => {
                let (locks, what, until) = (locks.clone(), what.clone(), until.clone());
                *running = Some(tokio::spawn(async move { work(&locks, &what, &until).await }));
            }
        }
        Ok(())
    }

    /// Tells it to come to an end.
    pub(crate) async fn stop(&mut self) {
        match self {
            // One that was killed does not listen.
            Self::Process { orders, .. } => drop(orders.write_all(b"stop\n").await),
            Self::Tasks { until, .. } => until.now(),
        }
    }

    /// Waits for its end. One that was killed has none that is good.
    pub(crate) async fn finish(self, was_killed: bool, timeout: Duration) -> Result<()> {
        match self {
            Self::Process { mut child, orders, mut answers } => {
                let answer = tokio::time::timeout(timeout, answers.next_line()).await;
                let answer = answer.map_err(|_| Error::failed("a worker process does not end"))??;
                drop(orders);
                // It may still have something to give up, and has the time for it.
                if tokio::time::timeout(CLOSE * 2, child.wait()).await.is_err() {
                    child.kill().await?;
                }
                match answer {
                    Some(line) if line == "done" => Ok(()),
                    // One that ended by itself before that has said why.
                    None if was_killed => Ok(()),
                    line => Err(Error::failed(format!("a worker process said {line:?}"))),
                }
            }
            Self::Tasks { locks, running, .. } => {
                if let Some(running) = running {
                    let done = tokio::time::timeout(timeout, running).await;
                    done.map_err(|_| Error::failed("a worker does not end"))???;
                }
                locks.close_within(CLOSE).await?;
                Ok(())
            }
        }
    }
}

/// The program that every second worker is, where one is named.
pub(crate) fn contender() -> Option<PathBuf> {
    std::env::var_os(CONTENDER).map(PathBuf::from)
}

/// Whether that program can do what this crew does. It knows no misuse, and no names that look alike.
pub(crate) fn takes_contenders(crew: &Crew) -> bool {
    crew.misuse == Misuse::None && !crew.look_alike
}

/// The program of a worker: this one, or another that does the same.
fn program(work: &Work) -> Result<PathBuf> {
    match contender() {
        Some(program) if takes_contenders(&work.crew) && work.worker % 2 == 1 => Ok(program),
        _ => Ok(std::env::current_exe()?),
    }
}

/// The process.
pub async fn main() -> ExitCode {
    let failure = match serve().await {
        Ok(()) => return ExitCode::SUCCESS,
        Err(error) => error.to_string().replace('\n', " "),
    };
    println!("error {failure}");
    ExitCode::FAILURE
}

async fn serve() -> Result<()> {
    // Also while this process is stopped, in which it does not notice the end of its input.
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(|errno| Error::failed(format!("PR_SET_PDEATHSIG: {errno}")))?;
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    let nothing = || Error::failed("no order");
    let order = orders.next_line().await?.ok_or_else(nothing)?;
    let Order { url, work: what } =
        serde_json::from_str(&order).map_err(|error| Error::failed(error.to_string()))?;
    let locks = connect(&url, &what).await?;
    println!("ready");
    orders.next_line().await?.ok_or_else(nothing)?;
    let until = Until::later();
    {
        let mut working = pin!(work(&locks, &what, &until));
        tokio::select! {
            done = &mut working => done?,
            line = orders.next_line() => {
                if line?.is_none() {
                    // Whoever started this process has gone.
                    return Ok(());
                }
                until.now();
                working.await?;
            }
        }
    }
    println!("done");
    // Releases that have no answer yet are the keeper's business, and those of the end of a lease.
    if let Err(error) = locks.close_within(CLOSE).await {
        eprintln!("worker {}: {error:#}", what.worker);
    }
    Ok(())
}
