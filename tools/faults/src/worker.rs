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
use crate::ends;
use crate::error::{Error, Result};
use crate::plan::{Until, Work};

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
    pub(crate) async fn begin(&mut self) {
        match self {
            // One that has crashed does not listen. Its end tells of it.
            Self::Process { orders, .. } => drop(orders.write_all(b"begin\n").await),
            Self::Tasks { locks, work: what, until, running } => {
                let (locks, what, until) = (locks.clone(), what.clone(), until.clone());
                *running = Some(tokio::spawn(async move { work(&locks, &what, &until).await }));
            }
        }
    }

    /// Tells it to come to an end.
    pub(crate) async fn stop(&mut self) {
        match self {
            // One that was killed does not listen either.
            Self::Process { orders, .. } => drop(orders.write_all(b"stop\n").await),
            Self::Tasks { until, .. } => until.now(),
        }
    }

    /// Waits for its end, for so long and once more as long. An error says in which other way it ended than
    /// by the order or, if it was killed, by that. Afterwards a process writes no more.
    pub(crate) async fn finish(self, was_killed: bool, timeout: Duration) -> Result<()> {
        match self {
            Self::Process { mut child, orders, mut answers } => {
                let Ok(answer) = tokio::time::timeout(timeout, answers.next_line()).await else {
                    child.kill().await?;
                    return Err(Error::failed("it does not end"));
                };
                drop(orders);
                let said = answer?;
                // It may still have something to give up.
                let waited = tokio::time::timeout(timeout, child.wait()).await;
                let status = waited.ok().transpose()?;
                if status.is_none() {
                    child.kill().await?;
                }
                ends::wrong(said.as_deref(), status, was_killed).map_or(Ok(()), |why| Err(Error::failed(why)))
            }
            Self::Tasks { locks, running, .. } => {
                if let Some(mut running) = running {
                    let Ok(done) = tokio::time::timeout(timeout, &mut running).await else {
                        // It must not go on in the next run.
                        running.abort();
                        return Err(Error::failed("it does not end"));
                    };
                    done??;
                }
                // As with a process: a busy machine may not let it close its client in time.
                if let Err(error) = locks.close_within(CLOSE).await {
                    eprintln!("a worker: {error:#}");
                }
                Ok(())
            }
        }
    }
}

/// The program that every second worker is, where one is named.
pub(crate) fn contender() -> Option<PathBuf> {
    std::env::var_os(CONTENDER).map(PathBuf::from)
}

/// The program of a worker: this one, or another that does the same.
fn program(work: &Work) -> Result<PathBuf> {
    match contender() {
        Some(program) if work.crew.takes_contenders() && work.worker % 2 == 1 => Ok(program),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Crew;

    const LONG: Duration = Duration::from_mins(1);
    const SHORT: Duration = Duration::from_millis(200);

    /// How a shell ends that does this.
    async fn end_of(script: &str, was_killed: bool, timeout: Duration) -> Result<()> {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = shell.spawn()?;
        let (orders, answers) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let answers = BufReader::new(answers).lines();
        let mut worker = Worker::Process { child, orders, answers };
        worker.begin().await;
        worker.stop().await;
        worker.finish(was_killed, timeout).await
    }

    #[tokio::test]
    async fn processes_that_hang_or_crash_do_not_end_well() {
        end_of("read begin; read stop; echo done", false, LONG).await.unwrap();
        // A server in trouble did not let it close its client.
        end_of("echo done; exit 1", false, LONG).await.unwrap();
        end_of("kill -KILL $$", true, LONG).await.unwrap();
        for (script, was_killed, timeout, told) in [
            ("kill -KILL $$", false, LONG, "SIGKILL"),
            ("exit 101", true, LONG, "exit status: 101"),
            ("echo error x; exit 1", false, LONG, "error x"),
            ("echo done; exit 101", false, LONG, "exit status: 101"),
            ("exec sleep 60", false, SHORT, "does not end"),
            ("echo done; exec sleep 60", false, SHORT, "does not end"),
        ] {
            let error = end_of(script, was_killed, timeout).await.unwrap_err().to_string();
            assert!(error.contains(told), "{script}: {error}");
        }
    }

    /// How a worker of this process ends that does this.
    async fn end_of_tasks(running: JoinHandle<Result<()>>, timeout: Duration) -> Result<()> {
        let work = Work {
            worker: 0,
            prefix: "tasks".to_owned(),
            crew: Crew::USUAL,
            modes: vec![vec![0]],
            ttl: 1_500_000,
            wait: 3_000_000,
            seed: 1,
            history: PathBuf::new(),
            witness: PathBuf::new(),
        };
        let (work, until) = (Box::new(work), Until::later());
        let worker = Worker::Tasks { locks: Locks::in_memory(), work, until, running: Some(running) };
        worker.finish(false, timeout).await
    }

    async fn panics() -> Result<()> {
        tokio::task::yield_now().await;
        panic!("on purpose")
    }

    #[tokio::test]
    async fn tasks_that_hang_or_panic_do_not_end_well() {
        end_of_tasks(tokio::spawn(async { Ok(()) }), LONG).await.unwrap();
        let error = end_of_tasks(tokio::spawn(panics()), LONG).await.unwrap_err();
        assert!(error.to_string().contains("on purpose"), "{error}");
        let error = end_of_tasks(tokio::spawn(std::future::pending()), SHORT).await.unwrap_err();
        assert!(error.to_string().contains("does not end"), "{error}");
    }
}
