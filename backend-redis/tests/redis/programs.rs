//! Lock clients of other languages, driven line by line.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::slice;
use std::sync::LazyLock;

use testbed::{Redis, lacks};

/// Where what was downloaded is kept, so that the next run is quick.
const CACHE: &str = env!("CARGO_TARGET_TMPDIR");

/// Where the drivers are.
const DRIVERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/redis");

/// A program that answers each line with a line.
pub(crate) struct Program {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Program {
    /// redis-py on this server. `None` where it cannot be had.
    pub(crate) fn redis_py(server: &Redis) -> Option<Self> {
        static PYTHON: LazyLock<Result<PathBuf, String>> = LazyLock::new(install_redis_py);
        let python = usable(PYTHON.as_ref())?;
        Self::start(Command::new(python), "redis_py.py", slice::from_ref(server))
    }

    /// node-redlock on these servers. `None` where it cannot be had.
    pub(crate) fn node_redlock(nodes: &[Redis]) -> Option<Self> {
        static MODULES: LazyLock<Result<PathBuf, String>> = LazyLock::new(install_node_redlock);
        let modules = usable(MODULES.as_ref())?;
        let mut node = Command::new("node");
        node.env("NODE_PATH", modules);
        Self::start(node, "node_redlock.js", nodes)
    }

    fn start(mut command: Command, driver: &str, servers: &[Redis]) -> Option<Self> {
        let addresses = servers.iter().map(|server| server.addr().to_string());
        command.arg(Path::new(DRIVERS).join(driver)).args(addresses);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let started = command.spawn().inspect_err(|error| lacks(&format!("{command:?}: {error}")));
        let mut child = started.ok()?;
        let (input, output) = (child.stdin.take(), child.stdout.take().expect("a pipe"));
        Some(Self { child, input, output: BufReader::new(output) })
    }

    /// Sends a line.
    pub(crate) fn send(&mut self, line: &str) {
        writeln!(self.input.as_mut().expect("open"), "{line}").expect("it listens");
    }

    /// Waits for the answer.
    pub(crate) fn answer(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("it answers");
        line.trim_end().to_owned()
    }

    /// Sends a line and waits for the answer.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.send(line);
        self.answer()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The end of its input ends it; if it hangs, this does.
        drop(self.input.take());
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn usable(installed: Result<&PathBuf, &String>) -> Option<PathBuf> {
    installed.inspect_err(|why| lacks(why)).ok().cloned()
}

fn install_redis_py() -> Result<PathBuf, String> {
    let folder = Path::new(CACHE).join("redis-py");
    let python = folder.join("bin/python");
    once(&folder, || {
        run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
        run(Command::new(&python).args(["-m", "pip", "install", "--quiet", "redis>=5,<9"]))
    })?;
    Ok(python)
}

fn install_node_redlock() -> Result<PathBuf, String> {
    let folder = Path::new(CACHE).join("node-redlock");
    once(&folder, || {
        run(Command::new("npm")
            .args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"])
            .arg(&folder)
            .args(["redlock@5.0.0-beta.2", "ioredis@5"]))
    })?;
    Ok(folder.join("node_modules"))
}

/// Installs into a folder, unless that was done before and came to its end.
#[allow(clippy::incompatible_msrv)] // The tests run with a newer Rust than the package needs.
fn once(folder: &Path, install: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    // One process at a time.
    let turn = File::create(folder.with_extension("lock")).map_err(failed)?;
    turn.lock().map_err(failed)?;
    let done = folder.join("done");
    if done.exists() {
        return Ok(());
    }
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(failed)?;
    }
    fs::create_dir_all(folder).map_err(failed)?;
    install()?;
    fs::write(&done, "").map_err(failed)
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr)))
}
