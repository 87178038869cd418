//! `cargo xtask test`: all tests.

use std::process::ExitCode;

use crate::install::{allowed, ensure};
use crate::packages::in_use;
use crate::shell::{Result, cargo, foreground};

pub(crate) fn run(mut args: Vec<String>) -> Result<ExitCode> {
    let allowed = allowed(&mut args);
    ensure(&in_use().collect::<Vec<_>>(), allowed);
    // Not nextest: it runs each test in a process of its own, and each process would start its own servers. It
    // runs no doc tests either.
    foreground(cargo().args(["test", "--workspace", "--all-features"]).args(&args))
}
