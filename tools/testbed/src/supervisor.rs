//! The shell process under which a server runs, so that nothing stays behind, whatever ends the tests.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::Error;

/// It holds the write end of a pipe that `supervisor.sh` reads. The kernel closes it however we end.
#[derive(Debug)]
pub(crate) struct Supervisor {
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    folder: PathBuf,
}

impl Supervisor {
    /// Starts a supervisor that makes a folder for the server `name` inside `parent`.
    pub(crate) fn start(parent: &Path, name: &str) -> Result<Self, Error> {
        // A prepared environment: a server must not depend on who runs the tests. Only what a Java
        // installation outside the standard place needs is handed on.
        let mut child = Command::new("/bin/sh")
            .args(["-c", include_str!("supervisor.sh"), "lockwell-supervisor"])
            .arg(parent)
            .arg(name)
            .env_clear()
            .env("PATH", search_path())
            .env("LC_ALL", "C.UTF-8")
            .envs(env::var_os("JAVA_HOME").map(|home| ("JAVA_HOME", home)))
            .current_dir("/")
            // Not in our group: Ctrl-C on the tests must leave it alive, to clean up.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(Error::io("/bin/sh for the supervisor"))?;
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::State("the supervisor has no pipes".into()));
        };
        let mut this = Self {
            child,
            requests: Some(requests),
            answers: BufReader::new(answers),
            folder: PathBuf::new(),
        };
        let folder = this.answer()?;
        if !folder.starts_with('/') {
            return Err(Error::State(format!("no folder in {}: {folder}", parent.display())));
        }
        this.folder = PathBuf::from(folder);
        Ok(this)
    }

    /// The server's folder. It goes when the supervisor goes.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Starts a script of the folder in the background. Its output is appended to the file `log`.
    pub(crate) fn spawn(&mut self, script: &str) -> Result<u32, Error> {
        let answer = self.ask(&format!("start {script}"))?;
        answer.parse().map_err(|_| Error::State(format!("the supervisor answered {answer:?} to a start")))
    }

    /// Collects a process that has ended, and says how it ended. Only to be called when it has ended: until
    /// the supervisor answers, it does not notice that we are gone.
    pub(crate) fn collect(&mut self, pid: u32) -> Result<String, Error> {
        self.ask(&format!("wait {pid}"))
    }

    fn ask(&mut self, request: &str) -> Result<String, Error> {
        let Some(pipe) = &mut self.requests else {
            return Err(Error::State("the supervisor was closed".into()));
        };
        pipe.write_all(format!("{request}\n").as_bytes()).map_err(Error::io("writing to the supervisor"))?;
        self.answer()
    }

    fn answer(&mut self) -> Result<String, Error> {
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(0) => Err(Error::State("the supervisor has gone".into())),
            Ok(_) => Ok(line.trim_end().to_owned()),
            Err(error) => Err(Error::Io("reading from the supervisor".into(), error)),
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        drop(self.requests.take());
        // Wait, so that the port, the memory and the folder are free again for whoever comes next.
        let deadline = Instant::now() + Duration::from_secs(20);
        while let Ok(None) = self.child.try_wait() {
            if Instant::now() > deadline {
                tracing::warn!(folder = %self.folder.display(), "the supervisor has not cleaned up yet");
                return;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}

fn search_path() -> std::ffi::OsString {
    let mut path = env::var_os("PATH").unwrap_or_default();
    if !path.is_empty() {
        path.push(":");
    }
    path.push("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    path
}
