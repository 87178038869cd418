//! An example that runs beside its test.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::programs::program;

/// How long it may take to say what is waited for.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A program, killed when it is dropped.
pub(crate) struct Running {
    child: Child,
    /// Lines of its output that were not read yet.
    pub(crate) lines: Receiver<String>,
}

impl Running {
    pub(crate) fn start<A: AsRef<OsStr>>(name: &str, args: &[A]) -> Self {
        let mut child =
            Command::new(program(name)).args(args).stdout(Stdio::piped()).spawn().expect("it starts");
        let out = BufReader::new(child.stdout.take().expect("a pipe"));
        let (tell, lines) = channel();
        // The end of the test drops the receiver.
        thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
        Self { child, lines }
    }

    /// Waits for a line with these words.
    pub(crate) fn says(&self, words: &str) -> String {
        let end = Instant::now() + TIMEOUT;
        let mut lines = Vec::new();
        while let Ok(line) = self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            if line.contains(words) {
                return line;
            }
            lines.push(line);
        }
        panic!("it does not say {words:?} but {lines:?}")
    }

    /// Ends it as a service manager does; answers what it says meanwhile.
    pub(crate) fn terminate(mut self) -> String {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("it runs");
        assert!(self.child.wait().expect("it ends").success());
        self.lines.iter().collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // As by the end of its host.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
