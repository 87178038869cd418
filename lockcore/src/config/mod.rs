//! Configuration: addresses, options, files.

mod hand_off;
mod host;
mod lock_config;
mod password_file;
mod passwords;
mod secret;
pub mod tls;
mod url;
mod written;

pub use hand_off::HandOff;
pub use host::Host;
pub use lock_config::LockConfig;
pub use passwords::Passwords;
pub use secret::Secret;
pub use url::ServerUrl;
