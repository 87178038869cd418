//! What happens to what servers keep.

use crate::kind::{Kind, Setup};
use crate::plan::Crew;
use crate::scenario::Expected::{MayOverlap, Safe, Unavailable};
use crate::scenario::Scenario;
use crate::schedule::Fault;
use crate::table::expected::{
    ByBackend, HOLDERS, LONG, LONG_OF_HOLDERS, NO_SERVER, NOT_REDIS, NOT_SQL, NOT_SQLITE, QUICK,
};

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
        expected: |kind| if kind.is_redis() { Ok(MayOverlap) } else { Err(NOT_REDIS) },
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "flush-scripts",
        about: "Redis forgets all scripts, twenty times",
        draw: |draw| draw.in_turns(20, 120, |node| Fault::FlushScripts { node }),
        expected: |kind| if kind.is_redis() { Ok(Safe) } else { Err(NOT_REDIS) },
        ..LONG
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
        name: "eviction",
        about: "Redis, or one node of three, is short of memory and evicts any key, twice",
        draw: |draw| {
            let mut at = draw.first();
            for _ in 0..2 {
                let (node, millis) = (draw.node(), draw.leases(60));
                draw.fault(at, Fault::Evict { node, millis });
                at += millis + 600;
            }
        },
        expected: overlaps_on_redis_alone,
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "memory-full",
        about: "Redis, one node of three, or etcd is short of memory and refuses writes for two leases",
        draw: |draw| draw.at_node(200, |node, millis| Fault::FillMemory { node, millis }),
        expected: |kind| if kind.is_redis() || kind.is_etcd() { Ok(Safe) } else { Err(NOT_REDIS) },
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "wrong-credentials",
        about: "the password of Redis, or of one node of three, is another for two leases, and all connections have ended",
        draw: |draw| draw.at_node(200, |node, millis| Fault::ChangePassword { node, millis }),
        expected: |kind| match kind {
            Kind::Redis => Ok(Unavailable),
            Kind::Redlock3 => Ok(Safe),
            Kind::Sentinel => Err("the sentinels and the replica would need the new one"),
            _ => Err("no password can be changed under its clients here"),
        },
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "certificate-expired",
        about: "the certificate of Redis, or of one node of three, has expired for two leases, and all connections have ended",
        setup: Setup::Tls,
        draw: |draw| draw.at_node(200, |node, millis| Fault::ExpireCertificate { node, millis }),
        expected: |kind| match kind {
            Kind::Redis => Ok(Unavailable),
            Kind::Redlock3 => Ok(Safe),
            _ => Err("only nodes of Redis are started with TLS here"),
        },
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "backup-restored",
        about: "the server, or one of three, or all of three of etcd, is killed and starts again with a copy of its data that is two leases old",
        draw: |draw| draw.at_node(200, |node, millis| Fault::Restore { node, millis }),
        expected: |kind| match kind {
            Kind::Memory | Kind::Sqlite => Err(NO_SERVER),
            Kind::Sentinel => Err("the replica has what the master has lost"),
            Kind::Zookeeper3 => Ok(Safe),
            _ => Ok(MayOverlap),
        },
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "data-lost",
        about: "the server, or one of an ensemble, is killed and starts again without its data; the others of etcd add it anew",
        draw: |draw| draw.once_at_node(|node| Fault::LoseData { node }),
        expected: |kind| match kind {
            Kind::Zookeeper | Kind::Etcd => Ok(MayOverlap),
            Kind::Zookeeper3 | Kind::Etcd3 => Ok(Safe),
            _ => Err("amnesia does it for Redis; a database without its tables does not start"),
        },
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "folder-removed",
        about: "the node under which all locks are is deleted with all that is in it; on etcd all keys of locks",
        draw: |draw| draw.once(Fault::RemoveFolder),
        expected: |kind| {
            let has_one = kind.is_zookeeper() || kind.is_etcd();
            if has_one { Ok(MayOverlap) } else { Err("there is no such node") }
        },
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "sequence-numbers",
        about: "the server starts again with the sequence numbers of half of the locks near their end, and of the others far on",
        crew: Crew { least: 10_000, ..HOLDERS },
        draw: |draw| draw.once(Fault::Renumber),
        expected: |kind| match kind {
            Kind::Zookeeper => Ok(Safe),
            Kind::Zookeeper3 => Err("the files of three servers would have to be changed alike"),
            _ => Err("its tokens do not end"),
        },
        ..LONG
    },
    Scenario {
        name: "rogue-transaction",
        about: "a transaction of somebody else has the rows of all locks locked for two leases",
        crew: HOLDERS,
        draw: |draw| draw.lasting(200, |millis| Fault::Rogue { millis }),
        expected: |kind| if kind.is_sql_server() { Ok(Safe) } else { Err(NOT_SQL) },
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
        expected: |kind| if kind.is_sql_server() { Ok(Safe) } else { Err(NOT_SQL) },
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "hostile-settings",
        about: "sessions inherit the isolation, time-outs, zones and modes that disagree most with the backend",
        setup: Setup::Hostile,
        expected: |kind| if kind.is_sql_server() { Ok(Safe) } else { Err("no session inherits anything") },
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "pooler",
        about: "a pooler in transaction mode is in between, and the server ends its connections, three times",
        setup: Setup::Pooler,
        draw: |draw| {
            let mut at = draw.first();
            for _ in 0..3 {
                draw.fault(at, Fault::KillSessions { node: 0 });
                at += draw.between(600, 1_000);
            }
        },
        expected: |kind| {
            if kind == Kind::Postgres { Ok(Safe) } else { Err("there is no pooler for it here") }
        },
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "long-reader",
        about: "somebody reads the file of SQLite in one transaction of two leases",
        draw: |draw| draw.lasting(200, |millis| Fault::LongReader { millis }),
        expected: |kind| if kind == Kind::Sqlite { Ok(Safe) } else { Err(NOT_SQLITE) },
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "file-replaced",
        about: "a copy takes the place of the file of SQLite while it is in use",
        draw: |draw| draw.once(Fault::ReplaceFile),
        expected: |kind| if kind == Kind::Sqlite { Ok(MayOverlap) } else { Err(NOT_SQLITE) },
        ..LONG_OF_HOLDERS
    },
    Scenario {
        name: "disk-full",
        about: "nothing more can be written to the disk of SQLite for two leases",
        setup: Setup::SmallDisk,
        draw: |draw| draw.lasting(200, |millis| Fault::FillDisk { millis }),
        expected: |kind| if kind == Kind::Sqlite { Ok(Safe) } else { Err(NOT_SQLITE) },
        ..LONG_OF_HOLDERS
    },
];

/// What one of three nodes has lost, the second that voted for a grant may miss to the third.
fn overlaps_on_redis_alone(kind: Kind) -> ByBackend {
    match kind {
        Kind::Redis | Kind::Redlock3 => Ok(MayOverlap),
        Kind::Sentinel => Err("the replica has what the master has lost"),
        _ => Err(NOT_REDIS),
    }
}
