//! Lock clients of other makers, in processes of their own.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use tokio::sync::mpsc;

/// Which client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Maker {
    Curator,
    Kazoo,
}

/// A process that takes and gives locks as it is told.
pub(crate) struct Other {
    child: Child,
    input: ChildStdin,
    words: mpsc::UnboundedReceiver<String>,
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/zk/other")
}

/// What is made once for all tests, in a folder that stays for the next run. `made_of` says what it is made of.
#[allow(clippy::incompatible_msrv)] // The tests run with a newer Rust than the package needs.
fn once(
    name: &str,
    made_of: &str,
    make: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<PathBuf, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    // Each test is a process, and one of them makes it.
    let turn = File::create(folder.with_extension("lock")).map_err(failed)?;
    turn.lock().map_err(failed)?;
    let done = folder.join("made-of");
    if fs::read_to_string(&done).is_ok_and(|text| text == made_of) {
        return Ok(folder);
    }
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(failed)?;
    }
    fs::create_dir_all(&folder).map_err(failed)?;
    make(&folder)?;
    fs::write(done, made_of).map_err(failed)?;
    Ok(folder)
}

/// Compiles the Java driver.
fn java() -> Result<Vec<String>, String> {
    let class_path = testbed::ZooKeeper::curator_class_path().map_err(|error| error.to_string())?;
    let source = sources().join("Driver.java");
    let text = fs::read_to_string(&source).map_err(|error| format!("{}: {error}", source.display()))?;
    let folder = once("curator-driver", &format!("{class_path}\n{text}"), |folder| {
        let compiled =
            Command::new("javac").args(["-cp", &class_path, "-d"]).arg(folder).arg(&source).output();
        let compiled = compiled
            .map_err(|error| format!("javac is missing: apt install default-jdk-headless: {error}"))?;
        let said = String::from_utf8_lossy(&compiled.stderr).into_owned();
        if compiled.status.success() { Ok(()) } else { Err(said) }
    })?;
    let path = format!("{}:{class_path}", folder.display());
    let quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off".to_owned();
    Ok(vec!["java".into(), "-Xmx128m".into(), quiet, "-cp".into(), path, "Driver".into()])
}

/// A Python that has kazoo: the one of the machine, or one of our own with kazoo from the package index.
fn python() -> Result<Vec<String>, String> {
    let runs = |program: &Path, arguments: &[&str]| {
        let status = Command::new(program).args(arguments).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    let system = PathBuf::from("python3");
    let program = if runs(&system, &["-c", "import kazoo"]) {
        system
    } else {
        let kazoo = "kazoo==2.11.0";
        let folder = once("kazoo", kazoo, |folder| {
            let place = folder.display().to_string();
            let pip = ["-m", "pip", "install", "-q", "--disable-pip-version-check", kazoo];
            if runs(&system, &["-m", "venv", &place]) && runs(&folder.join("bin/python"), &pip) {
                return Ok(());
            }
            Err("kazoo is missing and cannot be had: pip install kazoo".to_owned())
        })?;
        folder.join("bin/python")
    };
    Ok(vec![program.display().to_string(), sources().join("driver.py").display().to_string()])
}

impl Other {
    /// Starts one. `None`, with a word why, where it is not installed; a failure where everything must be.
    pub(crate) async fn start(maker: Maker, server: &str) -> Option<Self> {
        let command = match maker {
            Maker::Curator => java(),
            Maker::Kazoo => python(),
        };
        let command = match command {
            Ok(command) => command,
            Err(why) => {
                testbed::lacks(&format!("{maker:?}: {why}"));
                return None;
            }
        };
        let mut child = Command::new(&command[0])
            .args(&command[1..])
            .arg(server)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the driver starts");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let (say, words) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if say.send(line).is_err() {
                    return;
                }
            }
        });
        let input = child.stdin.take().expect("a pipe");
        let mut this = Self { child, input, words };
        assert_eq!(this.word().await, "ready");
        Some(this)
    }

    fn tell(&mut self, words: &str) {
        writeln!(self.input, "{words}").and_then(|()| self.input.flush()).expect("the driver listens");
    }

    /// Asks for a lock: `mutex`, `read` or `write`.
    pub(crate) fn ask(&mut self, id: &str, kind: &str, path: &str) {
        self.tell(&format!("{id} {kind} {path}"));
    }

    /// Gives a lock back.
    pub(crate) fn give(&mut self, id: &str) {
        self.tell(id);
    }

    /// Takes and gives a mutex by an object that is made once for each path, and kept. Says what came of it
    /// as a word.
    pub(crate) fn again(&mut self, path: &str) {
        self.tell(&format!("again {path}"));
    }

    /// The next word of the driver.
    pub(crate) async fn word(&mut self) -> String {
        let word = tokio::time::timeout(Duration::from_secs(60), self.words.recv()).await;
        word.expect("the driver says something").expect("the driver lives")
    }

    /// Whether it is silent for some time.
    pub(crate) async fn is_silent(&mut self) -> bool {
        tokio::time::timeout(Duration::from_millis(300), self.words.recv()).await.is_err()
    }

    /// The time of an uncontended acquire and release, over so many.
    pub(crate) async fn bench(&mut self, path: &str, cycles: u32) -> Duration {
        self.tell(&format!("bench {path} {cycles}"));
        let word = self.word().await;
        Duration::from_nanos(word.strip_prefix("bench ").and_then(|n| n.parse().ok()).expect("a time"))
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It fails only if it has ended.
        if self.child.kill().is_ok() {
            drop(self.child.wait());
        }
    }
}
