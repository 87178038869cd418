//! Faults at random that every backend is to survive: safe, but for the time in which nobody can reach it.

use crate::kind::Kind;
use crate::plan::Crew;
use crate::scenario::Scenario;
use crate::schedule::{Draw, Fault, FaultTarget, Way};
use crate::table::expected::{LONG, safe_in_processes};
use crate::time::millis;

pub(crate) const SOAK: Scenario = Scenario {
    name: "soak",
    about: "two to six faults of any kind are drawn at random, others with each seed",
    crew: Crew { workers: 4, long: (60, 130), ..Crew::USUAL },
    draw,
    expected: safe_in_processes,
    ..LONG
};

/// Workers with this number and above are not killed: somebody must be left.
const KILLED_BELOW: u32 = 2;

/// Between two faults that happen to the same.
const BREAK: u64 = 300;

/// Draws one fault.
type Pick = fn(&mut Draw) -> Fault;

fn kill_worker(draw: &mut Draw) -> Fault {
    Fault::KillWorker { worker: u32::try_from(draw.between(0, u64::from(KILLED_BELOW))).unwrap_or(0) }
}

fn way(draw: &mut Draw) -> Way {
    [Way::ToServer, Way::ToClient, Way::Both][usize::try_from(draw.between(0, 3)).unwrap_or(0)]
}

/// From a moment to two and a half leases.
fn length(draw: &mut Draw) -> u64 {
    draw.between(100, draw.ttl * 5 / 2)
}

const OF_PROCESSES: [Pick; 2] =
    [kill_worker, |draw| Fault::StopWorker { worker: draw.worker(), millis: length(draw) }];

const OF_LINES: [Pick; 7] = [
    |draw| Fault::Blackhole { worker: draw.worker(), way: way(draw), millis: length(draw) },
    |draw| Fault::Cut { worker: draw.worker(), millis: length(draw) },
    |draw| Fault::Reset { worker: draw.worker() },
    |draw| Fault::Delay { worker: draw.worker(), each_way: draw.between(5, 900), millis: length(draw) },
    |draw| Fault::Hold { worker: draw.worker(), way: way(draw), millis: length(draw) },
    |draw| Fault::DropReply { worker: draw.worker(), request: draw.between(1, 40), millis: 200 },
    |draw| Fault::HoldBack { worker: draw.worker(), millis: length(draw) },
];

const OF_SERVERS: [Pick; 4] = [
    |draw| Fault::PauseServer { node: draw.node(), millis: length(draw) },
    |draw| Fault::RestartServer { node: draw.node(), millis: draw.between(0, 500) },
    |draw| Fault::KillServer { node: draw.node(), millis: length(draw) },
    |draw| Fault::KillAll { millis: length(draw) },
];

/// What may happen to this backend. An operator is left out: whoever is deprived of a lock while it cannot be
/// told considers itself the holder until its lease ends, and no backend can help that.
fn menu(kind: Kind) -> Vec<Pick> {
    let mut menu: Vec<Pick> = Vec::new();
    let mut add = |is_possible: bool, some: &[Pick]| {
        if is_possible {
            menu.extend(some);
        }
    };
    add(kind != Kind::Memory, &OF_PROCESSES);
    add(kind.has_lines(), &OF_LINES);
    // Behind sentinels another server takes over, which need not know the last grants.
    add(kind.has_lines(), &OF_SERVERS);
    add(kind.nodes() == 3, &[|draw| Fault::LoseNode { node: draw.node(), millis: length(draw) }]);
    add(kind.is_sql_server(), &[|draw| Fault::Rogue { millis: length(draw) }]);
    let has_sessions = kind.is_sql_server() || kind.is_redis();
    add(has_sessions, &[|draw| Fault::KillSessions { node: draw.node() }]);
    let listens = kind == Kind::Postgres || kind.is_redis();
    add(listens, &[|draw| Fault::KillListeners { node: draw.node() }]);
    add(kind.is_redis(), &[|draw| Fault::FlushScripts { node: draw.node() }]);
    add(kind == Kind::Sqlite, &[|draw| Fault::LongReader { millis: length(draw) }]);
    menu
}

/// To whom it happens: a worker, or the servers, whose number is behind those of the workers. A node that
/// nobody reaches is a fault of the connections of all workers.
fn targets(fault: Fault, servers: usize) -> std::ops::RangeInclusive<usize> {
    match (fault, fault.target()) {
        (Fault::LoseNode { .. }, _) => 0..=servers,
        (_, FaultTarget::Worker(worker)) => worker as usize..=worker as usize,
        _ => servers..=servers,
    }
}

/// Faults of one worker, and those of servers and their data, come one after the other; others meet.
fn draw(draw: &mut Draw) {
    let menu = menu(draw.kind);
    if menu.is_empty() {
        return;
    }
    let first = draw.first();
    // When the next may begin: of each worker, and last of the servers. Never of a worker that is dead.
    let servers = draw.workers as usize;
    let mut free: Vec<Option<u64>> = (0..=draw.workers).map(|_| Some(first)).collect();
    for _ in 0..draw.between(2, 7) {
        let pick = draw.between(0, u64::try_from(menu.len()).unwrap_or(1));
        let fault = menu[usize::try_from(pick).unwrap_or(0)](draw);
        let late = draw.between(0, 1_500);
        let targets = targets(fault, servers);
        let Some(from) = targets.clone().filter_map(|target| free[target]).max() else { continue };
        let at = from + late;
        let next = at + millis(fault.length()) + BREAK;
        let is_alive = !matches!(fault, Fault::KillWorker { .. });
        for target in targets {
            free[target] = free[target].and(is_alive.then_some(next));
        }
        draw.fault(at, fault);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection cannot be healed from one fault while it has another, and a server that was killed cannot
    /// be paused.
    #[test]
    fn what_happens_to_one_target_comes_one_after_the_other() {
        let mut kinds_of_faults = std::collections::BTreeSet::new();
        let servers = SOAK.crew.workers as usize;
        for seed in 0..300 {
            for kind in Kind::ALL {
                let drawn = SOAK.schedule(seed, kind, 1500);
                for (number, one) in drawn.iter().enumerate() {
                    kinds_of_faults.insert(one.fault.words());
                    let end = one.at + millis(one.fault.length());
                    let meet = |one: Fault, other: Fault| {
                        let (these, those) = (targets(one, servers), targets(other, servers));
                        // A node that nobody reaches is nothing to a dead worker.
                        let is_dead_and_node = matches!(
                            (one, other),
                            (Fault::KillWorker { .. }, Fault::LoseNode { .. })
                                | (Fault::LoseNode { .. }, Fault::KillWorker { .. })
                        );
                        these.start() <= those.end() && those.start() <= these.end() && !is_dead_and_node
                    };
                    for other in &drawn[number + 1..] {
                        if meet(one.fault, other.fault) {
                            assert!(other.at > end, "{kind:?} {seed}: {one:?} and {other:?}");
                            let is_dead = matches!(one.fault, Fault::KillWorker { .. });
                            assert!(!is_dead, "{kind:?} {seed}: {other:?} of a dead worker");
                        }
                    }
                    if let Fault::KillWorker { worker } = one.fault {
                        assert!(worker < KILLED_BELOW);
                    }
                }
            }
        }
        assert!(kinds_of_faults.len() >= 16, "{kinds_of_faults:?}");
    }
}
