//! The scenarios.

use super::ground::{Kind, Memory};
use super::habit::Habit;
use super::scenario::{Crew, Expected, Scenario};
use super::schedule::{Draw, Fault, Way};

use Expected::{MayOverlap, Safe, Unavailable};

type Outcome = Result<Expected, &'static str>;

const NO_PROCESS: &str = "its workers are tasks of one process";
const NO_SERVER: &str = "there is no server";
const NOT_REDIS: &str = "there is no such command";
const NOT_SQL: &str = "there are no rows that others could lock";

fn safe_in_processes(kind: Kind) -> Outcome {
    if kind == Kind::Memory { Err(NO_PROCESS) } else { Ok(Safe) }
}

fn safe_with_server(kind: Kind) -> Outcome {
    if kind.has_server() { Ok(Safe) } else { Err(NO_SERVER) }
}

fn told(kind: Kind) -> Outcome {
    if kind.has_server() { Ok(Unavailable) } else { Err(NO_SERVER) }
}

/// Several nodes of which one is in trouble are safe and available; one that is alone is not available.
fn told_if_alone(kind: Kind) -> Outcome {
    match kind.nodes() {
        0 => Err(NO_SERVER),
        1 => Ok(Unavailable),
        _ => Ok(Safe),
    }
}

const QUICK: Scenario = Scenario {
    name: "",
    about: "",
    crew: Crew::USUAL,
    memory: Memory::Keeps,
    is_quick: true,
    draw: |_| (),
    expected: |_| Ok(Safe),
};

const LONG: Scenario = Scenario { is_quick: false, ..QUICK };

/// Holders for whom faults matter: they hold for more than a lease.
const HOLDERS: Crew = Crew { long: (60, 150), ..Crew::USUAL };

/// All scenarios.
pub(crate) const ALL: &[Scenario] = &[
    Scenario { name: "calm", about: "nothing happens to anybody", ..QUICK },
    Scenario {
        name: "holder-killed",
        about: "two workers of five are killed with SIGKILL while they hold and wait",
        crew: Crew { workers: 5, long: (60, 100), ..Crew::USUAL },
        draw: |draw| {
            let (first, second) = (draw.first(), draw.leases(70));
            draw.strike(first, Fault::KillWorker { worker: 0 });
            draw.strike(first + second, Fault::KillWorker { worker: 1 });
        },
        expected: safe_in_processes,
        ..QUICK
    },
    Scenario {
        name: "holder-stopped",
        about: "a worker is stopped with SIGSTOP for three leases, and goes on",
        crew: Crew { long: (60, 100), ..Crew::USUAL },
        draw: |draw| {
            let (at, worker, millis) = (draw.first(), draw.worker(), draw.leases(300));
            draw.strike(at, Fault::StopWorker { worker, millis });
        },
        expected: safe_in_processes,
        ..QUICK
    },
    Scenario {
        name: "pause-before-write",
        about: "workers are stopped for two leases between their look at the lock and their write",
        crew: Crew { habit: Habit::PausesBeforeWrite, all_modes: false, least: 9_000, ..Crew::USUAL },
        expected: |kind| if kind == Kind::Memory { Err(NO_PROCESS) } else { Ok(MayOverlap) },
        ..LONG
    },
    Scenario {
        name: "runtime-starved",
        about: "tasks block all threads of the runtime for 25 ms at a time",
        crew: Crew { habit: Habit::StarvesRuntime, long: (60, 130), least: 9_000, ..Crew::USUAL },
        ..LONG
    },
    Scenario {
        name: "runtime-not-driven",
        about: "guards are held for one and a half leases while nobody drives the runtime that they came from",
        crew: Crew { habit: Habit::LeavesRuntime, least: 9_000, ..Crew::USUAL },
        ..LONG
    },
    Scenario {
        name: "dropped-without-runtime",
        about: "guards are dropped after the end of the runtime that they came from",
        crew: Crew { habit: Habit::OutlivesRuntime, least: 9_000, ..Crew::USUAL },
        ..LONG
    },
    Scenario {
        name: "cancelled",
        about: "half of the requests are dropped after some polls, or after up to 5 ms",
        crew: Crew { cancelled: 50, impatient: 10, dropped: 40, ..Crew::USUAL },
        ..QUICK
    },
    Scenario {
        name: "waiters-500",
        about: "500 tasks of one process wait for one lock",
        crew: Crew {
            workers: 1,
            tasks: 500,
            locks: 1,
            all_modes: false,
            hold: 100,
            long: (0, 0),
            ..Crew::USUAL
        },
        ..LONG
    },
    Scenario {
        name: "processes-20",
        about: "20 processes want the same locks",
        crew: Crew { workers: 20, tasks: 2, ..Crew::USUAL },
        expected: safe_in_processes,
        ..LONG
    },
    Scenario {
        name: "server-paused",
        about: "the server, or one of three, is stopped with SIGSTOP for two and a half leases",
        crew: HOLDERS,
        draw: |draw| {
            let (at, node, millis) = (draw.first(), draw.node(), draw.leases(250));
            draw.strike(at, Fault::PauseServer { node, millis });
        },
        expected: told_if_alone,
        ..QUICK
    },
    Scenario {
        name: "server-restarted",
        about: "the server, or one of three, ends in good order and starts again at once",
        crew: HOLDERS,
        draw: |draw| {
            let (at, node) = (draw.first(), draw.node());
            draw.strike(at, Fault::RestartServer { node, millis: 0 });
        },
        expected: safe_with_server,
        ..QUICK
    },
    Scenario {
        name: "server-killed",
        about: "the server, or one of three, is killed with SIGKILL, and starts again two and a half leases later",
        crew: HOLDERS,
        draw: |draw| {
            let (at, node, millis) = (draw.first(), draw.node(), draw.leases(250));
            draw.strike(at, Fault::KillServer { node, millis });
        },
        expected: told_if_alone,
        ..LONG
    },
    Scenario {
        name: "all-servers-killed",
        about: "all servers are killed with SIGKILL at once, and start again two and a half leases later",
        crew: HOLDERS,
        draw: |draw| {
            let (at, millis) = (draw.first(), draw.leases(250));
            draw.strike(at, Fault::KillAll { millis });
        },
        expected: told,
        ..LONG
    },
    Scenario {
        name: "amnesia",
        about: "a server that keeps nothing is killed and starts again at once",
        crew: HOLDERS,
        memory: Memory::Forgets,
        draw: |draw| {
            let (at, node) = (draw.first(), draw.node());
            draw.strike(at, Fault::KillServer { node, millis: 0 });
        },
        expected: |kind| match kind {
            Kind::Redis => Ok(MayOverlap),
            Kind::Redlock3 => Ok(Safe),
            _ => Err("only Redis can be set to keep nothing"),
        },
        ..LONG
    },
    Scenario {
        name: "client-cut-off",
        about: "all that one client sends and is sent is lost for two and a half leases",
        crew: HOLDERS,
        draw: |draw| blackhole(draw, Way::Both),
        expected: told,
        ..QUICK
    },
    Scenario {
        name: "requests-lost",
        about: "all that one client sends is lost for two and a half leases",
        crew: HOLDERS,
        draw: |draw| blackhole(draw, Way::ToServer),
        expected: told,
        ..LONG
    },
    Scenario {
        name: "answers-lost",
        about: "all that one client is sent is lost for two and a half leases",
        crew: HOLDERS,
        draw: |draw| blackhole(draw, Way::ToClient),
        expected: told,
        ..LONG
    },
    Scenario {
        name: "client-flapping",
        about: "a client is cut off for 0.4 to 0.8 s, ten times, with breaks of 0.2 s",
        crew: HOLDERS,
        draw: |draw| {
            let (mut at, worker) = (draw.first(), draw.worker());
            for turn in 0..10 {
                let millis = draw.between(400, 800);
                let fault = match turn % 2 {
                    0 => Fault::Blackhole { worker, way: Way::Both, millis },
                    _ => Fault::Cut { worker, millis },
                };
                draw.strike(at, fault);
                at += millis + 200;
            }
        },
        expected: safe_with_server,
        ..LONG
    },
    Scenario {
        name: "slow-link",
        about: "each answer takes half a lease to one and a half leases to come",
        crew: HOLDERS,
        draw: |draw| {
            let mut at = draw.first();
            for _ in 0..3 {
                let (worker, millis) = (draw.worker(), draw.leases(150));
                let each_way = draw.between(draw.ttl / 4, draw.ttl * 3 / 4);
                draw.strike(at, Fault::Delay { worker, each_way, millis });
                at += millis + 300;
            }
        },
        expected: safe_with_server,
        ..LONG
    },
    Scenario {
        name: "replies-lost",
        about: "the reply to some request is lost, and its connection reset, 25 times",
        draw: |draw| {
            let mut at = draw.first();
            for _ in 0..25 {
                let (worker, request) = (draw.worker(), draw.between(1, 40));
                draw.strike(at, Fault::DropReply { worker, request, millis: 120 });
                at += 150;
            }
        },
        expected: safe_with_server,
        ..QUICK
    },
    Scenario {
        name: "late-copies",
        about: "what was sent on a connection that was given up arrives one and a half leases later",
        crew: HOLDERS,
        draw: |draw| {
            let mut at = draw.first();
            for _ in 0..2 {
                let (worker, millis) = (draw.worker(), draw.leases(150));
                draw.strike(at, Fault::HoldBack { worker, millis });
                at += millis + 500;
            }
        },
        expected: safe_with_server,
        ..LONG
    },
    Scenario {
        name: "sessions-killed",
        about: "the server ends the connections of all clients, eight times",
        draw: |draw| {
            let at = draw.first();
            for turn in 0..8 {
                let (node, late) = (draw.node(), draw.between(0, 100));
                draw.strike(at + turn * 300 + late, Fault::KillSessions { node });
            }
        },
        expected: |kind| match kind {
            _ if kind.is_zookeeper() => Err("the server has no such command"),
            _ => safe_with_server(kind),
        },
        ..LONG
    },
    Scenario {
        name: "force-release",
        about: "an operator frees locks under load, thirty times",
        crew: Crew { long: (60, 60), dropped: 0, cancelled: 0, all_modes: false, ..Crew::USUAL },
        draw: |draw| {
            let at = draw.first();
            for turn in 0..30 {
                let (lock, late) = (draw.lock(), draw.between(0, 80));
                draw.strike(at + turn * 120 + late, Fault::ForceRelease { lock });
            }
        },
        // Until it is told, the deprived holder considers itself the holder. Only such overlaps may be.
        ..QUICK
    },
    Scenario {
        name: "flush-all",
        about: "all keys of Redis, or of one node of three, are deleted, four times",
        crew: HOLDERS,
        draw: |draw| {
            let at = draw.first();
            for turn in 0..4 {
                let (node, late) = (draw.node(), draw.between(0, 100));
                draw.strike(at + turn * 700 + late, Fault::FlushAll { node });
            }
        },
        expected: |kind| if kind.is_redis() { Ok(MayOverlap) } else { Err(NOT_REDIS) },
        ..LONG
    },
    Scenario {
        name: "flush-scripts",
        about: "Redis forgets all scripts, twenty times",
        draw: |draw| {
            let at = draw.first();
            for turn in 0..20 {
                let (node, late) = (draw.node(), draw.between(0, 100));
                draw.strike(at + turn * 120 + late, Fault::FlushScripts { node });
            }
        },
        expected: |kind| if kind.is_redis() { Ok(Safe) } else { Err(NOT_REDIS) },
        ..LONG
    },
    Scenario {
        name: "rogue-transaction",
        about: "a transaction of somebody else has the rows of all locks locked for two leases",
        crew: HOLDERS,
        draw: |draw| {
            let (at, millis) = (draw.first(), draw.leases(200));
            draw.strike(at, Fault::Rogue { millis });
        },
        expected: |kind| if kind.is_sql_server() { Ok(Safe) } else { Err(NOT_SQL) },
        ..QUICK
    },
];

fn blackhole(draw: &mut Draw, way: Way) {
    let (at, worker, millis) = (draw.first(), draw.worker(), draw.leases(250));
    draw.strike(at, Fault::Blackhole { worker, way, millis });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same_schedule() {
        for scenario in ALL {
            for kind in Kind::ALL {
                let draw = |seed| scenario.schedule(seed, kind, 1500);
                assert_eq!(draw(7), draw(7), "{}", scenario.name);
                assert!(draw(7).is_empty() || draw(7) != draw(8), "{}", scenario.name);
            }
        }
    }

    #[test]
    fn names_are_unique_and_every_scenario_has_a_backend() {
        for (at, scenario) in ALL.iter().enumerate() {
            assert!(ALL[..at].iter().all(|other| other.name != scenario.name), "{}", scenario.name);
            assert!(Kind::ALL.into_iter().any(|kind| (scenario.expected)(kind).is_ok()), "{}", scenario.name);
        }
    }
}
