//! Busy loops beside the tests: what is flaky shows when there is no processor to spare.

use std::io::{Read, stdin};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::{env, thread};

use crate::shell::Result;

/// The hidden command that is one busy loop.
pub(crate) const COMMAND: &str = "busy-loop";

/// Running loops. They end when this is dropped, and when this process ends in any way: each of them reads
/// from a pipe whose other end only this process has.
#[derive(Debug)]
pub(crate) struct Busy(Vec<Child>);

impl Busy {
    /// Starts this number of loops, with the priority of this process.
    pub(crate) fn start(count: usize) -> Result<Self> {
        let program = own_program()?;
        // Each child is in the guard before the next one is started.
        let mut busy = Self(Vec::new());
        for _ in 0..count {
            let child = Command::new(&program).arg(COMMAND).stdin(Stdio::piped()).spawn();
            busy.0.push(child.map_err(|error| format!("a busy loop: {error}"))?);
        }
        Ok(busy)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // One that has ended already cannot be killed, and is waited for all the same.
            if let Err(error) = child.kill().and_then(|()| child.wait().map(drop)) {
                eprintln!("xtask: busy loop {}: {error}", child.id());
            }
        }
    }
}

/// The program of this process. The build of the tests may have put another one in its place.
fn own_program() -> Result<PathBuf> {
    if cfg!(target_os = "linux") {
        return Ok(PathBuf::from("/proc/self/exe"));
    }
    env::current_exe().map_err(|error| format!("our own program: {error}"))
}

/// Is busy until the standard input ends.
pub(crate) fn run() -> Result<ExitCode> {
    // It ends with the process.
    drop(thread::spawn(|| {
        let mut turns = 0_u64;
        loop {
            turns = std::hint::black_box(turns.wrapping_add(1));
        }
    }));
    let mut input = stdin().lock();
    loop {
        match input.read(&mut [0; 64]) {
            Ok(0) => return Ok(ExitCode::SUCCESS),
            Ok(_) => {}
            Err(error) => return Err(format!("the standard input: {error}")),
        }
    }
}
