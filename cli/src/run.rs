//! `lockwell run`: a command under a lock.

use std::time::Duration;

use lockwell::Registry;
use tokio::time::Instant;

use crate::args::RunArgs;
use crate::connect::{Address, Purpose};
use crate::exit::{self, Failure};
use crate::hold::Hold;
use crate::job::{self, Job};
use crate::obtain::ObtainRequest;
use crate::patience::Patience;
use crate::pulse::Pulse;
use crate::say::rounded;
use crate::signals::{self, Signals};
use crate::supervise::{Ended, Work, release};
use crate::{nested, program, say};

/// How long to try to leave the queue.
const LAST_RELEASE: Duration = Duration::from_secs(1);

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
        hold = request.obtain(&locks, &mut patience) => match hold {
            Ok(hold) => return under_lock(args, hold, job.as_mut(), &given, &mut signals).await,
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
    hold: Hold,
    mut job: Option<&mut Job>,
    address: &str,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let began = Instant::now();
    if let Some(job) = &mut job {
        match job.begin(&hold).await {
            Ok(None) => (),
            ended => {
                release(hold).await;
                return match ended? {
                    Some(failure) if failure.status == 0 => Ok(0),
                    Some(failure) if failure.status == exit::GIVEN_UP => Err(failure),
                    Some(failure) => Err(not_obtained(args, failure)),
                    None => Ok(0),
                };
            }
        }
    }
    let (command, holding) = (&args.command, &args.holding);
    let pulse = Pulse::new();
    let mut work =
        Work { command, name: &args.name, holding, address, pulse, goes_on: false, job, asked: false };
    let (status, hold) = match work.under(hold, signals).await? {
        Ended::Command(status, hold) => (status, hold),
        Ended::Lost(_) => return Ok(exit::LOST),
    };
    // Read before the release, which ends the validity.
    let held = hold.is_held();
    let lost = |cause: Option<String>| {
        let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
        Failure::new(exit::LOST, format!("the lock {:?} was lost while the command ran{cause}", args.name))
    };
    let cause = if held { None } else { work.cause(&hold) };
    if let Some(job) = work.job {
        // A success is written even after a loss.
        if status.success() {
            let written = tokio::select! {
                biased;
                written = job.succeeded(&hold) => written,
                signal = signals.next_ending() => Err(job::unrecorded(&format!("{signal:?} came"))),
            };
            release(hold).await;
            return written.map(|()| 0);
        }
        if held && !work.asked && !job::was_stopped(status) {
            job.failed(&hold).await;
        }
    }
    if !held {
        release(hold).await;
        return Err(lost(cause));
    }
    if release(hold).await {
        args.holding.voice().tell(&format!("freed {:?} after {}", args.name, rounded(began.elapsed())));
        return Ok(exit::status_of_child(status));
    }
    Err(lost(None))
}
