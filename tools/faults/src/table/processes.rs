//! What happens to the processes of clients.

use crate::kind::{Kind, Setup};
use crate::plan::Crew;
use crate::scenario::Expected::{MayLose, MayOverlap, Safe};
use crate::scenario::Scenario;
use crate::schedule::Fault;
use crate::table::expected::{LONG, LONG_OF_HOLDERS, safe_in_processes, safe_on_line};

pub(super) const ALL: &[Scenario] = &[
    Scenario { name: "calm", about: "nothing happens to anybody", ..LONG },
    Scenario {
        name: "holder-killed",
        about: "two workers of five are killed with SIGKILL while they hold and wait",
        crew: Crew { workers: 5, long: (60, 100), ..Crew::USUAL },
        draw: |draw| {
            let (first, second) = (draw.first(), draw.leases(70));
            draw.fault(first, Fault::KillWorker { worker: 0 });
            draw.fault(first + second, Fault::KillWorker { worker: 1 });
        },
        expected: safe_in_processes,
        ..LONG
    },
    Scenario {
        name: "job-holder-killed",
        about: "four hosts run eight jobs once for each of many keys; one of them is killed with SIGKILL and starts again, twelve times",
        crew: Crew { workers: 4, tasks: 8, locks: 4, hold: 500_000, jobs: true, ..Crew::USUAL },
        draw: |draw| {
            let mut at = draw.first();
            for _ in 0..12 {
                let (worker, millis) = (draw.worker(), draw.between(0, 400));
                draw.fault(at, Fault::CrashWorker { worker, millis });
                at += draw.between(700, 2_000);
            }
        },
        expected: |kind| (kind != Kind::Memory && kind.has_records()).then_some(Safe),
        ..LONG
    },
    Scenario {
        name: "killed-in-requests",
        about: "seven workers of eight, which hold for moments only, are killed one after the other, most of them in a request",
        crew: Crew { workers: 8, tasks: 6, long: (0, 0), cancelled: 0, ..Crew::USUAL },
        draw: |draw| {
            let mut at = draw.first();
            for worker in 0..7 {
                draw.fault(at, Fault::KillWorker { worker });
                at += draw.between(150, 450);
            }
        },
        expected: safe_in_processes,
        ..LONG
    },
    Scenario {
        name: "holder-stopped",
        about: "a worker is stopped with SIGSTOP for three leases, and goes on",
        crew: Crew { long: (60, 100), ..Crew::USUAL },
        draw: |draw| draw.at_worker(300, |worker, millis| Fault::StopWorker { worker, millis }),
        expected: safe_in_processes,
        ..LONG
    },
    Scenario {
        name: "stale-owner",
        about: "what a worker has sent is kept; it is stopped with SIGSTOP for two leases, its requests arrive, and it goes on",
        draw: |draw| {
            let (at, worker, millis) = (draw.first(), draw.worker(), draw.leases(200));
            draw.fault(at, Fault::HoldBack { worker, millis });
            // Long enough that it has sent something: each holder renews its lease after a third of it.
            draw.fault(at + 400, Fault::StopWorker { worker, millis: millis + 300 });
        },
        expected: safe_on_line,
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "pause-before-write",
        about: "workers are stopped for two leases between their look at the lock and their write",
        crew: Crew { pauses: true, all_modes: false, least: 9_000, ..Crew::USUAL },
        expected: |kind| (kind != Kind::Memory).then_some(MayLose),
        ..LONG
    },
    Scenario {
        name: "processes-50",
        about: "50 processes want the same locks",
        crew: Crew { workers: 50, tasks: 1, long: (0, 0), least: 8_000, ..Crew::USUAL },
        expected: safe_in_processes,
        ..LONG
    },
    Scenario {
        name: "client-clock",
        about: "the wall clocks of workers are an hour ahead, then an hour behind, then right, again and again",
        setup: Setup::Clocks,
        draw: |draw| {
            let mut at = draw.first();
            for turn in 0..6 {
                let (worker, millis) = (draw.worker(), draw.leases(40));
                let by = if turn % 2 == 0 { 3_600_000 } else { -3_600_000 };
                draw.fault(at, Fault::StepWorkerClock { worker, by, millis });
                at += millis + 100;
            }
        },
        expected: |kind| match kind {
            Kind::Memory => None,
            // Its leases go by the clock of the host, which the workers do not agree on.
            Kind::Sqlite => Some(MayOverlap),
            _ => Some(Safe),
        },
        ..LONG_OF_HOLDERS
    },
];
