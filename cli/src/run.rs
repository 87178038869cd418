//! `lockwell run`: a command under a lock.

use std::process::ExitStatus;
use std::time::Duration;

use lockwell::{Error, ErrorKind, LockGuard, LockRequest, Locks, Loss, Mode};
use rustix::process::Signal;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::args::RunArgs;
use crate::child::Child;
use crate::connect::connect;
use crate::exit::{self, Failure};
use crate::signals::{self, Signals};

/// How long to try to free a lock that is lost, or to leave the queue.
const LAST_RELEASE: Duration = Duration::from_secs(1);

/// How a run under the lock ended.
enum Ended {
    /// The command ended, under the lock for all that is known.
    Child(ExitStatus),
    /// The lock was lost, and the command has been ended.
    Lost,
}

pub(crate) async fn run(args: &RunArgs) -> Result<u8, Failure> {
    let mut signals = Signals::listen()?;
    let patience = if args.no_wait { Some(Duration::ZERO) } else { args.wait };
    let (backend, config) = tokio::select! {
        biased;
        signal = signals.next_ending() => return Ok(signals::status_of(signal)),
        connected = connect(&args.server, args.label.as_deref(), patience) => connected?,
    };
    let locks = Locks::with_config(backend, &config)?;
    let not_obtained = tokio::select! {
        biased;
        signal = signals.next_ending() => Ok(signals::status_of(signal)),
        guard = obtain(&locks, args) => match guard {
            Ok(guard) => return under_lock(args, guard, &mut signals).await,
            Err(failure) => Err(failure),
        },
    };
    // A claim that is given up leaves its queue in the background. A process that ends at once would cut that off, and the
    // dead claim would hold up the queue until the server notices.
    if let Err(error) = locks.close_within(LAST_RELEASE).await {
        tracing::info!(error = format!("{error:#}"), "the claim is still being cleaned up");
    }
    not_obtained
}

/// Waits for the lock as the command line says.
async fn obtain(locks: &Locks, args: &RunArgs) -> Result<LockGuard, Failure> {
    let request = request(locks, args);
    if !args.no_wait {
        return Ok(request.await?);
    }
    request.try_now().await?.ok_or_else(|| {
        let held = Error::new(ErrorKind::Held, "").for_lock(&args.name);
        Failure::from(held.on_backend(locks.capabilities().backend))
    })
}

fn request(locks: &Locks, args: &RunArgs) -> LockRequest {
    let mut request = match args.mode() {
        Mode::Shared => locks.read(&args.name),
        Mode::Permit { limit } => locks.permit(&args.name, limit.get()),
        _ => locks.lock(&args.name),
    };
    if let Some(ttl) = args.ttl {
        request = request.ttl(ttl);
    }
    if let Some(wait) = args.wait {
        request = request.wait(wait);
    }
    if let Some(longest) = args.max_hold {
        request = request.max_hold(longest);
    }
    if let Some(rest) = args.lock_delay {
        request = request.lock_delay(rest);
    }
    request
}

/// Runs the command under the lock, and frees the lock.
async fn under_lock(args: &RunArgs, guard: LockGuard, signals: &mut Signals) -> Result<u8, Failure> {
    let mut child = match Child::start(&args.command, &guard) {
        Ok(child) => child,
        Err(error) => {
            release(guard).await;
            return Err(Failure::not_started(&args.command[0].to_string_lossy(), &error));
        }
    };
    let status = match supervise(&mut child, &guard, signals, args.grace).await? {
        Ended::Child(status) => status,
        Ended::Lost => {
            // The lease is over, or nearly. There is nothing to wait for if the server does not answer.
            drop(timeout(LAST_RELEASE, guard.release()).await);
            return Ok(exit::LOST);
        }
    };
    // Read before the release, which ends the belief.
    let held = guard.is_held();
    if release(guard).await && held {
        return Ok(exit::status_of_child(status));
    }
    Err(Failure::new(exit::LOST, format!("the lock {:?} was lost while the command ran", args.name)))
}

/// Frees the lock. False: it had been lost before.
async fn release(guard: LockGuard) -> bool {
    match guard.release().await {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::Lost => false,
        Err(error) => {
            // The command has done its work under the lock, so its status is what counts.
            crate::complain(&format!("{error:#}; the lock ends with its ttl"));
            true
        }
    }
}

/// Waits for the end of the command or of the lock, and passes signals on meanwhile.
async fn supervise(
    child: &mut Child,
    guard: &LockGuard,
    signals: &mut Signals,
    grace: Duration,
) -> Result<Ended, Failure> {
    loop {
        tokio::select! {
            biased;
            status = child.ended() => return Ok(Ended::Child(status?)),
            loss = guard.lost() => {
                report(guard, loss, grace);
                stop(child, signals, grace).await?;
                return Ok(Ended::Lost);
            }
            signal = signals.next() => pass_on(child, signal, || guard.is_held()),
        }
    }
}

fn report(guard: &LockGuard, loss: Loss, grace: Duration) {
    let why = match loss {
        Loss::Expired => "its lease ran out before it could be renewed",
        Loss::HeldTooLong => "it was held for as long as --max-hold allows",
        Loss::Taken => "the lock server says that another has it, or that it was freed by force",
        _ => "reason unknown",
    };
    let (name, grace) = (guard.name(), humantime::format_duration(grace));
    crate::complain(&format!("lost the lock {name:?}: {why}; the command gets TERM, and KILL after {grace}"));
}

fn pass_on(child: &Child, signal: Signal, may_go_on: impl FnOnce() -> bool) {
    match signal {
        // We stop together, or the command would go on while nobody renews the lease.
        Signal::TSTP => {
            child.pass_on(signal);
            signals::stop_self();
        }
        // After a long stop the lock may be gone. Then the command gets TERM before it goes on.
        Signal::CONT if !may_go_on() => (),
        _ => child.pass_on(signal),
    }
}

/// Ends the command and all that it has started: TERM, and KILL after the grace.
async fn stop(child: &mut Child, signals: &mut Signals, grace: Duration) -> Result<(), Failure> {
    let end = Instant::now().checked_add(grace);
    let over = async move {
        match end {
            Some(end) => sleep_until(end).await,
            None => std::future::pending().await,
        }
    };
    child.signal(Signal::TERM);
    // A process that is stopped takes TERM only when it goes on.
    child.signal(Signal::CONT);
    let all_gone = async {
        loop {
            tokio::select! {
                status = child.ended() => break status,
                signal = signals.next() => pass_on(child, signal, || true),
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
