//! The kit that runs the suite for authors of backends: servers, a network that fails on demand, and the `main` of the
//! test program.

mod main;
mod one_server;
mod process;
mod target;

pub use main::main;
pub use process::Site;
pub use target::{Missing, Target};
