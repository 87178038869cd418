//! Configuration: addresses, options, files.

mod hand_over;
mod lock_config;
mod password_file;
pub mod tls;
mod url;
mod written;

pub use hand_over::HandOver;
pub use lock_config::LockConfig;
pub use url::{Host, Secret, ServerUrl};
