//! What happens to what servers keep.

use crate::kind::{Kind, Setup};
use crate::plan::Crew;
use crate::scenario::Expected::{MayOverlap, Safe, Unavailable};
use crate::scenario::Scenario;
use crate::schedule::Fault;
use crate::table::expected::{ByBackend, HOLDERS, LONG_OF_HOLDERS, QUICK};

pub(super) const ALL: &[Scenario] = &[
    Scenario {
        name: "force-release",
        about: "an operator frees locks under load, thirty times",
        crew: Crew { long: (60, 60), dropped: 0, cancelled: 0, all_modes: false, ..Crew::USUAL },
        draw: |draw| {
            let at = draw.first();
            for turn in 0..30 {
                let (lock, late) = (draw.lock(), draw.between(0, 80));
                draw.fault(at + turn * 120 + late, Fault::ForceRelease { lock });
            }
        },
        // Until it is told, the deprived holder considers itself the holder. Only such overlaps may be.
        ..QUICK
    },
    Scenario {
        name: "flush-all",
        about: "all keys of Redis, or of one node of three, are deleted, four times",
        draw: |draw| draw.in_turns(4, 700, |node| Fault::FlushAll { node }),
        expected: |kind| kind.is_redis().then_some(MayOverlap),
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "log-truncated",
        about: "Redis, or one node of three, is killed and starts again without the last kilobytes of its append-only file",
        draw: |draw| {
            let (at, node, bytes) = (draw.first(), draw.node(), draw.between(2_000, 20_000));
            draw.fault(at, Fault::TruncateLog { node, bytes });
        },
        expected: overlaps_on_redis_alone,
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "certificate-expired",
        about: "the certificate of Redis, or of one node of three, has expired for two leases, and all connections have ended",
        setup: Setup::Tls,
        draw: |draw| draw.at_node(200, |node, millis| Fault::ExpireCertificate { node, millis }),
        expected: |kind| match kind {
            Kind::Redis => Some(Unavailable),
            Kind::Redlock3 => Some(Safe),
            _ => None,
        },
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "backup-restored",
        about: "the server, or one of three, or all of three of etcd, is killed and starts again with a copy of its data that is two leases old",
        draw: |draw| draw.at_node(200, |node, millis| Fault::Restore { node, millis }),
        expected: |kind| match kind {
            Kind::Memory | Kind::Sqlite | Kind::Sentinel => None,
            Kind::Zookeeper3 => Some(Safe),
            _ => Some(MayOverlap),
        },
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "data-lost",
        about: "the server, or one of an ensemble, is killed and starts again without its data; the others of etcd add it anew",
        draw: |draw| draw.once_at_node(|node| Fault::LoseData { node }),
        expected: |kind| match kind {
            Kind::Zookeeper | Kind::Etcd => Some(MayOverlap),
            Kind::Zookeeper3 | Kind::Etcd3 => Some(Safe),
            _ => None,
        },
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "folder-removed",
        about: "the node under which all locks are is deleted with all that is in it; on etcd all keys of locks",
        draw: |draw| draw.once(Fault::RemoveFolder),
        expected: |kind| {
            let has_one = kind.is_zookeeper() || kind.is_etcd();
            has_one.then_some(MayOverlap)
        },
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "rogue-transaction",
        about: "a transaction of somebody else has the rows of all locks locked for two leases",
        crew: HOLDERS,
        draw: |draw| draw.lasting(200, |millis| Fault::Rogue { millis }),
        expected: |kind| kind.is_sql_server().then_some(Safe),
        ..QUICK
    },
    Scenario {
        name: "deadlock-storm",
        about: "four strangers lock the rows of locks in any order for two leases, while sessions are killed",
        draw: |draw| {
            let (at, millis) = (draw.first(), draw.leases(200));
            draw.fault(at, Fault::Deadlocks { millis });
            for turn in 1..4 {
                let late = draw.between(0, 200);
                draw.fault(at + turn * millis / 4 + late, Fault::KillSessions { node: 0 });
            }
        },
        expected: |kind| kind.is_sql_server().then_some(Safe),
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "long-reader",
        about: "somebody reads the file of SQLite in one transaction of two leases",
        draw: |draw| draw.lasting(200, |millis| Fault::LongReader { millis }),
        expected: |kind| (kind == Kind::Sqlite).then_some(Safe),
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "disk-full",
        about: "nothing more can be written to the disk of SQLite for two leases",
        setup: Setup::SmallDisk,
        draw: |draw| draw.lasting(200, |millis| Fault::FillDisk { millis }),
        expected: |kind| (kind == Kind::Sqlite).then_some(Safe),
        ..LONG_OF_HOLDERS
    },
];

/// What one of three nodes has lost, the second that voted for a grant may miss to the third.
fn overlaps_on_redis_alone(kind: Kind) -> ByBackend {
    match kind {
        Kind::Redis | Kind::Redlock3 => Some(MayOverlap),
        _ => None,
    }
}
