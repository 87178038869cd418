//! What happens to the processes and clocks of servers.

use crate::kind::{Kind, Memory, Setup};
use crate::scenario::Expected::{MayLose, MayOverlap, Safe, Unavailable};
use crate::scenario::Scenario;
use crate::schedule::Fault;
use crate::table::expected::{
    ByBackend, HOLDERS, LONG_OF_HOLDERS, QUICK, failover, safe_or_moved, safe_with_server, told_if_alone,
    told_or_moved,
};

pub(super) const ALL: &[Scenario] = &[
    Scenario {
        name: "server-paused",
        about: "the server, or one of three, is stopped with SIGSTOP for two and a half leases",
        crew: HOLDERS,
        draw: |draw| draw.at_node(250, |node, millis| Fault::PauseServer { node, millis }),
        expected: told_if_alone,
        ..QUICK
    },
    Scenario {
        name: "server-hiccups",
        about: "the server, or one of three, is stopped with SIGSTOP for 0.1 to 0.6 leases, eight times",
        draw: |draw| {
            let mut at = draw.first();
            for _ in 0..8 {
                let (node, millis) = (draw.node(), draw.between(draw.ttl / 10, draw.ttl * 6 / 10));
                draw.fault(at, Fault::PauseServer { node, millis });
                at += millis + 250;
            }
        },
        expected: safe_or_moved,
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "rolling-restart",
        about: "all servers are restarted in good order, one after the other; one that is alone, three times",
        draw: |draw| {
            let mut at = draw.first();
            for turn in 0..3 {
                let node = turn % draw.kind.nodes().max(1);
                draw.fault(at, Fault::RestartServer { node, millis: 0 });
                at += draw.between(2_500, 3_500);
            }
        },
        expected: safe_or_moved,
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "server-killed-often",
        about: "the server, or one of three, is killed with SIGKILL and starts again at once, four times",
        draw: |draw| {
            let mut at = draw.first();
            for _ in 0..4 {
                let node = draw.node();
                draw.fault(at, Fault::KillServer { node, millis: 0 });
                at += draw.between(2_500, 3_500);
            }
        },
        expected: safe_or_moved,
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "majority-paused",
        about: "two servers of three are stopped with SIGSTOP for two and a half leases",
        draw: |draw| {
            let (at, first, millis) = (draw.first(), draw.node(), draw.leases(250));
            for node in [first, (first + 1) % draw.kind.nodes().max(1)] {
                draw.fault(at, Fault::PauseServer { node, millis });
            }
        },
        expected: |kind| (kind.nodes() == 3).then_some(Unavailable),
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "leader-killed",
        about: "the server that leads is killed with SIGKILL and starts again 0.7 leases later, three times",
        draw: |draw| {
            let mut at = draw.first();
            for _ in 0..3 {
                let millis = draw.leases(70);
                draw.fault(at, Fault::KillLeader { millis });
                at += draw.between(9_000, 10_000);
            }
        },
        expected: |kind| match kind {
            Kind::Zookeeper3 | Kind::Etcd3 => Some(Safe),
            Kind::Sentinel => Some(MayOverlap),
            _ => None,
        },
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "leader-disk-hangs",
        about: "the syncs of the server that leads hang for three leases; it answers keep-alives, and ends leases afterwards",
        draw: |draw| draw.lasting(300, |millis| Fault::HangLeader { millis }),
        // Releases before 3.4.31 and 3.5.13 end leases that another leader has extended.
        expected: |kind| match kind {
            Kind::Etcd3 => Some(MayOverlap),
            _ => None,
        },
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "follower-on-an-island",
        about: "one server of three cannot reach the others for three leases; clients can reach it",
        setup: Setup::Links,
        draw: |draw| draw.lasting(300, |millis| Fault::Island { of_leader: false, millis }),
        expected: safe_on_island,
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "leader-on-an-island",
        about: "the server of three that leads cannot reach the others for three leases; clients can reach it",
        setup: Setup::Links,
        draw: |draw| draw.lasting(300, |millis| Fault::Island { of_leader: true, millis }),
        expected: safe_on_island,
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "switchover",
        about: "the server ends in good order and its asynchronous replica takes over, or sentinels are told to change the master",
        setup: Setup::Standby,
        draw: |draw| draw.once(Fault::Promote { planned: true }),
        expected: |kind| match kind {
            Kind::Postgres | Kind::Mariadb => Some(Safe),
            Kind::Redis | Kind::Sentinel => Some(MayOverlap),
            _ => None,
        },
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "failover",
        about: "the server is killed with SIGKILL and its asynchronous replica takes over",
        setup: Setup::Standby,
        draw: failover,
        expected: |kind| match kind {
            Kind::Postgres | Kind::Mariadb | Kind::Redis | Kind::Sentinel => Some(MayOverlap),
            _ => None,
        },
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "server-killed",
        about: "the server, or one of three, is killed with SIGKILL, and starts again two and a half leases later",
        draw: |draw| draw.at_node(250, |node, millis| Fault::KillServer { node, millis }),
        expected: told_if_alone,
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "all-servers-killed",
        about: "all servers are killed with SIGKILL at once, and start again two and a half leases later",
        draw: |draw| draw.lasting(250, |millis| Fault::KillAll { millis }),
        expected: told_or_moved,
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "amnesia",
        about: "a server that keeps nothing is killed and starts again at once",
        memory: Memory::Forgets,
        draw: |draw| draw.once_at_node(|node| Fault::KillServer { node, millis: 0 }),
        expected: |kind| match kind {
            Kind::Redis => Some(MayOverlap),
            // A holder with the votes of two nodes, of which one forgets, has no majority left.
            Kind::Redlock3 => Some(MayLose),
            _ => None,
        },
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "server-clock-forward",
        about: "the wall clock of the server, or of one of three, is three leases ahead, for two leases",
        setup: Setup::Clocks,
        draw: |draw| {
            let (at, node, millis) = (draw.first(), draw.node(), draw.leases(200));
            let by = i64::try_from(draw.leases(300)).unwrap_or(i64::MAX);
            draw.fault(at, Fault::StepServerClock { node, by, millis });
        },
        expected: clock_stepped,
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "server-clock-back",
        about: "the wall clock of the server, or of one of three, is a lease behind from now on",
        setup: Setup::Clocks,
        draw: |draw| {
            let (at, node) = (draw.first(), draw.node());
            let by = -i64::try_from(draw.leases(100)).unwrap_or(i64::MAX);
            // It stays so: to put it right would be a step forward.
            draw.fault(at, Fault::StepServerClock { node, by, millis: 0 });
        },
        expected: |kind| match kind {
            Kind::Sentinel | Kind::Etcd | Kind::Etcd3 => None,
            _ => safe_with_server(kind),
        },
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "server-clock-strobed",
        about: "the wall clock of the server, or of one of three, jumps by up to three leases either way, twelve times",
        setup: Setup::Clocks,
        draw: |draw| {
            let (mut at, node) = (draw.first(), draw.node());
            for turn in 0..12 {
                let by = i64::try_from(draw.leases(240)).unwrap_or(i64::MAX);
                let by = if turn % 2 == 0 { by } else { -by };
                let millis = draw.between(100, 300);
                draw.fault(at, Fault::StepServerClock { node, by, millis });
                at += millis + 50;
            }
        },
        expected: clock_stepped,
        ..LONG_OF_HOLDERS
    },
];

fn safe_on_island(kind: Kind) -> ByBackend {
    match kind {
        Kind::Zookeeper3 => Some(Safe),
        _ => None,
    }
}

/// Leases end by the clock of the server, but for those of `ZooKeeper`, which measures spans. A grant of
/// Redlock may have two votes only: without the one that has ended too early, the third node makes another
/// majority.
fn clock_stepped(kind: Kind) -> ByBackend {
    match kind {
        Kind::Memory | Kind::Sqlite | Kind::Sentinel | Kind::Etcd | Kind::Etcd3 => None,
        Kind::Zookeeper | Kind::Zookeeper3 => Some(Safe),
        Kind::Postgres | Kind::Mariadb | Kind::Redis | Kind::Redlock3 => Some(MayOverlap),
    }
}
