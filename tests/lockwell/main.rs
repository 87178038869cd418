//! The library as its users have it: the examples as programs, what the guides promise, and processes that fork.

mod choosing;
mod examples;
mod fork;
mod operations;
mod programs;
#[cfg(feature = "metrics")]
#[allow(dead_code)] // Its tests run here, and a test of the command runs it as a program.
#[path = "../../examples/reports.rs"]
mod reports;
#[cfg(unix)]
mod running;
mod service;
mod spans;
