//! `lockwell run`: a command under a lock.

use std::time::Duration;

use lockwell::{LockConfig, Locks, Registry};
use tokio::time::{Instant, sleep_until};

use crate::args::RunArgs;
use crate::connect::{Address, Purpose};
use crate::exit::{self, Failure};
use crate::hold::Hold;
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
    refuse_at_least(args, &locks)?;
    let (names, lock_delay) = (args.names(), lock_delay(args, &connection.config));
    nested::check(&locks, &names, args.claim.mode()).await?;
    let request = ObtainRequest {
        names: &names,
        mode: args.claim.mode(),
        wait_limit,
        lock_delay,
        ttl: args.holding.lease.ttl,
        limits: args.holding.limits(),
        voice,
    };
    let not_obtained = tokio::select! {
        biased;
        signal = signals.next_ending() => Ok(signals::status_of(signal)),
        hold = request.obtain(&locks, &mut patience) => match hold {
            Ok(hold) => return under_lock(args, hold, &given, &mut signals).await,
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

/// Refuses options that contradict each other.
fn check(args: &RunArgs) -> Result<(), Failure> {
    match (args.at_least, args.holding.max_hold) {
        (Some(least), Some(most)) if least > most => {
            Err(Failure::usage("--at-least is longer than --max-hold"))
        }
        _ => Ok(()),
    }
}

fn refuse_at_least(args: &RunArgs, locks: &Locks) -> Result<(), Failure> {
    let promised = locks.capabilities();
    if args.at_least.is_some() && promised.is_session_bound() {
        let text = format!(
            "--at-least cannot be kept on {}: a lock there ends with lockwell's session; use another backend, or a command \
             that lasts for that time",
            promised.backend()
        );
        return Err(Failure::usage(text));
    }
    Ok(())
}

/// The lock delay after a crash: the option, or what `--at-least` needs beyond the ttl. A crash comes after
/// the lock was obtained, and so does the renewal that it lives on.
fn lock_delay(args: &RunArgs, config: &LockConfig) -> Option<Duration> {
    let holding = &args.holding;
    let ttl = holding.lease.ttl.or(config.ttl).unwrap_or(lockwell::DEFAULT_TTL);
    let least = args.at_least.map(|least| least.saturating_sub(ttl));
    holding.lease.lock_delay.max(least.filter(|least| !least.is_zero()))
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

async fn under_lock(args: &RunArgs, hold: Hold, address: &str, signals: &mut Signals) -> Result<u8, Failure> {
    let began = Instant::now();
    let (command, holding) = (&args.command, &args.holding);
    let pulse = Pulse::new();
    let mut work = Work { command, name: &args.name, holding, address, pulse, goes_on: false };
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
    if !held {
        let cause = work.cause(&hold);
        release(hold).await;
        return Err(lost(cause));
    }
    if let Some(end) = args.at_least.and_then(|least| began.checked_add(least)) {
        // The work was done under the lock. A failure in the rest of the time does not count.
        keep(args, hold, end, signals).await;
        return Ok(exit::status_of_child(status));
    }
    if release(hold).await {
        args.holding.voice().tell(&format!("freed {:?} after {}", args.name, rounded(began.elapsed())));
        return Ok(exit::status_of_child(status));
    }
    Err(lost(None))
}

/// Keeps the lock until its least time is over. If this process is killed before that, the lock stays until
/// the end of its lease, which lasts for the rest of the time at least.
async fn keep(args: &RunArgs, hold: Hold, end: Instant, signals: &mut Signals) {
    let voice = args.holding.voice();
    let left = end.saturating_duration_since(Instant::now());
    if !left.is_zero() {
        voice.tell(&format!("the command has ended; {:?} is kept for another {}", args.name, rounded(left)));
    }
    tokio::select! {
        biased;
        () = sleep_until(end) => drop(release(hold).await),
        _ = signals.next_ending() => {
            voice.tell("the lock is left to its lease");
            hold.leave();
        }
        (name, _) = hold.lost() => {
            voice.warn(&format!("the lock {name:?} was lost before the time of --at-least; the command had ended"));
        }
    }
}
