//! What happens between clients and servers.

use crate::kind::Kind;
use crate::scenario::Expected::Safe;
use crate::scenario::Scenario;
use crate::schedule::{Draw, Fault, Way};
use crate::table::expected::{
    LONG, LONG_OF_HOLDERS, safe_of_three, safe_on_line, safe_with_server, told_on_line,
};

pub(super) const ALL: &[Scenario] = &[
    Scenario {
        name: "all-clients-cut-off",
        about: "all that all clients send and are sent is lost for two and a half leases",
        draw: |draw| {
            let (at, millis) = (draw.first(), draw.leases(250));
            for worker in 0..draw.workers {
                draw.fault(at, Fault::Blackhole { worker, way: Way::Both, millis });
            }
        },
        expected: told_on_line,
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "connections-reset",
        about: "all connections of one client are reset, forty times",
        draw: |draw| {
            let mut at = draw.first();
            for _ in 0..40 {
                let worker = draw.worker();
                draw.fault(at, Fault::Reset { worker });
                at += draw.between(30, 200);
            }
        },
        expected: safe_on_line,
        ..LONG
    },
    Scenario {
        name: "grants-held-back",
        about: "all answers to one client are kept for one and a half to two and a half leases, and arrive then",
        draw: |draw| hold(draw, Way::ToClient),
        expected: told_on_line,
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "requests-held-back",
        about: "all requests of one client are kept for one and a half to two and a half leases, and arrive then",
        draw: |draw| hold(draw, Way::ToServer),
        expected: told_on_line,
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "client-flapping",
        about: "a client is cut off for 0.4 to 0.8 s, ten times, with breaks of 0.2 s",
        draw: |draw| {
            let (mut at, worker) = (draw.first(), draw.worker());
            for turn in 0..10 {
                let millis = draw.between(400, 800);
                let fault = match turn % 2 {
                    0 => Fault::Blackhole { worker, way: Way::Both, millis },
                    _ => Fault::Cut { worker, millis },
                };
                draw.fault(at, fault);
                at += millis + 200;
            }
        },
        expected: safe_on_line,
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "slow-link",
        about: "each answer takes half a lease to one and a half leases to come",
        draw: |draw| {
            let mut at = draw.first();
            for _ in 0..3 {
                let (worker, millis) = (draw.worker(), draw.leases(150));
                let each_way = draw.between(draw.ttl / 4, draw.ttl * 3 / 4);
                draw.fault(at, Fault::Delay { worker, each_way, millis });
                at += millis + 300;
            }
        },
        expected: safe_on_line,
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "minority-lost",
        about: "nobody can reach one server of three for two and a half leases",
        draw: |draw| draw.at_node(250, |node, millis| Fault::LoseNode { node, millis }),
        expected: safe_of_three,
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "sessions-killed",
        about: "the server ends the connections of all clients, eight times",
        draw: |draw| draw.in_turns(8, 300, |node| Fault::KillSessions { node }),
        expected: |kind| match kind {
            _ if kind.is_zookeeper() || kind.is_etcd() => None,
            _ => safe_with_server(kind),
        },
        ..LONG
    },
    Scenario {
        name: "pushes-lost",
        about: "the server ends the connections on which clients are told of releases, fifteen times",
        draw: |draw| draw.in_turns(15, 200, |node| Fault::KillListeners { node }),
        expected: |kind| (kind == Kind::Postgres || kind.is_redis()).then_some(Safe),
        ..LONG
    },
];

fn hold(draw: &mut Draw, way: Way) {
    draw.at_worker(200, |worker, millis| Fault::Hold { worker, way, millis });
}
