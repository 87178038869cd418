//! `lockwell acquire`: a lock that outlives the command which takes it.

use std::time::Duration;

use lockwell::backend::{Claim, DistributedLock, Grant, Moment, Requirement, Wait, check_label};
use lockwell::{Error, ErrorKind, Locks, Operation, Registry};

use crate::args::AcquireArgs;
use crate::connect::{Address, Connection, Purpose};
use crate::exit::{self, Failure, NOT_OBTAINED};
use crate::json::{self, AcquiredReport, SCHEMA_VERSION};
use crate::obtain::{WaitLimit, explain};
use crate::patience::{Patience, may_pass};
use crate::say::Voice;
use crate::signals::{self, Signals};
use crate::{handle, nested};

/// How long to try to release a claim that failed.
const LAST_RELEASE: Duration = Duration::from_secs(1);

pub(crate) async fn acquire(registry: &Registry, args: &AcquireArgs) -> Result<u8, Failure> {
    let mut signals = Signals::listen()?;
    let voice = if args.quiet { Voice::Quiet } else { Voice::Usual };
    let wait_limit = args.claim.wait_limit();
    let mut patience = Patience::new(wait_limit.limit(), voice);
    let mut address = Address::of(&args.server)?;
    if args.label.is_some() {
        address.config.label.clone_from(&args.label);
    }
    let connection = tokio::select! {
        biased;
        signal = signals.next_ending() => return Ok(signals::status_of(signal)),
        connected = address.connect(registry, Purpose::Locking, &mut patience) => connected?,
    };
    let locks = connection.locks()?;
    check(args, &locks, connection.config.label.as_deref())?;
    nested::check(&locks, std::slice::from_ref(&args.name), args.claim.mode()).await?;
    let (claim, obtained) = loop {
        let claim = claim(args, &connection, wait_limit, patience.left());
        let obtained = obtain(&*connection.backend, &claim, &mut signals).await;
        match obtained {
            // The claim has been released, as far as the server could be reached. The next one is another.
            Err(error) if may_pass(&error) => {
                let failure = decorated(error, args, &locks);
                tokio::select! {
                    biased;
                    signal = signals.next_ending() => return Ok(signals::status_of(signal)),
                    again = patience.after(failure) => again?,
                }
            }
            obtained => break (claim, obtained),
        }
    };
    match obtained {
        Ok(Obtained::Grant(grant)) => match print(args, &grant) {
            Ok(true) => Ok(0),
            unread => {
                // Nobody has the handle, so nobody could release the lock.
                release_claim(&*connection.backend, &claim).await;
                unread.map(|_| exit::SOFTWARE)
            }
        },
        Ok(Obtained::Interrupted(status)) => Ok(status),
        Ok(Obtained::Nothing) => {
            let error = Error::new(ErrorKind::Held, "").for_lock(&args.name);
            let failure = explain(error, std::slice::from_ref(&args.name), wait_limit, &locks).await;
            Err(if args.quiet { Failure::silent(NOT_OBTAINED) } else { failure })
        }
        Err(error) => {
            let failure = Failure::from(decorated(error, args, &locks));
            let is_quiet = args.quiet && failure.status == NOT_OBTAINED;
            Err(if is_quiet { Failure::silent(NOT_OBTAINED) } else { failure })
        }
    }
}

fn decorated(error: Error, args: &AcquireArgs, locks: &Locks) -> Error {
    let backend = locks.capabilities().backend();
    error.during(Operation::Acquire).for_lock(&args.name).on_backend(backend)
}

/// Refuses what cannot be honoured, before a lock is taken.
fn check(args: &AcquireArgs, locks: &Locks, label: Option<&str>) -> Result<(), Failure> {
    let promised = locks.capabilities();
    if promised.is_session_bound() {
        return Err(Failure::usage(format!(
            "a lock on {} lives on a session and ends with lockwell: use lockwell run, or another backend",
            promised.backend()
        )));
    }
    // The checks that the library does for its own requests.
    let (least, most) = (promised.min_ttl(), promised.max_ttl());
    if args.span < least || args.span > most {
        let [least, most] = [least, most].map(humantime::format_duration);
        return Err(Failure::usage(format!("--for must be between {least} and {most}")));
    }
    if (args.claim.read && !promised.promises(Requirement::Shared))
        || (args.claim.permits.is_some() && !promised.promises(Requirement::Permits))
    {
        return Err(Failure::usage(format!("{} has no locks of this mode", promised.backend())));
    }
    label.map_or(Ok(()), check_label).map_err(|error| Failure::usage(error.to_string()))
}

/// `left`: what is left of the wait.
fn claim(
    args: &AcquireArgs,
    connection: &Connection,
    wait_limit: WaitLimit,
    left: Option<Duration>,
) -> Claim {
    let mode = args.claim.mode();
    let wait = match (wait_limit, left) {
        (WaitLimit::No, _) | (_, Some(Duration::ZERO)) => Wait::No,
        (_, Some(left)) => Wait::Until(Moment::now().after(left)),
        (_, None) => Wait::Forever,
    };
    let label = connection.config.label.clone().unwrap_or_else(|| {
        // The process ends at once: the host is what matters.
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        format!("{host}:{}", std::process::id())
    });
    Claim::new(args.name.clone(), mode, args.span, wait, label.into())
}

enum Obtained {
    Grant(Grant),
    Nothing,
    /// With the exit status.
    Interrupted(u8),
}

/// Takes the lock, or leaves nothing behind.
async fn obtain(
    backend: &dyn DistributedLock,
    claim: &Claim,
    signals: &mut Signals,
) -> Result<Obtained, Error> {
    let mut interrupted = None;
    // The future of an acquire is never dropped half-way: a signal cancels the claim, and the answer gives
    // the outcome.
    let mut acquiring = backend.acquire(claim);
    let answer = loop {
        tokio::select! {
            answer = &mut acquiring => break answer,
            signal = signals.next_ending(), if interrupted.is_none() => {
                interrupted = Some(signal);
                claim.cancel();
            }
        }
    };
    drop(acquiring);
    let answer = match (answer, interrupted) {
        // A grant whose lease has ended on its way does not count.
        (Ok(Some(grant)), None) if !grant.deadline().has_passed() => return Ok(Obtained::Grant(grant)),
        (Ok(None), None) if !claim.may_be_queued() && claim.in_doubt_until().is_none() => {
            return Ok(Obtained::Nothing);
        }
        (Err(error), None) => Err(error),
        (_, None) => Ok(Obtained::Nothing),
        (_, Some(signal)) => Ok(Obtained::Interrupted(signals::status_of(signal))),
    };
    // If the release fails, the claim ends with its lease, or loses its place in the queue.
    release_claim(backend, claim).await;
    answer
}

async fn release_claim(backend: &dyn DistributedLock, claim: &Claim) {
    match tokio::time::timeout(LAST_RELEASE, backend.release(claim)).await {
        Ok(Ok(_)) => (),
        Ok(Err(error)) => tracing::info!(error = format!("{error:#}"), "the claim is not released"),
        Err(_) => tracing::info!("the claim is not released: no answer"),
    }
}

/// False if the output is closed.
fn print(args: &AcquireArgs, grant: &Grant) -> Result<bool, Failure> {
    let handle = handle::write(grant.claim(), grant.token());
    let text = if args.json {
        json::pretty(&AcquiredReport {
            schema_version: SCHEMA_VERSION,
            handle: &handle,
            name: args.name.as_str(),
            token: grant.token().get(),
            ttl_ms: json::millis(args.span),
        })?
    } else {
        handle + "\n"
    };
    json::print(&text)
}
