//! The kit that runs the suite for authors of backends: servers, a network that fails on demand, and the
//! `main` of the test program.

mod connect;
mod line;
mod one_server;
mod process;
mod suite;
mod target;
mod times;

pub use connect::Missing;
pub use line::Line;
pub use one_server::OneServer;
pub use process::Site;
pub use suite::{CaseRecord, Conclusion, Suite, main};
pub use target::Target;
