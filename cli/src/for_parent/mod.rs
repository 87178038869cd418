//! `lockwell hold`: a lock for the program that started lockwell, in any language.

mod input;
mod lines;

use std::future::pending;
use std::pin::Pin;
use std::time::Duration;

use lockwell::{ErrorKind, LockEvent, LockName, LockStatus, Locks, Loss, Registry};
use rustix::process::Signal;
use tokio::time::timeout;

use self::input::{Input, Said};
use self::lines::{Event, Teller};
use crate::args::HoldArgs;
use crate::connect::{Address, Purpose};
use crate::exit::{self, Failure};
use crate::hold::Hold;
use crate::json::millis;
use crate::obtain::{ObtainRequest, looked_at};
use crate::patience::Patience;
use crate::pulse::Pulse;
use crate::signals::{self, Signals};
use crate::{loss, nested, say};

/// How long to try to leave the queue, or to free a lock that is lost.
const LAST_RELEASE: Duration = Duration::from_secs(1);

pub(crate) async fn hold(registry: &Registry, args: &HoldArgs) -> Result<u8, Failure> {
    // Whoever starts us may read neither of our outputs.
    say::never_block()?;
    let teller = Teller::start(args.json)?;
    let mut ended = keep(registry, args, &teller).await;
    if let Err(failure) = &mut ended {
        let event = Event::Refused { exit_status: failure.status, message: &failure.text() };
        teller.tell_for_sure(&event)?;
        if failure.status == exit::NOT_OBTAINED && args.quiet {
            *failure = Failure::silent(failure.status);
        }
    }
    teller.finish();
    ended
}

async fn keep(registry: &Registry, args: &HoldArgs, teller: &Teller) -> Result<u8, Failure> {
    if args.names.len() > 1 && (args.claim.read || args.claim.permits.is_some()) {
        return Err(Failure::usage("--read and --permits are for one lock"));
    }
    let mut parent = Parent { input: Input::listen()?, signals: Signals::listen()?, teller };
    let wait_limit = args.claim.wait_limit();
    let mut patience = Patience::new(wait_limit.limit(), args.voice());
    let mut address = Address::of(&args.server)?;
    if args.label.is_some() {
        address.config.label.clone_from(&args.label);
    }
    let connection = tokio::select! {
        biased;
        end = parent.gives_up(None) => return parent.told_of(end?, None),
        connected = address.connect(registry, Purpose::Locking, &mut patience) => connected?,
    };
    let locks = connection.locks()?;
    nested::check(&locks, &args.names, args.claim.mode()).await?;
    let request = ObtainRequest {
        names: &args.names,
        mode: args.claim.mode(),
        wait_limit,
        lock_delay: args.lease.lock_delay,
        ttl: args.lease.ttl,
        limits: args.limits(),
        voice: args.voice(),
    };
    // From here on, so that no event of the hold is missed.
    let mut events = locks.events();
    let not_obtained = tokio::select! {
        biased;
        end = parent.gives_up(Some((&locks, &args.names))) => end.and_then(|end| parent.told_of(end, None)),
        hold = request.obtain(&locks, &mut patience) => match hold {
            Ok(hold) => return Keeping { args, parent, hold }.until_its_end(&mut events).await,
            Err(failure) => Err(failure),
        },
    };
    leave(locks).await;
    not_obtained
}

/// A claim that is released leaves its queue in the background, which the end of the process would cut off.
async fn leave(locks: Locks) {
    if let Err(error) = locks.close_within(LAST_RELEASE).await {
        tracing::info!(error = format!("{error:#}"), "the claim is still being cleaned up");
    }
}

/// Why the hold ends although the lock is not lost.
#[derive(Clone, Copy, Debug)]
enum End {
    Asked,
    InputEnded,
    OutputClosed,
    Signal(Signal),
}

impl End {
    fn code(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::InputEnded => "input_ended",
            Self::OutputClosed => "output_closed",
            Self::Signal(_) => "signal",
        }
    }

    fn status(self) -> u8 {
        match self {
            Self::Asked | Self::InputEnded => 0,
            Self::OutputClosed => exit::SOFTWARE,
            Self::Signal(signal) => signals::status_of(signal),
        }
    }
}

/// The answer of a look that is under way.
async fn or_never<T>(looking: Option<impl Future<Output = T>>) -> T {
    match looking {
        Some(looking) => looking.await,
        None => pending().await,
    }
}

/// What is asked of a holder.
enum Asked {
    Check,
    Progress,
    End(End),
}

/// The program that started lockwell.
struct Parent<'a> {
    input: Input,
    signals: Signals,
    teller: &'a Teller,
}

impl Parent<'_> {
    /// The next that it asks for, by whatever means.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost.
    async fn next(&mut self) -> Asked {
        tokio::select! {
            biased;
            signal = self.signals.next_ending() => Asked::End(End::Signal(signal)),
            () = self.teller.closed() => Asked::End(End::OutputClosed),
            said = self.input.next() => match said {
                Said::Check => Asked::Check,
                Said::Progress => Asked::Progress,
                Said::Release => Asked::End(End::Asked),
                Said::End => Asked::End(End::InputEnded),
            },
        }
    }

    /// Resolves when it does not want the lock any more. Meanwhile it is told that the locks are waited for, and for
    /// whom, once there is a connection.
    async fn gives_up(&mut self, waited_for: Option<(&Locks, &[LockName])>) -> Result<End, Failure> {
        let mut looking: Option<Pin<Box<dyn Future<Output = Vec<LockStatus>> + '_>>> = None;
        loop {
            let asked = tokio::select! {
                biased;
                asked = self.next() => asked,
                seen = or_never(looking.as_mut()) => {
                    looking = None;
                    self.teller.tell(&Event::waiting(&seen))?;
                    continue;
                }
            };
            match asked {
                Asked::Check => {
                    // Each question has its answer, also one that comes while the server is asked for another.
                    if looking.is_some() || waited_for.is_none() {
                        self.teller.tell(&Event::waiting(&[]))?;
                    }
                    looking =
                        waited_for.map(|(locks, names)| Box::pin(looked_at(locks, names)) as Pin<Box<_>>);
                }
                Asked::Progress => (),
                Asked::End(end) => return Ok(end),
            }
        }
    }

    /// Tells it that the lock is free, and returns the exit status. `message`: what is not as it should be.
    fn told_of(&self, end: End, message: Option<&str>) -> Result<u8, Failure> {
        self.teller.tell_for_sure(&Event::Released { cause: end.code(), message })?;
        if matches!(end, End::OutputClosed) {
            say::error("the lock was released: nobody can read standard output any more", end.status());
        }
        Ok(end.status())
    }
}

/// A lock that is held for another program.
struct Keeping<'a> {
    args: &'a HoldArgs,
    parent: Parent<'a>,
    hold: Hold,
}

impl Keeping<'_> {
    async fn until_its_end(mut self, events: &mut lockwell::Events) -> Result<u8, Failure> {
        if let Some(granted) = Event::granted(&self.hold, &self.args.names[0]) {
            self.parent.teller.tell_for_sure(&granted)?;
        }
        let mut pulse = Pulse::new();
        loop {
            tokio::select! {
                biased;
                (name, loss) = self.hold.lost() => {
                    let cause = loss::cause(&mut pulse, self.args.lease.ttl, &self.hold);
                    let lost = self.lost(&name, loss, &loss::words(loss, cause))?;
                    // Nothing is left to wait for if the server does not answer.
                    drop(timeout(LAST_RELEASE, self.hold.release()).await);
                    return Ok(lost);
                }
                Some(event) = events.next() => self.pass_on(&event)?,
                asked = self.parent.next() => match asked {
                    Asked::Check => {
                        let valid_ms = millis(self.hold.time_left());
                        self.parent.teller.tell(&Event::Held { valid_ms })?;
                    }
                    Asked::Progress => self.hold.progress(),
                    Asked::End(end) => return self.release(end).await,
                },
                () = pulse.beat() => (),
            }
        }
    }

    /// Tells of a lock that is in doubt, or is not any more. Of the rest, the other program is told
    /// elsewhere.
    fn pass_on(&self, event: &LockEvent) -> Result<(), Failure> {
        let valid_ms = millis(self.hold.time_left());
        match event {
            LockEvent::Suspect { name, token } => {
                let guard = self.hold.guard(name);
                let message = guard.and_then(lockwell::LockGuard::renewal_failure);
                let (name, token) = (name.as_str(), token.get());
                self.parent.teller.tell(&Event::Suspect { name, token, valid_ms, message })
            }
            LockEvent::Recovered { name, token } => {
                let (name, token) = (name.as_str(), token.get());
                self.parent.teller.tell(&Event::Recovered { name, token, valid_ms })
            }
            _ => Ok(()),
        }
    }

    /// Tells of the loss at once, and returns the exit status.
    fn lost(&self, name: &LockName, loss: Loss, message: &str) -> Result<u8, Failure> {
        let token = self.hold.token(name).map_or(0, lockwell::FencingToken::get);
        let lost = Event::Lost { name: name.as_str(), token, cause: loss::code(loss), message };
        self.parent.teller.tell_for_sure(&lost)?;
        say::error(&format!("lost the lock {name:?}: {message}"), exit::LOST);
        Ok(exit::LOST)
    }

    async fn release(self, end: End) -> Result<u8, Failure> {
        // Read before the release, which takes the hold.
        let name = self.args.names[0].clone();
        let token = self.hold.token(&name).map_or(0, lockwell::FencingToken::get);
        match self.hold.release().await {
            Ok(()) => self.parent.told_of(end, None),
            // The deadline had not passed, so the server says so.
            Err(error) if error.kind() == ErrorKind::Lost => {
                let (cause, message) = (loss::code(Loss::Taken), format!("{error:#}"));
                let lost = Event::Lost { name: name.as_str(), token, cause, message: &message };
                self.parent.teller.tell_for_sure(&lost)?;
                say::error(&message, exit::LOST);
                Ok(exit::LOST)
            }
            Err(error) => {
                let message = format!("{error:#}; the lock ends with its ttl");
                say::warning(&message);
                self.parent.told_of(end, Some(&message))
            }
        }
    }
}
