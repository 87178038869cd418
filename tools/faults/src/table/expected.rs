//! What is expected of the backends, and what happens to them, as several scenarios have it.

use Expected::{MayOverlap, Safe, Unavailable};

use crate::kind::{Kind, Memory, Setup};
use crate::plan::Crew;
use crate::scenario::{Expected, Scenario};
use crate::schedule::{Draw, Fault};

pub(super) type ByBackend = Option<Expected>;

pub(super) fn safe_in_processes(kind: Kind) -> ByBackend {
    (kind != Kind::Memory).then_some(Safe)
}

/// Behind sentinels another server may take over, which need not know the last grants.
pub(super) fn or_moved(kind: Kind, otherwise: Expected) -> ByBackend {
    match kind {
        Kind::Sentinel => Some(MayOverlap),
        _ if kind.has_server() => Some(otherwise),
        _ => None,
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
    kind.has_server().then_some(Safe)
}

pub(super) fn on_line(kind: Kind, expected: Expected) -> ByBackend {
    kind.has_lines().then_some(expected)
}

pub(super) fn safe_on_line(kind: Kind) -> ByBackend {
    on_line(kind, Safe)
}

pub(super) fn told_on_line(kind: Kind) -> ByBackend {
    on_line(kind, Unavailable)
}

/// Of three servers.
pub(super) fn safe_of_three(kind: Kind) -> ByBackend {
    (kind.nodes() == 3).then_some(Safe)
}

pub(super) const QUICK: Scenario = Scenario {
    name: "",
    about: "",
    crew: Crew::USUAL,
    memory: Memory::Keeps,
    setup: Setup::Usual,
    is_quick: true,
    draw: |_| (),
    expected: |_| Some(Safe),
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
