//! `lockwell lead`: a command that runs on the leader.

use std::time::Duration;

use lockwell::{Error, Mode, Registry};
use tokio::time::{Instant, sleep};

use crate::args::LeadArgs;
use crate::connect::{Address, Purpose};
use crate::exit::{self, Failure};
use crate::obtain::{ObtainRequest, WaitLimit};
use crate::patience::Patience;
use crate::pulse::Pulse;
use crate::signals::{self, Signals};
use crate::supervise::{Ended, Work, release};
use crate::{nested, program, say, systemd};

/// How long to try to leave the queue.
const LAST_RELEASE: Duration = Duration::from_secs(1);

/// The pause after a campaign that failed in a way that may pass.
const PAUSE: Duration = Duration::from_secs(2);

pub(crate) async fn lead(registry: &Registry, args: &LeadArgs) -> Result<u8, Failure> {
    // As for `run`.
    say::never_block()?;
    program::check(&args.command[0])?;
    let mut signals = Signals::listen()?;
    let voice = args.holding.voice();
    let mut address = Address::of(&args.server)?;
    if args.holding.label.is_some() {
        address.config.label.clone_from(&args.holding.label);
    }
    let given = address.given.clone();
    let mut patience = Patience::none(voice);
    let connection = tokio::select! {
        biased;
        signal = signals.next_ending() => return Ok(signals::status_of(signal)),
        connected = address.connect(registry, Purpose::Locking, &mut patience) => connected?,
    };
    let locks = connection.locks()?;
    let names = [args.name.clone()];
    nested::check(&locks, &names, Mode::Exclusive).await?;
    let holding = &args.holding;
    let request = ObtainRequest {
        names: &names,
        mode: Mode::Exclusive,
        wait_limit: WaitLimit::Forever,
        lock_delay: holding.lease.lock_delay,
        ttl: holding.lease.ttl,
        limits: holding.limits(),
        voice,
    };
    let (command, pulse) = (&args.command, Pulse::new());
    let mut work = Work {
        command,
        name: &args.name,
        holding,
        address: &given,
        pulse,
        goes_on: true,
        job: None,
        received: Vec::new(),
    };
    systemd::tell(&format!("STATUS=waiting to lead {:?}", args.name)).await;
    let end = loop {
        let hold = tokio::select! {
            biased;
            signal = signals.next_ending() => break Ok(signals::status_of(signal)),
            hold = request.obtain_once(&locks, None) => hold,
        };
        let hold = match hold {
            Ok(hold) => hold,
            Err(error) if error.is_retryable() => {
                voice.warn(&again(&error));
                tokio::select! {
                    signal = signals.next_ending() => break Ok(signals::status_of(signal)),
                    () = sleep(PAUSE) => continue,
                }
            }
            Err(error) => break Err(error.into()),
        };
        let (token, since) = (hold.guards()[0].token(), Instant::now());
        systemd::tell(&format!("READY=1\nSTATUS=leading {:?} with token {token}", args.name)).await;
        match work.under(hold, since, &mut signals).await? {
            Ended::Command(status, hold) => {
                // The command ended while leading. A loss after its end does not matter.
                if !hold.is_held() {
                    release(hold).await;
                    break Err(Failure::new(exit::LOST, "the leadership was lost while the command ended"));
                }
                release(hold).await;
                break Ok(exit::status_of_child(status));
            }
            Ended::Lost(Some(signal)) => break Ok(signals::status_of(signal)),
            Ended::Lost(None) => {
                systemd::tell(&format!("STATUS=lost; waiting to lead {:?}", args.name)).await;
                voice.tell("leadership was lost; campaigning again");
            }
        }
    };
    systemd::tell("STOPPING=1").await;
    // As for `run`: a claim that is released leaves its queue.
    if let Err(error) = locks.close_within(LAST_RELEASE).await {
        tracing::info!(error = format!("{error:#}"), "the claim is still being cleaned up");
    }
    end
}

fn again(error: &Error) -> String {
    format!("{error:#}; trying again")
}
