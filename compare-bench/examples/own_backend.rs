//! The comparison with a backend of one's own in it:
//! `cargo run --release -p compare-bench --example own_backend -- --quick --url cabinet://FOLDER`.

use std::process::ExitCode;

use lockwell::backend::ServerUrl;
use lockwell::sql::SqliteLock;
use lockwell::{Registry, Result};

/// `cabinet://FOLDER`, a file in that folder, stands for any `DistributedLock`.
async fn connect(url: ServerUrl) -> Result<SqliteLock> {
    url.allow_options(&[])?;
    SqliteLock::connect(&format!("sqlite://{}/locks.db", url.location()).parse()?).await
}

#[tokio::main]
async fn main() -> ExitCode {
    // Before the rest: the comparison starts this program again, as its worker processes.
    if let Err(error) = Registry::new().with("cabinet", connect).and_then(Registry::install) {
        eprintln!("{error:#}");
        return ExitCode::FAILURE;
    }
    compare_bench::run().await
}
