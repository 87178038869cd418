//! What is particular to locks in Redis. What every backend must do is in the conformance suite.

mod asking;
mod bad_servers;
mod cluster;
mod cluster_checks;
mod cluster_failover;
mod cluster_hung;
mod cluster_moving;
mod crowd;
mod fenced;
mod force;
mod grace;
mod hand_over;
mod input;
mod interop;
mod login;
mod logs;
mod long_queues;
mod members;
mod memory_full;
mod mixed_kinds;
mod modes;
mod others;
mod passwords;
mod programs;
mod reclaim;
mod redlock;
mod replicas;
mod rights;
mod scripts;
mod sentinel;
mod servers;
mod strict;
#[cfg(feature = "tls")]
mod tls;
mod tokens;
mod unnotified;
