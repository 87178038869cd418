//! A folder with a lock file in it, and processes that do not outlive their test.

use std::future::Future;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use lockwell::Locks;
use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process};
use tempfile::TempDir;

/// How long anything may take on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A folder of its own for each test.
pub(crate) struct Site {
    folder: TempDir,
    /// The lock server, if it is not the file of this folder.
    server: Option<String>,
}

impl Site {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), server: None }
    }

    /// One with this lock server.
    pub(crate) fn at(url: &str) -> Self {
        Self { server: Some(url.to_owned()), ..Self::new() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn url(&self) -> String {
        let file = || format!("sqlite://{}", self.path("locks.db").display());
        self.server.clone().unwrap_or_else(file)
    }

    /// The contents of a file of the folder, without the line end. Empty while there is no such file.
    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default().trim_end().to_owned()
    }

    /// Waits for a file with a whole line in it.
    pub(crate) fn wait_for_file(&self, name: &str) -> String {
        let whole = || std::fs::read_to_string(self.path(name)).is_ok_and(|text| text.ends_with('\n'));
        wait_until(&format!("the file {name}"), whole);
        self.read(name)
    }

    /// `lockwell` with the lock file of this folder, or its server, in this folder.
    pub(crate) fn lockwell(&self, args: &[&str]) -> Command {
        let mut command = lockwell(args);
        command.env("LOCKWELL_URL", self.url()).current_dir(self.folder.path());
        command
    }

    /// Runs `lockwell` to its end.
    pub(crate) fn finish(&self, args: &[&str]) -> Finished {
        finish(&mut self.lockwell(args))
    }

    /// Makes the lock file, for those who only look.
    pub(crate) fn prepared(self) -> Self {
        assert_eq!(self.finish(&["run", "first", "--", "true"]).status, 0);
        self
    }

    /// Starts a holder that stays until the file `go` is there, with these options.
    pub(crate) fn holder(&self, name: &str, options: &[&str]) -> Running {
        let script = "echo $$ > started; while [ ! -e go ]; do sleep 0.02; done";
        let args = [&["run"], options, &[name, "--", "sh", "-c", script]].concat();
        let run = Running::start(&mut self.lockwell(&args));
        self.wait_for_file("started");
        run
    }

    /// Lets the holder end.
    pub(crate) fn end(&self, holder: Running) {
        std::fs::write(self.path("go"), "").unwrap();
        assert_eq!(holder.finish().status, 0);
    }

    pub(crate) async fn locks(&self) -> Locks {
        lockwell::connect(self.url()).await.unwrap()
    }

    /// How many wait for a lock.
    pub(crate) fn waiters(&self, name: &str) -> u64 {
        let status = self.finish(&["status", "--json", name]);
        let status: serde_json::Value = serde_json::from_str(&status.out).expect(&status.err);
        status["waiters"].as_u64().unwrap()
    }
}

/// `lockwell` without a lock server.
pub(crate) fn lockwell(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockwell"));
    command.args(args).env_remove("LOCKWELL_URL").env_remove("LOCKWELL_HELD").env_remove("RUST_LOG");
    command.env_remove("LOCKWELL_TRACE").env_remove("TRACEPARENT");
    // Not the terminal that the tests may have been started from.
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// How a process ended, and what it said.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Finished {
    fn from(output: Output) -> Self {
        Self {
            status: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Finished {
    /// Checks the status, and that there is one line of complaint with this in it, beside warnings.
    #[track_caller]
    pub(crate) fn complains(&self, status: i32, part: &str) {
        assert_eq!(self.status, status, "{self:?}");
        let complaints: Vec<_> =
            self.err.lines().filter(|line| !line.starts_with("lockwell: warning: ")).collect();
        let [complaint] = complaints[..] else { panic!("{self:?}") };
        assert!(complaint.starts_with("lockwell: ") && complaint.contains(part), "{self:?}");
    }

    /// Checks that a warning has this in it.
    #[track_caller]
    pub(crate) fn warns(&self, part: &str) {
        let mut warnings = self.err.lines().filter_map(|line| line.strip_prefix("lockwell: warning: "));
        assert!(warnings.any(|line| line.contains(part)), "{self:?}");
    }
}

pub(crate) fn finish(command: &mut Command) -> Finished {
    Running::start(command).finish()
}

/// A process under way. It is killed when the test is over.
pub(crate) struct Running(Option<Child>);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(Some(command.spawn().unwrap()))
    }

    /// Its standard input, which was a pipe.
    pub(crate) fn input(&mut self) -> ChildStdin {
        self.0.as_mut().unwrap().stdin.take().unwrap()
    }

    /// Its standard output.
    pub(crate) fn output(&mut self) -> ChildStdout {
        self.0.as_mut().unwrap().stdout.take().unwrap()
    }

    pub(crate) fn pid(&self) -> Pid {
        pid_of(self.0.as_ref().unwrap().id())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.0.as_mut().unwrap().try_wait().unwrap().is_none()
    }

    /// Waits for the end of the process, not of those that it has left behind with the same output.
    pub(crate) fn finish(self) -> Finished {
        self.finish_within(TIMEOUT)
    }

    /// The same with a longer timeout.
    pub(crate) fn finish_within(mut self, timeout: Duration) -> Finished {
        wait_for(timeout, "the end of lockwell", || !self.is_running());
        self.0.take().unwrap().wait_with_output().unwrap().into()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            // It may have ended by itself.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// The process group of a command that outlives its lockwell. It is killed when the test is over.
pub(crate) struct Group(pub(crate) Pid);

impl Group {
    pub(crate) fn of(text: &str) -> Self {
        Self(pid_of(text.parse().unwrap()))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // It may have ended by itself.
        kill_process_group(self.0, Signal::KILL).unwrap_or_default();
    }
}

pub(crate) fn pid_of(number: u32) -> Pid {
    Pid::from_raw(number.cast_signed()).unwrap()
}

/// Whether a process runs. A zombie that nobody collects does not count.
pub(crate) fn is_alive(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    match stat {
        Ok(stat) => !stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z")),
        Err(_) => !std::path::Path::new("/proc/self").exists() && test_kill_process(pid).is_ok(),
    }
}

/// What the system says of a process after its name: the state, the parent, the group.
pub(crate) fn stat(pid: Pid) -> Vec<String> {
    let text = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    text.rsplit(')').next().unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

pub(crate) fn is_stopped(pid: Pid) -> bool {
    stat(pid).first().is_some_and(|state| state == "T")
}

#[track_caller]
pub(crate) fn wait_until(what: &str, done: impl FnMut() -> bool) {
    wait_for(TIMEOUT, what, done);
}

#[track_caller]
fn wait_for(timeout: Duration, what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < timeout, "{what}: not within {timeout:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a test that uses the library.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}
