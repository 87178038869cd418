//! `lockwell run`: a command under a lock.

use std::time::Duration;

use lockwell::{ErrorKind, LockName, Locks, Registry};
use tokio::time::{Instant, sleep};

use crate::args::RunArgs;
use crate::connect::{Address, Purpose};
use crate::exit::{self, Failure};
use crate::hold::Hold;
use crate::job::{self, Job};
use crate::obtain::{ObtainRequest, WaitLimit};
use crate::patience::Patience;
use crate::pulse::Pulse;
use crate::say::rounded;
use crate::signals::{self, Signals};
use crate::supervise::{Ended, Work, release};
use crate::{nested, program, say};

/// How long to try to leave the queue.
const LAST_RELEASE: Duration = Duration::from_secs(1);

/// For how long to record a success after a signal that asks lockwell to end.
const LAST_RECORD: Duration = Duration::from_secs(3);

/// The pause after a lock that was lost before a job had begun.
const AFTER_LOSS: Duration = Duration::from_millis(100);

pub(crate) async fn run(registry: &Registry, args: &RunArgs) -> Result<u8, Failure> {
    // Whoever reads the messages may have stopped, and the command is ended all the same if the lock is lost.
    say::never_block()?;
    program::check(&args.command[0])?;
    check(args)?;
    let mut signals = Signals::listen()?;
    let voice = args.holding.voice();
    let wait_limit = args.claim.wait_limit();
    let mut patience = Patience::new(wait_limit.limit(), voice);
    let mut address = Address::of(&args.server)?;
    if args.holding.label.is_some() {
        address.config.label.clone_from(&args.holding.label);
    }
    let given = address.given.clone();
    let connection = tokio::select! {
        biased;
        signal = signals.next_ending() => return Ok(signals::status_of(signal)),
        connected = address.connect(registry, Purpose::Locking, &mut patience) => connected?,
    };
    let locks = connection.locks()?;
    let mut job = match Job::of(args, &locks)? {
        None => None,
        Some(mut job) => tokio::select! {
            biased;
            signal = signals.next_ending() => return Ok(signals::status_of(signal)),
            done = job.is_done(&mut patience) => if done? { return Ok(0) } else { Some(job) },
        },
    };
    let names = args.names();
    nested::check(&locks, &names, args.claim.mode()).await?;
    let request = ObtainRequest {
        names: &names,
        mode: args.claim.mode(),
        wait_limit,
        lock_delay: args.holding.lease.lock_delay,
        ttl: args.holding.lease.ttl,
        limits: args.holding.limits(),
        voice,
    };
    let not_obtained = tokio::select! {
        biased;
        signal = signals.next_ending() => Ok(signals::status_of(signal)),
        hold = obtain(&request, &locks, &mut patience, job.as_mut()) => match hold {
            Ok(held) => return under_lock(args, held, job.as_mut(), &given, &mut signals).await,
            Err(failure) => Err(not_obtained(args, failure)),
        },
    };
    // A claim that is released leaves its queue in the background. A process that ends at once would cut that
    // off, and the dead claim would block the queue until the server notices.
    if let Err(error) = locks.close_within(LAST_RELEASE).await {
        tracing::info!(error = format!("{error:#}"), "the claim is still being cleaned up");
    }
    not_obtained
}

fn check(args: &RunArgs) -> Result<(), Failure> {
    match args.at_least {
        Some(_) => Err(Failure::usage(
            "--at-least is gone: --once KEY runs a command once for a key, such as \"$(date +%F)\"",
        )),
        None => Ok(()),
    }
}

/// Obtains the locks, and writes that the attempt at a job begins. A lock that is lost before that is waited for
/// again. Returns since when they are held.
async fn obtain(
    request: &ObtainRequest<'_>,
    locks: &Locks,
    patience: &mut Patience,
    mut job: Option<&mut Job>,
) -> Result<(Hold, Instant), Failure> {
    loop {
        let hold = request.obtain(locks, patience).await?;
        let since = Instant::now();
        let Some(job) = &mut job else { return Ok((hold, since)) };
        let begun = job.begin(&hold).await;
        if let Ok(Ok(())) = begun {
            return Ok((hold, since));
        }
        release(hold).await;
        match begun {
            Ok(ended) => ended?,
            Err(error)
                if error.kind() == ErrorKind::Lost
                    && request.wait_limit != WaitLimit::No
                    && patience.left().is_none_or(|left| !left.is_zero()) => {}
            Err(error) => return Err(error.into()),
        }
        sleep(AFTER_LOSS).await;
    }
}

fn not_obtained(args: &RunArgs, mut failure: Failure) -> Failure {
    if failure.status == exit::NOT_OBTAINED {
        failure.status = args.exit_code_held;
        if args.holding.quiet {
            return Failure::silent(failure.status);
        }
    }
    failure
}

async fn under_lock(
    args: &RunArgs,
    (hold, since): (Hold, Instant),
    job: Option<&mut Job>,
    address: &str,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let (command, holding) = (&args.command, &args.holding);
    let pulse = Pulse::new();
    let (name, received) = (&args.name, Vec::new());
    let mut work = Work { command, name, holding, address, pulse, goes_on: false, job, received };
    let (status, hold) = match work.under(hold, since, signals).await? {
        Ended::Command(status, hold) => (status, hold),
        Ended::Lost(_) => return Ok(exit::LOST),
    };
    if status.success()
        && let Some(job) = work.job
    {
        return succeeded(args, hold, job, signals).await;
    }
    // Read before the release, which ends the validity.
    let held = hold.is_held();
    let cause = if held { None } else { work.cause(&hold) };
    if held
        && work.job.is_some()
        && !work.was_interrupted(status, signals).await
        && let Some(job) = work.job
    {
        job.failed(&hold).await;
    }
    if release(hold).await && held {
        args.holding.voice().tell(&format!("freed {:?} after {}", args.name, rounded(since.elapsed())));
        return Ok(exit::status_of_child(status));
    }
    Err(lost(&args.name, cause))
}

/// Records the success of a job, also after a loss of its own lock: the record says whether another has begun.
/// Nothing says that of its other locks. If one of them was lost, the next attempt is to do the work again.
async fn succeeded(args: &RunArgs, hold: Hold, job: &mut Job, signals: &mut Signals) -> Result<u8, Failure> {
    let (own, others) = hold.split(&args.name);
    let mut gone = None;
    for guard in others {
        let (name, held) = (guard.name().clone(), guard.is_held());
        if !release(Hold::One(guard)).await || !held {
            gone = Some(name);
        }
    }
    let own = own.map(Hold::One).ok_or_else(|| Failure::new(exit::SOFTWARE, "the lock is not held"))?;
    if let Some(name) = gone {
        release(own).await;
        return Err(lost(&name, None));
    }
    // A signal may be there already, since whoever ends a service ends its command, too.
    let is_asked_to_end = async {
        let signal = signals.next_ending().await;
        sleep(LAST_RECORD).await;
        signal
    };
    let written = tokio::select! {
        biased;
        written = job.succeeded(&own) => written,
        signal = is_asked_to_end => Err(job::unrecorded(&format!("{signal:?} came"))),
    };
    release(own).await;
    written.map(|()| 0)
}

fn lost(name: &LockName, cause: Option<String>) -> Failure {
    let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
    Failure::new(exit::LOST, format!("the lock {name:?} was lost while the command ran{cause}"))
}
