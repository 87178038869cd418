//! Which lock server.

use std::path::PathBuf;

use clap::Args;

#[derive(Args, Default)]
pub(crate) struct Server {
    /// The address of the lock server, as in sqlite:///var/lib/app/locks.db or
    /// postgres://user:password@host/database [default: the environment variable LOCKWELL_URL].
    ///
    /// Other users of the machine can see the command line: give an address with a password by --url-file,
    /// --config or LOCKWELL_URL.
    #[arg(long, value_name = "URL", conflicts_with_all = ["url_file", "config"])]
    pub(crate) url: Option<String>,
    /// A file whose only line is the address of the lock server, such as a mounted secret.
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    pub(crate) url_file: Option<PathBuf>,
    /// A TOML file with the key url, and optionally with ttl, wait, label, require, password_file, lazy,
    /// server_order and hand_off.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}
