//! Lock clients of other makers, in processes of their own.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
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

/// Compiles the Java driver. The folder lives as long as this process.
fn java() -> Result<Vec<String>, String> {
    static FOLDER: OnceLock<Result<tempfile::TempDir, String>> = OnceLock::new();
    let class_path = testbed::ZooKeeper::curator_class_path().map_err(|error| error.to_string())?;
    let folder = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let compiled = Command::new("javac")
            .args(["-cp", &class_path, "-d"])
            .arg(folder.path())
            .arg(sources().join("Driver.java"))
            .output()
            .map_err(|error| format!("javac is missing: apt install default-jdk-headless: {error}"))?;
        if compiled.status.success() {
            Ok(folder)
        } else {
            Err(String::from_utf8_lossy(&compiled.stderr).into_owned())
        }
    });
    let folder = folder.as_ref().map_err(Clone::clone)?;
    let path = format!("{}:{class_path}", folder.path().display());
    let quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off".to_owned();
    Ok(vec!["java".into(), "-Xmx128m".into(), quiet, "-cp".into(), path, "Driver".into()])
}

/// A Python that has kazoo: the one of the machine, or one of our own with kazoo from the package index.
fn python() -> Result<Vec<String>, String> {
    static PROGRAM: OnceLock<Result<(String, Option<tempfile::TempDir>), String>> = OnceLock::new();
    let runs = |program: &str, arguments: &[&str]| {
        Command::new(program)
            .args(arguments)
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    let program = PROGRAM.get_or_init(|| {
        if runs("python3", &["-c", "import kazoo"]) {
            return Ok(("python3".to_owned(), None));
        }
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let place = folder.path().display().to_string();
        let program = format!("{place}/bin/python");
        if runs("python3", &["-m", "venv", &place])
            && runs(&program, &["-m", "pip", "install", "-q", "--disable-pip-version-check", "kazoo==2.11.0"])
        {
            return Ok((program, Some(folder)));
        }
        Err("kazoo is missing and cannot be had: pip install kazoo".to_owned())
    });
    let (program, _) = program.as_ref().map_err(Clone::clone)?;
    Ok(vec![program.clone(), sources().join("driver.py").display().to_string()])
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
