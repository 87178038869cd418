//! What is expected of the backends, and what happens to them, as several scenarios have it.

use Expected::{MayOverlap, Safe, Unavailable};

use crate::kind::{Kind, Memory, Setup};
use crate::plan::Crew;
use crate::scenario::{Expected, Scenario};
use crate::schedule::{Draw, Fault};

pub(super) type ByBackend = Result<Expected, &'static str>;

pub(super) const NO_PROCESS: &str = "its workers are tasks of one process";
pub(super) const NO_SERVER: &str = "there is no server";
pub(super) const NO_LINE: &str = "clients find the servers by themselves, past anything in between";
pub(super) const NO_CLOCK: &str = "the servers of such a group cannot be given clocks of their own here";
pub(super) const NOT_REDIS: &str = "there is no such command";
pub(super) const NOT_SQL: &str = "there are no rows that others could lock";
pub(super) const NOT_SQLITE: &str = "there is no file that others could open";
pub(super) const ONE_NODE: &str = "there are no other servers";
pub(super) const NOT_CLUSTER: &str = "it has no slots, and no cluster of it is started here";
pub(super) const NO_SENTINEL: &str = "no sentinels watch it";
pub(super) const NO_LEADER: &str = "no server leads";

pub(super) fn safe_in_processes(kind: Kind) -> ByBackend {
    if kind == Kind::Memory { Err(NO_PROCESS) } else { Ok(Safe) }
}

/// Behind sentinels another server may take over, which need not know the last grants.
pub(super) fn or_moved(kind: Kind, otherwise: Expected) -> ByBackend {
    match kind {
        Kind::Sentinel => Ok(MayOverlap),
        _ if kind.has_server() => Ok(otherwise),
        _ => Err(NO_SERVER),
    }
}

pub(super) fn safe_or_moved(kind: Kind) -> ByBackend {
    or_moved(kind, Safe)
}

pub(super) fn told_or_moved(kind: Kind) -> ByBackend {
    or_moved(kind, Unavailable)
}

/// Several nodes of which one is in trouble are safe and available; one that is alone is not available.
pub(super) fn told_if_alone(kind: Kind) -> ByBackend {
    or_moved(kind, if kind.is_alone() { Unavailable } else { Safe })
}

pub(super) fn safe_with_server(kind: Kind) -> ByBackend {
    if kind.has_server() { Ok(Safe) } else { Err(NO_SERVER) }
}

pub(super) fn on_line(kind: Kind, expected: Expected) -> ByBackend {
    match kind {
        _ if kind.has_lines() => Ok(expected),
        Kind::Sentinel => Err(NO_LINE),
        _ => Err(NO_SERVER),
    }
}

pub(super) fn safe_on_line(kind: Kind) -> ByBackend {
    on_line(kind, Safe)
}

pub(super) fn told_on_line(kind: Kind) -> ByBackend {
    on_line(kind, Unavailable)
}

/// Of three servers.
pub(super) fn safe_of_three(kind: Kind) -> ByBackend {
    if kind.nodes() == 3 { Ok(Safe) } else { Err(ONE_NODE) }
}

pub(super) const QUICK: Scenario = Scenario {
    name: "",
    about: "",
    crew: Crew::USUAL,
    memory: Memory::Keeps,
    setup: Setup::Usual,
    is_quick: true,
    draw: |_| (),
    expected: |_| Ok(Safe),
};

pub(super) const LONG: Scenario = Scenario { is_quick: false, ..QUICK };

/// The server is killed, and a replica takes over that lacks its last grants.
pub(super) fn failover(draw: &mut Draw) {
    let at = draw.first();
    let fault = if draw.kind == Kind::Sentinel {
        Fault::KillAhead { ahead: draw.between(300, 900), millis: draw.leases(300) }
    } else {
        Fault::Promote { planned: false }
    };
    draw.fault(at, fault);
}

/// Holders for whom faults matter: they hold for more than a lease.
pub(super) const HOLDERS: Crew = Crew { long: (60, 150), ..Crew::USUAL };

pub(super) const LONG_OF_HOLDERS: Scenario = Scenario { crew: HOLDERS, ..LONG };
