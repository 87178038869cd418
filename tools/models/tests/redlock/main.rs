//! Redlock's tokens, model-checked.
//!
//! Every order of messages, lost and late ones included, with leases that run out at any moment, and with
//! nodes that forget. The decision of a claim is not a model: it is `redlock/tally.rs`, the code that
//! production runs.
//!
//! What was found is told in docs/protocols.md. The searches for a violation print the way to it with
//! `--nocapture`. The bigger ones are left out of the suite of every day, each says how big it is, with
//! optimisation and at low priority on a busy machine with two cores. All of them take about half an hour and
//! up to 6 GB: `cargo test --release -p models --test redlock -- --ignored --nocapture
//! --test-threads 1`.

mod action;
mod canon;
mod exclusion;
mod forgetful;
mod lean;
mod memory;
mod model;
mod near_misses;
mod protocol;
mod readers;
mod renewals;
mod search;
mod state;
#[path = "../../../../backend-redis/src/redlock/tally.rs"]
mod tally;
mod tokens;
