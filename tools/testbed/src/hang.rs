//! A disk that hangs, under a process that runs already.
//!
//! The programs of etcd call the kernel without the C library, so a library that is preloaded changes nothing
//! for them. A tracer does.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{Error, programs::find};

/// How long the tracer may take to begin.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Longer than any test.
const HANG: &str = "inject=fsync,fdatasync:delay_enter=3600s";

/// What it writes when all threads of the process are traced.
const BEGUN: &str = "attached";

/// As long as this lives, each sync of one file waits. Its process goes on with all else.
#[derive(Debug)]
pub struct HungSyncs {
    tracer: Child,
}

impl HungSyncs {
    /// Whether the program for that is on this machine, and if not, why.
    pub fn installed() -> Result<(), Error> {
        program().map(drop)
    }

    /// Blocks until the syncs of this file hang in this process, which may have opened it before.
    pub(crate) fn begin(pid: u32, file: &Path) -> Result<Self, Error> {
        let failed = || Error::io("strace");
        let words = tempfile::NamedTempFile::new().map_err(failed())?;
        let tracer = Command::new(program()?)
            .args(["-f", "-o", "/dev/null", "-e", "trace=fsync,fdatasync", "-e", HANG])
            .args(["-p", &pid.to_string(), "-P"])
            .arg(file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(words.reopen().map_err(failed())?)
            .spawn()
            .map_err(failed())?;
        let mut this = Self { tracer };
        let begun = Instant::now();
        loop {
            let said = fs::read_to_string(words.path()).map_err(failed())?;
            if said.contains(BEGUN) {
                return Ok(this);
            }
            let has_ended = this.tracer.try_wait().map_err(failed())?.is_some();
            if has_ended || begun.elapsed() > TIMEOUT {
                return Err(Error::Client(format!("strace does not begin: {said}")));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

fn program() -> Result<String, Error> {
    find("strace", "strace")
}

impl Drop for HungSyncs {
    fn drop(&mut self) {
        // The kernel lets the process go on when its tracer is gone. One that has ended is as good.
        if self.tracer.kill().is_ok() {
            drop(self.tracer.wait());
        }
    }
}
