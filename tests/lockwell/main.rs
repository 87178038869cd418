//! The library as its users have it: the examples as programs, what the guides promise, and processes that fork.

mod choosing;
mod examples;
mod fork;
mod operations;
mod programs;
#[cfg(unix)]
mod running;
mod service;
