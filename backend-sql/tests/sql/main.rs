//! What is particular to locks in SQL tables. What every backend must do is in the conformance suite.

mod connections;
mod crash;
mod damage;
mod dead_waiters;
mod doubt;
mod groups;
mod hand_over;
mod hot_names;
mod inherited;
mod many;
mod mysql;
mod killed;
mod large;
mod pooler;
mod purge;
mod queue;
mod record;
mod rights;
mod notify;
mod schema;
mod servers;
mod sqlite_child;
mod sqlite_files;
mod sqlite_power;
mod sqlite_push;
mod switchover;
#[cfg(feature = "tls")]
mod tls;
mod variants;
mod verify;
mod wake_ups;
mod waited;
