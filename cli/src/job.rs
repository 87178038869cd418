//! A command that runs once for a key: `lockwell run --once`.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use lockwell::request::JobSteps;
use lockwell::{Error, ErrorKind, LockHandle, LockName, Locks, Once, Requirement};
use rustix::process::Signal;
use tokio::process::Command;

use crate::args::RunArgs;
use crate::exit::{self, Failure};
use crate::hold::Hold;
use crate::patience::{Patience, may_pass};
use crate::say::Voice;

/// The key of the job, in the command's environment, and the number of the attempt.
const KEY: &str = "LOCKWELL_ONCE";
const ATTEMPT: &str = "LOCKWELL_ATTEMPT";

/// One part in a job.
pub(crate) struct Job {
    steps: JobSteps,
    name: LockName,
    key: String,
    attempt: u32,
    voice: Voice,
}

impl Job {
    pub(crate) fn of(args: &RunArgs, locks: &Locks) -> Result<Option<Self>, Failure> {
        let Some(key) = &args.once else { return Ok(None) };
        let voice = args.holding.voice();
        let mut request = locks.once(&args.name, key).attempts(args.attempts);
        if let Some(label) = &args.holding.label {
            request = request.label(label);
        }
        if let Some(ttl) = args.holding.lease.ttl {
            request = request.ttl(ttl);
        }
        let promised = locks.capabilities();
        promised.require(&[Requirement::Records])?;
        if promised.require(&[Requirement::Durable]).is_err() {
            voice.warn(&format!(
                "{} may forget that a key is done (it does not promise durable): the job then runs again",
                promised.backend()
            ));
        }
        let (steps, _) = request.steps()?;
        Ok(Some(Self { steps, name: args.name.clone(), key: key.clone(), attempt: 0, voice }))
    }

    /// Whether the key is done before anything is locked.
    pub(crate) async fn is_done(&mut self, patience: &mut Patience) -> Result<bool, Failure> {
        loop {
            match self.steps.look().await {
                Ok(Some(_)) => {
                    self.voice.tell(&format!("the key {:?} of {:?} is done", self.key, self.name));
                    return Ok(true);
                }
                Ok(None) => return Ok(false),
                Err(error) if may_pass(&error) => patience.after(error).await?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The command is to run now, or there is an end, with its status. After a loss of the lock nothing has
    /// begun, and this may be called again with the next hold.
    pub(crate) async fn begin(&mut self, hold: &Hold) -> Result<Result<(), Failure>, Error> {
        let (key, name) = (&self.key, &self.name);
        let (status, text) = match self.steps.begin(&handle(hold, name)?).await? {
            Once::Ran(attempt) => {
                self.attempt = attempt;
                return Ok(Ok(()));
            }
            Once::Done(_) => {
                self.voice.tell(&format!("the key {key:?} of {name:?} is done"));
                return Ok(Err(Failure::silent(0)));
            }
            Once::FailedElsewhere(job) => {
                let by = job.by.map_or_else(String::new, |by| format!(" on {by}"));
                (exit::NOT_OBTAINED, format!("the job {key:?} of {name:?} failed{by} meanwhile"))
            }
            Once::GivenUp(job) => (
                exit::GIVEN_UP,
                format!(
                    "the job {key:?} of {name:?} is given up after {} attempts; lockwell jobs --forget {key:?} {name:?} allows \
                     others",
                    job.attempts
                ),
            ),
        };
        Ok(Err(Failure::new(status, text)))
    }

    pub(crate) fn environment(&self, command: &mut Command) {
        command.env(KEY, &self.key).env(ATTEMPT, self.attempt.to_string());
    }

    pub(crate) async fn failed(&mut self, hold: &Hold) {
        if let Ok(held) = handle(hold, &self.name) {
            self.steps.failed(&held).await;
        }
    }

    pub(crate) async fn succeeded(&mut self, hold: &Hold) -> Result<(), Failure> {
        let held = handle(hold, &self.name)?;
        self.steps.succeeded(&held).await.map_err(|error| unrecorded(&format!("{error:#}")))
    }
}

/// The command has succeeded, and nobody will know.
pub(crate) fn unrecorded(why: &str) -> Failure {
    Failure::new(exit::LOST, format!("the command has succeeded, and that is not recorded: {why}"))
}

/// Whether a signal asked lockwell to end, which it has passed on.
pub(crate) fn is_asked_to_end(received: &[Signal]) -> bool {
    received.iter().any(|one| [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM].contains(one))
}

/// Whether the command has not failed by itself: lockwell was asked to end, or a signal ended the command that
/// asks for that, or that lockwell has received.
pub(crate) fn was_interrupted(status: ExitStatus, received: &[Signal]) -> bool {
    let asks = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::KILL];
    let ends = |signal| asks.iter().chain(received).any(|one| one.as_raw() == signal);
    is_asked_to_end(received) || status.signal().is_some_and(ends)
}

fn handle(hold: &Hold, name: &LockName) -> Result<LockHandle, Error> {
    let gone = || Error::new(ErrorKind::Internal, "the lock is not held");
    Ok(hold.guard(name).ok_or_else(gone)?.handle())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interruptions() {
        let (exited, by) =
            (ExitStatus::from_raw(9 << 8), |signal: Signal| ExitStatus::from_raw(signal.as_raw()));
        for (status, received, interrupted) in [
            (exited, &[][..], false),
            (exited, &[Signal::TERM], true),
            (exited, &[Signal::CONT, Signal::HUP], true),
            (exited, &[Signal::USR1, Signal::WINCH], false),
            (by(Signal::TERM), &[], true),
            (by(Signal::KILL), &[], true),
            (by(Signal::SEGV), &[], false),
            (by(Signal::SEGV), &[Signal::USR1], false),
            (by(Signal::USR1), &[], false),
            (by(Signal::USR1), &[Signal::USR1], true),
        ] {
            assert_eq!(was_interrupted(status, received), interrupted, "{status:?} {received:?}");
        }
    }
}
