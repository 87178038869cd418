//! A command that runs under a lock, until either ends.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::pin::pin;
use std::process::ExitStatus;
use std::time::Duration;

use lockwell::{ErrorKind, LockName, Loss};
use rustix::process::Signal;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::args::WorkArgs;
use crate::child::Child;
use crate::exit::{self, Failure};
use crate::hold::Hold;
use crate::job::{self, Job};
use crate::loss;
use crate::orphans::Orphans;
use crate::pulse::Pulse;
use crate::say;
use crate::signals::{self, Signals};

/// How long to try to free a lock that is lost.
const LAST_RELEASE: Duration = Duration::from_secs(1);

/// How long after the end of a command a signal may come that has ended it, too.
const STOP_OF_ALL: Duration = Duration::from_millis(500);

/// How a run under the lock ended.
pub(crate) enum Ended {
    /// The command ended while the lock was held, as far as is known.
    Command(ExitStatus, Hold),
    /// The lock was lost, or was held for as long as it may be, and the command has been ended. With the
    /// signal that asks for the end of lockwell, if one came meanwhile.
    Lost(Option<Signal>),
}

/// The command that runs under the lock, with its settings.
pub(crate) struct Work<'a> {
    pub(crate) command: &'a [OsString],
    pub(crate) name: &'a LockName,
    pub(crate) holding: &'a WorkArgs,
    pub(crate) address: &'a str,
    /// When this process ran.
    pub(crate) pulse: Pulse,
    /// Whether lockwell goes on when the lock is lost.
    pub(crate) goes_on: bool,
    /// The job of which the command is an attempt.
    pub(crate) job: Option<&'a mut Job>,
    /// The signals that have come while the command ran.
    pub(crate) received: Vec<Signal>,
}

impl Work<'_> {
    /// Runs the command under the lock, which has been held since then.
    pub(crate) async fn under(
        &mut self,
        hold: Hold,
        since: Instant,
        signals: &mut Signals,
    ) -> Result<Ended, Failure> {
        // What was said comes before what the command says.
        say::finish();
        let job = self.job.as_deref();
        let started = Child::start(self.command, self.name, &hold, self.holding, job, self.address);
        let mut child = match started {
            Ok(child) => child,
            Err(failure) => {
                if let Some(job) = &mut self.job {
                    job.failed(&hold).await;
                }
                release(hold).await;
                return Err(failure);
            }
        };
        let ended = self.supervise(&mut child, hold, since, signals).await?;
        let by_signal = match &ended {
            Ended::Command(status, _) => status.signal().is_some(),
            Ended::Lost(_) => true,
        };
        child.over(by_signal);
        Ok(ended)
    }

    /// Waits for the end of the command or of the lock, and passes signals on meanwhile.
    async fn supervise(
        &mut self,
        child: &mut Child,
        hold: Hold,
        since: Instant,
        signals: &mut Signals,
    ) -> Result<Ended, Failure> {
        let (mut orphans, own) = (Orphans::new()?, child.processes());
        let over = self.holding.max_hold.and_then(|most| since.checked_add(most));
        let (mut kill, mut asked) = (None, None);
        // The time before, in which a leader waits for its turn, is none in which it was stopped.
        self.pulse = Pulse::new();
        loop {
            tokio::select! {
                biased;
                status = child.ended() => return Ok(Ended::Command(status?, hold)),
                (name, loss) = lost_or_over(&hold, self.name, over) => {
                    self.report(&name, loss, &hold);
                    // Ended processes of its group that nobody collects would count as left.
                    tokio::select! {
                        stopped = stop(child, signals, self.holding.grace, &mut asked) => stopped?,
                        () = orphans.collect(&own) => (),
                    }
                    let is_interrupted = asked.is_some() || job::is_asked_to_end(&self.received);
                    if let (Loss::HeldTooLong, false, Some(job)) = (loss, is_interrupted, &mut self.job) {
                        drop(timeout(LAST_RELEASE, job.failed(&hold)).await);
                    }
                    // The lease is over, or nearly, or nobody relies on it. There is nothing to wait for if
                    // the server does not answer.
                    drop(timeout(LAST_RELEASE, hold.release()).await);
                    return Ok(Ended::Lost(asked));
                }
                signal = signals.next() => {
                    pass_on(child, signal, || hold.is_held());
                    if !self.received.contains(&signal) {
                        self.received.push(signal);
                    }
                    if signal == Signal::TERM {
                        asked = Some(signal);
                        if kill.is_none() {
                            kill = Instant::now().checked_add(self.holding.grace);
                        }
                    }
                }
                () = at(kill) => {
                    let grace = humantime::format_duration(self.holding.grace);
                    say::warning(&format!("the command has not ended {grace} after TERM (--grace): it gets KILL"));
                    child.signal(Signal::KILL);
                    kill = None;
                }
                () = self.pulse.beat() => (),
                () = orphans.collect(&own) => (),
            }
        }
    }

    /// Whether the command, which has ended so, was interrupted, and has not failed by itself. Whoever ends a
    /// control group or a process group sends one signal after the other, to the command perhaps first.
    pub(crate) async fn was_interrupted(&mut self, status: ExitStatus, signals: &mut Signals) -> bool {
        let mut late = pin!(sleep(STOP_OF_ALL));
        while !job::was_interrupted(status, &self.received) {
            tokio::select! {
                biased;
                signal = signals.next() => self.received.push(signal),
                () = &mut late => return false,
            }
        }
        true
    }

    /// Why the lease of a lost lock was not renewed, as far as it is known.
    pub(crate) fn cause(&mut self, hold: &Hold) -> Option<String> {
        loss::cause(&mut self.pulse, self.holding.lease.ttl, hold)
    }

    fn report(&mut self, name: &LockName, loss: Loss, hold: &Hold) {
        let why = loss::words(loss, self.cause(hold));
        let grace = humantime::format_duration(self.holding.grace);
        let text = format!("lost the lock {name:?}: {why}; the command gets TERM, and KILL after {grace}");
        if self.goes_on { say::warning(&text) } else { say::error(&text, exit::LOST) }
    }
}

/// Frees the lock. False: it had been lost before.
pub(crate) async fn release(hold: Hold) -> bool {
    match hold.release().await {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::Lost => false,
        Err(error) => {
            // The command has done its work under the lock, so its status counts.
            say::warning(&format!("{error:#}; the lock ends with its ttl"));
            true
        }
    }
}

fn pass_on(child: &Child, signal: Signal, may_go_on: impl FnOnce() -> bool) {
    match signal {
        // Both stop together, or the command would go on while the lease is not renewed.
        Signal::TSTP => {
            child.pass_on(signal);
            signals::stop_self();
        }
        // After a long stop the lock may be gone. Then the command gets TERM before it goes on.
        Signal::CONT if !may_go_on() => (),
        _ => child.pass_on(signal),
    }
}

/// Which lock is lost, and how. Locks that have been held for as long as they may be are still held then:
/// until the command has ended, nobody else works.
async fn lost_or_over(hold: &Hold, name: &LockName, over: Option<Instant>) -> (LockName, Loss) {
    tokio::select! {
        biased;
        lost = hold.lost() => lost,
        () = at(over) => (name.clone(), Loss::HeldTooLong),
    }
}

/// Resolves at this time; without one, never.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Ends the command and all that it has started: TERM, and KILL after the grace. `asked`: the signal that
/// asks for the end of lockwell as well, if one comes meanwhile.
async fn stop(
    child: &mut Child,
    signals: &mut Signals,
    grace: Duration,
    asked: &mut Option<Signal>,
) -> Result<(), Failure> {
    let over = at(Instant::now().checked_add(grace));
    child.signal(Signal::TERM);
    // A process that is stopped takes TERM only when it goes on.
    child.signal(Signal::CONT);
    let all_gone = async {
        loop {
            tokio::select! {
                status = child.ended() => break status,
                signal = signals.next() => {
                    if [Signal::TERM, Signal::INT, Signal::QUIT].contains(&signal) {
                        *asked = Some(signal);
                    }
                    pass_on(child, signal, || true);
                }
            }
        }?;
        while child.is_left() {
            sleep(Duration::from_millis(20)).await;
        }
        Ok::<_, Failure>(())
    };
    tokio::select! {
        biased;
        gone = all_gone => return gone,
        () = over => (),
    }
    child.signal(Signal::KILL);
    child.ended().await?;
    Ok(())
}
