//! What happens to the processes and clocks of servers.

use crate::kind::{Kind, Memory, Setup};
use crate::scenario::Expected::{MayLose, MayOverlap, Safe, Unavailable};
use crate::scenario::Scenario;
use crate::schedule::Fault;
use crate::table::expected::{
    ByBackend, HOLDERS, LONG, LONG_OF_HOLDERS, NO_CLOCK, NO_LEADER, NO_SERVER, NOT_CLUSTER, ONE_NODE, QUICK,
    failover, safe_or_moved, safe_with_server, told_if_alone, told_or_moved,
};

const NO_ENSEMBLE: &str = "there is no ensemble whose connections can be cut here";
const NO_LIBRARY: &str =
    "its program asks the kernel for the time, and no library that could be loaded before";
const NO_REPLICA: &str = "no replica of it that could take over is started here";

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
        name: "server-restarted",
        about: "the server, or one of three, ends in good order and starts again at once",
        crew: HOLDERS,
        draw: |draw| draw.once_at_node(|node| Fault::RestartServer { node, millis: 0 }),
        expected: safe_or_moved,
        ..LONG
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
        expected: |kind| if kind.nodes() == 3 { Ok(Unavailable) } else { Err(ONE_NODE) },
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
            Kind::Zookeeper3 | Kind::Etcd3 => Ok(Safe),
            Kind::Sentinel => Ok(MayOverlap),
            _ => Err(NO_LEADER),
        },
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "leader-disk-hangs",
        about: "the syncs of the server that leads hang for three leases; it answers keep-alives, and ends leases afterwards",
        draw: |draw| draw.lasting(300, |millis| Fault::HangLeader { millis }),
        // Releases before 3.4.31 and 3.5.13 end leases that another leader has extended.
        expected: |kind| match kind {
            Kind::Etcd3 => Ok(MayOverlap),
            _ => Err("its disk is not made to hang here"),
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
            Kind::Postgres | Kind::Mariadb => Ok(Safe),
            Kind::Redis | Kind::Sentinel => Ok(MayOverlap),
            _ => Err(NO_REPLICA),
        },
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "failover",
        about: "the server is killed with SIGKILL and its asynchronous replica takes over",
        setup: Setup::Standby,
        draw: failover,
        expected: |kind| match kind {
            Kind::Postgres | Kind::Mariadb | Kind::Redis | Kind::Sentinel => Ok(MayOverlap),
            _ => Err(NO_REPLICA),
        },
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "slots-moved",
        about: "slots of locks are moved from one master of a Redis Cluster to another, in 0.1 to 0.5 leases each, sixteen times",
        setup: Setup::Cluster,
        draw: |draw| {
            let mut at = draw.first();
            for _ in 0..16 {
                let (lock, millis) = (draw.lock(), draw.between(draw.ttl / 10, draw.ttl / 2));
                draw.fault(at, Fault::MoveSlot { lock, millis });
                // One after the other, with time for the keys.
                at += millis + 400;
            }
        },
        expected: |kind| if kind == Kind::Redis { Ok(Safe) } else { Err(NOT_CLUSTER) },
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "cluster-switchover",
        about: "a master of a Redis Cluster hands its slots over to its replica on command",
        setup: Setup::Cluster,
        draw: |draw| draw.once(Fault::Promote { planned: true }),
        expected: |kind| if kind == Kind::Redis { Ok(Safe) } else { Err(NOT_CLUSTER) },
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "cluster-failover",
        about: "a master of a Redis Cluster is killed with SIGKILL, and its replica takes over",
        setup: Setup::Cluster,
        draw: |draw| draw.once(Fault::Promote { planned: false }),
        expected: |kind| if kind == Kind::Redis { Ok(MayOverlap) } else { Err(NOT_CLUSTER) },
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "sessions-shortened",
        about: "the server, or one of three, allows sessions of two thirds of a lease for three leases, and takes sessions over",
        draw: |draw| {
            let (at, node, millis) = (draw.first(), draw.node(), draw.leases(300));
            let longest = draw.ttl * 2 / 3;
            draw.fault(at, Fault::ShortenSessions { node, longest, millis });
            // Sessions move to whichever server comes next.
            for turn in 0..12 {
                let (worker, late) = (draw.worker(), draw.between(0, 200));
                draw.fault(at + 1_500 + turn * 400 + late, Fault::Reset { worker });
            }
        },
        expected: |kind| {
            if kind.is_zookeeper() { Ok(Safe) } else { Err("it has no sessions with a time of their own") }
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
            Kind::Redis => Ok(MayOverlap),
            // A holder with the votes of two nodes, of which one forgets, has no majority left.
            Kind::Redlock3 => Ok(MayLose),
            _ => Err("only Redis can be set to keep nothing"),
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
            Kind::Sentinel => Err(NO_CLOCK),
            _ if kind.is_etcd() => Err(NO_LIBRARY),
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
        Kind::Zookeeper3 => Ok(Safe),
        Kind::Etcd3 => {
            Err("all members know each by one address, and what is behind it cannot tell who connects")
        }
        _ => Err(NO_ENSEMBLE),
    }
}

/// Leases end by the clock of the server, but for those of `ZooKeeper`, which measures spans. A grant of
/// Redlock may have two votes only: without the one that has ended too early, the third node makes another
/// majority.
fn clock_stepped(kind: Kind) -> ByBackend {
    match kind {
        Kind::Memory | Kind::Sqlite => Err(NO_SERVER),
        Kind::Sentinel => Err(NO_CLOCK),
        Kind::Etcd | Kind::Etcd3 => Err(NO_LIBRARY),
        Kind::Zookeeper | Kind::Zookeeper3 => Ok(Safe),
        Kind::Postgres | Kind::Mariadb | Kind::Redis | Kind::Redlock3 => Ok(MayOverlap),
    }
}
