//! The comparison as a program, with the backends of lockwell itself.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    compare_bench::run().await
}
