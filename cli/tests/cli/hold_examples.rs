//! The programs of `examples/hold`, in each language that the machine has.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Finished, Running, Site, block_on, wait_until};

/// How long a program may take on a loaded machine: some are compiled first.
const TIMEOUT: Duration = Duration::from_mins(1);

/// An example: the program of its language, and the file.
struct Example {
    program: &'static str,
    file: &'static str,
}

impl Example {
    /// Whether it can be run here.
    fn is_possible(&self) -> bool {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let possible = std::env::split_paths(&path).any(|folder| folder.join(self.program).is_file());
        if !possible {
            // The others come with what the tests need besides.
            let tell = if self.program == "go" { testbed::cannot_run } else { testbed::not_run };
            tell("", &format!("there is no {}", self.program));
        }
        possible
    }

    /// The program itself. `go run` would be another process before it.
    fn command(&self, site: &Site) -> Command {
        let file = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/hold")).join(self.file);
        let mut command = Command::new(self.program);
        if self.program != "go" {
            command.arg(file);
            return command;
        }
        let program = site.path("program");
        if !program.exists() {
            command.args(["build", "-o"]).args([&program, &file]).env("GOCACHE", site.path("cache"));
            let built: Finished = command.output().unwrap().into();
            assert_eq!(built.status, 0, "{built:?}");
        }
        Command::new(program)
    }

    /// The example with `lockwell` in its path.
    fn start(&self, site: &Site, name: &str, steps: u32) -> Running {
        let mut command = self.command(site);
        command.args([name, &steps.to_string()]);
        let ours = PathBuf::from(env!("CARGO_BIN_EXE_lockwell"));
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{path}", ours.parent().unwrap().display()));
        command.env("LOCKWELL_URL", site.url()).env_remove("LOCKWELL_HELD").env_remove("RUST_LOG");
        command.current_dir(site.path("")).stdin(Stdio::null());
        command.stdout(File::create(site.path("out")).unwrap());
        command.stderr(File::create(site.path("err")).unwrap());
        Running::start(&mut command)
    }

    fn is_right(&self) {
        if !self.is_possible() {
            return;
        }
        let site = Site::new();
        // It works under the lock, and frees it.
        let done = ended(&site, self.start(&site, "a \"b\"", 3));
        assert_eq!(done.status, 0, "{}: {done:?}", self.file);
        let lines: Vec<_> = done.out.lines().collect();
        assert!(
            lines[0].strip_prefix("granted with token ").is_some_and(|it| it.parse::<u64>().is_ok()),
            "{done:?}"
        );
        assert_eq!(lines[1..], ["step 1 of 3", "step 2 of 3", "step 3 of 3", "released"], "{done:?}");
        let free = site.finish(&["run", "--no-wait", "a \"b\"", "--", "true"]);
        assert_eq!(free.status, 0, "{}: {free:?}", self.file);

        // A loss ends the work, long before its last step.
        let running = self.start(&site, "a", 10_000);
        wait_until("the first step", || site.read("out").contains("step 1 of"));
        site.finish(&["run", "--no-wait", "a", "--", "true"]).complains(75, "is held by");
        block_on(async { site.locks().await.force_release("a").await.unwrap() });
        let lost = ended(&site, running);
        assert!(
            lost.status == 76 && lost.out.lines().last().unwrap().starts_with("lost"),
            "{}: {lost:?}",
            self.file
        );

        // Its death frees the lock at once.
        let running = self.start(&site, "a", 10_000);
        wait_until("the first step", || site.read("out").contains("step 1 of"));
        let begun = Instant::now();
        running.signal(rustix::process::Signal::KILL);
        let free = site.finish(&["run", "--wait", "20s", "a", "--", "true"]);
        assert_eq!(free.status, 0, "{}: {free:?}", self.file);
        assert!(begun.elapsed() < Duration::from_secs(8), "by the end of the lease only: {}", self.file);

        // It is told that the lock is not free.
        let holder = site.holder("a", &["--label", "job 7"]);
        let refused = ended(&site, self.start(&site, "a", 1));
        assert_eq!(refused.status, 75, "{}: {refused:?}", self.file);
        assert!(refused.out.starts_with("not obtained: ") && refused.out.contains("job 7"), "{refused:?}");
        site.end(holder);
    }
}

/// How an example ended, and what it said.
fn ended(site: &Site, running: Running) -> Finished {
    let Finished { status, .. } = running.finish_within(TIMEOUT);
    Finished { status, out: site.read("out"), err: site.read("err") }
}

#[test]
fn python() {
    Example { program: "python3", file: "hold.py" }.is_right();
}

#[test]
fn node() {
    Example { program: "node", file: "hold.mjs" }.is_right();
}

#[test]
fn deep_java() {
    Example { program: "java", file: "Hold.java" }.is_right();
}

#[test]
fn go() {
    Example { program: "go", file: "hold.go" }.is_right();
}

#[test]
fn shell() {
    Example { program: "sh", file: "hold.sh" }.is_right();
}

/// Each file of the folder has a test, and the guide names it.
#[test]
fn none_is_forgotten() {
    let tests = include_str!("hold_examples.rs");
    let guide = include_str!("../../../docs/hold.md");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/hold");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(tests.contains(&format!("file: \"{name}\"")), "no test runs {name}");
        assert!(guide.contains(&format!("[{name}][../examples/hold/{name}]")), "{name}");
        seen += 1;
    }
    assert!(seen >= 5, "{seen}");
}
