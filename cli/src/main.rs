//! The `lockwell` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    lockwell_cli::run(lockwell::Registry::new())
}
