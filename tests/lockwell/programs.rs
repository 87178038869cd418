//! The examples as programs.

use std::path::PathBuf;

/// Where cargo has put the example. `cargo test` builds the examples along with the tests.
pub(crate) fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own file");
    let folder = test.parent().and_then(|deps| deps.parent()).expect("tests stand in target/PROFILE/deps");
    let program = folder.join("examples").join(name).with_extension(std::env::consts::EXE_EXTENSION);
    assert!(program.exists(), "{} is missing: cargo build --examples", program.display());
    program
}
