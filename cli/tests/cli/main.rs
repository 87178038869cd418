//! The `lockwell` command as real processes.
//!
//! Most tests use an SQLite file and need no server.
#![cfg(all(unix, feature = "sqlite"))]

mod addresses;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "redis", feature = "zk"))]
mod away;
mod canary;
mod containers;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "redis"))]
mod doctor;
#[cfg(target_os = "linux")]
mod doctor_file;
mod documented;
mod dying;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "redis", feature = "zk"))]
mod everyday;
mod exclusion;
mod exit_codes;
mod firings;
#[cfg(feature = "postgres")]
mod first_day;
#[cfg(all(feature = "postgres", feature = "redis"))]
mod grace;
mod hints;
mod hold;
mod hold_examples;
mod job_list;
mod jobs;
mod json;
mod kubelet;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "redis", feature = "zk"))]
mod looking;
mod loss;
mod modes;
mod notified;
mod once;
mod once_everywhere;
mod options;
mod picture;
mod rights;
#[cfg(any(feature = "redis", feature = "postgres", feature = "mysql"))]
mod rolling;
#[cfg(feature = "postgres")]
mod servers;
mod signals;
mod status;
mod support;
mod terminal;
#[cfg(all(
    target_os = "linux",
    feature = "postgres",
    feature = "mysql",
    feature = "redis",
    feature = "zk",
    feature = "etcd"
))]
mod threads;
#[cfg(all(feature = "redis", feature = "tls"))]
mod tls;
mod top;
mod verbs;
#[cfg(feature = "postgres")]
mod verified;
mod why;
