//! Guards that outlive the runtime that they came from, or are left alone by it.

use std::time::Duration;

use lockwell::{ErrorKind, LeaseState, Locks, Loss, Mode};
use tokio::runtime::{Builder, Runtime};

use super::history::{Ask, End, Hold, Journal, TIMED_OUT, Who};
use crate::error::Result;
use crate::plan::{Misuse, Until, Work};
use crate::time::nanos;

/// The number of the task under which they are noted.
const TASK: u32 = 1_000_000;

/// Takes the locks of this worker in turn, each on a runtime of its own, until then. Blocks.
pub(super) fn run(locks: &Locks, work: &Work, journal: &Journal, until: &Until) -> Result<()> {
    let who = Who { worker: work.worker, task: TASK };
    let mut turn = 0;
    while !until.is_over() {
        let lock = turn % work.crew.locks;
        turn += 1;
        // Mutexes only.
        if work.modes[lock as usize % work.modes.len()] != [0] {
            continue;
        }
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let ask = Ask { who, lock, mode: Mode::Exclusive, asked: nanos() };
        let request = locks.lock(work.name(lock)).ttl(work.ttl()).wait(Duration::from_micros(work.wait));
        let guard = match runtime.block_on(request.into_future()) {
            Ok(guard) => guard,
            Err(error) => {
                let why = match error.kind() {
                    ErrorKind::TimedOut => TIMED_OUT.to_owned(),
                    kind => format!("{kind:?}"),
                };
                journal.missed(&ask, nanos(), &why);
                continue;
            }
        };
        let from = nanos();
        let token = guard.token().get();
        journal.granted(&ask, from, token);
        let mut hold =
            Hold { ask, token, from, until: from, end: End::Dropped, called: 0, answered: 0, told_late: 0 };
        let look = |hold: &mut Hold| {
            let now = nanos();
            if guard.is_held() {
                hold.until = now;
            }
            guard.is_held()
        };
        // Without this, one that is lost meanwhile would never have been valid.
        look(&mut hold);
        let lost = || match guard.lease_state() {
            LeaseState::Lost(Loss::Taken) => End::Taken,
            _ => End::Expired,
        };
        if work.crew.misuse == Misuse::LeavesRuntime {
            // The keeper renews it, whatever this runtime does.
            std::thread::sleep(work.ttl() * 3 / 2);
            if !look(&mut hold) {
                hold.end = lost();
            }
            hold.called = nanos();
            drop(guard);
            end(runtime);
        } else {
            end(runtime);
            if !look(&mut hold) {
                hold.end = lost();
            }
            hold.called = nanos();
            drop(guard);
        }
        hold.answered = nanos();
        journal.ended(&hold);
        std::thread::sleep(work.ttl() / 4);
    }
    Ok(())
}

fn end(runtime: Runtime) {
    runtime.shutdown_background();
}
