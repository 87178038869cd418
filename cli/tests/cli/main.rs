//! The `lockwell` command as real processes.
//!
//! Most tests use an SQLite file and need no server.
#![cfg(all(unix, feature = "sqlite"))]

mod canary;
mod documented;
mod dying;
mod exclusion;
mod exit_codes;
mod json;
mod loss;
mod modes;
mod options;
mod rights;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "redis", feature = "zk"))]
mod servers;
mod signals;
mod status;
mod support;
mod terminal;
mod verbs;
