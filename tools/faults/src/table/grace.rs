//! What happens to servers that may have forgotten grants, and therefore make none for a while.

use crate::kind::{Kind, Memory, Setup};
use crate::plan::Crew;
use crate::scenario::Expected::MayLose;
use crate::scenario::Scenario;
use crate::schedule::{Draw, Fault};
use crate::table::expected::{ByBackend, HOLDERS, LONG, LONG_OF_HOLDERS, failover};

/// The servers forget their last grants, or all. Of a lock that a group shares PostgreSQL takes nobody's
/// word, and Redis not that of the holder of a permit whom an old one precludes: such a holder loses it.
fn of_one_server(kind: Kind) -> ByBackend {
    match kind {
        Kind::Postgres | Kind::Redis => Some(MayLose),
        _ => None,
    }
}

/// As [`HOLDERS`], with fewer attempts in the same time: many such runs are made at once.
const SLOWLY: Scenario = Scenario { crew: Crew { hold: 150_000, ..HOLDERS }, ..LONG };

/// Eight faults, any time after each other, so also in a grace period: three of four times the replica takes
/// over, and once the master is killed and starts again, with nothing, before or after others notice that.
fn failovers(draw: &mut Draw) {
    let mut at = draw.first();
    for _ in 0..8 {
        let millis = draw.between(0, 2_500);
        let fault = match draw.between(0, 4) {
            0 => Fault::KillLeader { millis },
            _ => Fault::KillAhead { ahead: draw.between(100, 900), millis },
        };
        draw.fault(at, fault);
        at += draw.between(1_000, 8_000);
    }
}

pub(super) const ALL: &[Scenario] = &[
    Scenario {
        name: "grace-crash",
        about: "a server that has grace periods is killed with SIGKILL, forgets its last grants, and starts again at once",
        memory: Memory::Forgets,
        setup: Setup::Grace,
        draw: |draw| draw.once_at_node(|node| Fault::KillServer { node, millis: 0 }),
        expected: of_one_server,
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "grace-crashes-often",
        about: "the same five times, at any moment of the grace periods, also while it starts or grants again",
        memory: Memory::Forgets,
        setup: Setup::Grace,
        draw: |draw| {
            let (mut at, node) = (draw.first(), draw.node());
            for _ in 0..5 {
                draw.fault(at, Fault::KillServer { node, millis: 0 });
                at += draw.between(200, 6_000);
            }
        },
        expected: of_one_server,
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "grace-clock-behind",
        about: "the same once, and the clock of the server is two hours behind when it starts, and right a moment later",
        memory: Memory::Forgets,
        setup: Setup::GraceClocks,
        draw: |draw| {
            let (at, node, wrong) = (draw.first(), draw.node(), draw.between(300, 1_500));
            draw.fault(at, Fault::KillServer { node, millis: 300 });
            draw.fault(at + 100, Fault::StepServerClock { node, by: -2 * 3_600_000, millis: 200 + wrong });
        },
        expected: of_one_server,
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "grace-failover",
        about: "a server that has grace periods is killed with SIGKILL, and a replica takes over that lacks its last grants",
        setup: Setup::GraceStandby,
        draw: failover,
        expected: |kind| match kind {
            Kind::Postgres | Kind::Redis | Kind::Sentinel => Some(MayLose),
            _ => None,
        },
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "grace-failovers-often",
        about: "the same eight times behind sentinels, at any moment of the grace periods; some masters start again instead",
        memory: Memory::Forgets,
        setup: Setup::GraceStandby,
        draw: failovers,
        expected: |kind| (kind == Kind::Sentinel).then_some(MayLose),
        ..SLOWLY
    },
    Scenario {
        name: "grace-cluster-failovers",
        about: "the same in a Redis Cluster, whose masters take turns",
        memory: Memory::Forgets,
        setup: Setup::GraceCluster,
        draw: failovers,
        expected: |kind| (kind == Kind::Redis).then_some(MayLose),
        ..SLOWLY
    },
];
