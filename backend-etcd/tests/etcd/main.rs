//! What only etcd can do to its clients. The conformance suite (`tests/conformance.rs` of the workspace) has
//! the rest.

mod addresses;
mod data;
mod faults;
mod late;
mod load;
mod rights;
mod support;
mod wire;
