//! The comparison, with this backend in it:
//! `cargo run --release --features compare --bin compare -- --url etcd://127.0.0.1:2379/lockwell`.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    // Before the rest, since the comparison starts this program again for its worker processes.
    if let Err(error) = backend_etcd::registry().and_then(lockwell::Registry::install) {
        eprintln!("{error:#}");
        return ExitCode::FAILURE;
    }
    compare_bench::run().await
}
