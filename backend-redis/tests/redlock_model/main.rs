//! Redlock's tokens, model-checked.
//!
//! Every order of messages, lost and late ones included, with leases that run out at any moment, and with nodes that
//! forget. The decision of a claim is not a model: it is `redlock/tally.rs`, the code that production runs.
//!
//! What each test showed is written into docs/redis.md. The bigger searches are marked as slow:
//! `cargo test --release -p backend-redis --test redlock_model -- --ignored --nocapture`.

mod action;
mod canon;
mod exclusion;
mod forgetful;
mod lean;
mod memory;
mod model;
mod near_misses;
mod protocol;
mod search;
mod state;
#[path = "../../src/redlock/tally.rs"]
mod tally;
mod tokens;
