//! What is particular to ZooKeeper: cost, downgrades, sessions, faults of ensembles, other clients, rights,
//! odd input.

mod addresses;
mod becoming;
mod cost;
mod doubt;
mod downgrade;
mod faults;
#[cfg(target_os = "linux")]
mod filtered;
mod folders;
mod foreign;
mod frames;
mod full;
mod herd;
mod input;
mod interop;
mod kinds;
mod lag;
mod names;
mod observer;
mod other;
mod permits;
mod refused;
mod rights;
mod rolling;
#[cfg(feature = "sasl")]
mod sasl;
mod sequence;
mod servers;
mod sessions;
#[cfg(feature = "tls")]
mod tls;
mod unpolled;
mod wire;
