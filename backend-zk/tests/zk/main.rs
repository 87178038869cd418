//! What is particular to ZooKeeper: cost, faults of ensembles, other clients, rights.

mod cost;
mod faults;
mod herd;
mod interop;
mod other;
mod rights;
mod sequence;
mod servers;
