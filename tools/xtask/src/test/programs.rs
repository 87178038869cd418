//! The test programs of the workspace, and how each of them is run.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use super::args::Servers;
use crate::shell::{Result, cargo, line, root};

/// What the tests of a program mostly do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// They wait, for the ends of leases or for servers. Several such programs run side by side.
    Waiting,
    /// They compute. One such program runs at a time.
    Computing,
    /// They compute, and only `--deep` runs them, or who names them.
    Deep,
    /// They work with leases of some milliseconds, so no other tests run beside them.
    Alone,
}

/// How a program is run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) class: Class,
    /// How many of its tests run at a time. The programs with a `main` of their own choose that themselves.
    pub(crate) threads: Option<usize>,
}

/// The programs whose tests wait or take long, the longest first; and what else is not run like the others.
const PLANS: [(&str, Class, Option<usize>); 16] = [
    (CONFORMANCE, Class::Waiting, None),
    ("cli/cli", Class::Waiting, Some(4)),
    ("backend-sql/sql", Class::Waiting, Some(4)),
    ("backend-redis/redis", Class::Waiting, Some(4)),
    // Each server is a Java machine.
    ("backend-zk/zk", Class::Waiting, Some(3)),
    ("compare-bench/smoke", Class::Waiting, Some(2)),
    ("backend-etcd/etcd", Class::Waiting, Some(4)),
    ("conformance/bites", Class::Waiting, None),
    ("lockcore/lib", Class::Waiting, Some(8)),
    ("tools/testbed/servers", Class::Waiting, Some(4)),
    ("tools/testbed/proxy", Class::Waiting, Some(8)),
    ("compare-bench/faults", Class::Waiting, Some(4)),
    ("tools/faults/lib", Class::Alone, Some(2)),
    ("lockwell/operations", Class::Waiting, Some(2)),
    ("compare-bench/browser", Class::Deep, Some(2)),
    ("cli/rolling", Class::Deep, Some(4)),
];

const CONFORMANCE: &str = "lockwell/conformance";

/// How many cases of the conformance suite run at a time if they run on all servers. As many as it chooses
/// itself take longer than all other programs together, and leave the processors idle half of the time.
const ON_ALL_SERVERS: usize = 12;

/// The usual one.
const OTHERS: Plan = Plan { class: Class::Computing, threads: Some(2) };

/// A test program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// The folder of its package, and its name or `lib` or `bin` for unit tests.
    pub(crate) title: String,
    pub(crate) file: PathBuf,
    /// The folder of its package.
    pub(crate) folder: PathBuf,
}

#[derive(Debug, Deserialize)]
struct Message {
    reason: String,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
struct Target {
    kind: Vec<String>,
    name: String,
}

#[derive(Debug, Deserialize)]
struct Profile {
    test: bool,
}

impl Program {
    /// Where it stands in the list of plans; programs that are not there come last.
    pub(crate) fn place(&self) -> usize {
        PLANS.iter().position(|(title, ..)| *title == self.title).unwrap_or(PLANS.len())
    }

    pub(crate) fn plan(&self) -> Plan {
        let listed = PLANS.get(self.place());
        listed.map_or(OTHERS, |&(_, class, threads)| Plan { class, threads })
    }

    /// How many of its tests run at a time, unless it chooses that itself.
    pub(crate) fn threads(&self, servers: Servers) -> Option<usize> {
        let is_long = servers == Servers::All && self.title == CONFORMANCE;
        if is_long { Some(ON_ALL_SERVERS) } else { self.plan().threads }
    }

    /// What cargo says of something that it has built, if it is a test program.
    fn parse(message: &str, root: &Path) -> Option<Self> {
        let message: Message = serde_json::from_str(message).ok()?;
        if message.reason != "compiler-artifact" || !message.profile?.test {
            return None;
        }
        let (target, folder) = (message.target?, message.manifest_path?.parent()?.to_owned());
        let name = match target.kind.first()?.as_str() {
            "test" | "example" => target.name,
            kind @ ("lib" | "bin") => kind.to_owned(),
            _ => return None,
        };
        let package = folder.strip_prefix(root).ok()?.to_str()?;
        let package = if package.is_empty() { "lockwell" } else { package };
        Some(Self { title: format!("{package}/{name}"), file: message.executable?, folder })
    }
}

/// Builds the test programs that these arguments of `cargo test` name.
pub(crate) fn build(args: &[String]) -> Result<Vec<Program>> {
    let mut building = cargo();
    building.arg("test").args(args).args(["--no-run", "--message-format", "json-render-diagnostics"]);
    eprintln!("xtask: {}", line(&building));
    let output = building.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("{}: {error}", line(&building)))?;
    if !output.status.success() {
        return Err("the tests cannot be built".to_owned());
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let mut programs: Vec<_> = messages.lines().filter_map(|line| Program::parse(line, root())).collect();
    programs.sort_by_key(Program::place);
    Ok(programs)
}

/// How a program of tests is started.
pub(crate) fn command(program: &Program) -> Command {
    let mut command = match program.plan().class {
        Class::Waiting | Class::Alone => Command::new(&program.file),
        Class::Computing | Class::Deep => patient(&program.file),
    };
    command.current_dir(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder);
    // The reports of libtest are not stable yet, and it refuses them without this variable. Tests that start
    // a compiler take it out, since it would build everything anew.
    command.env("RUSTC_BOOTSTRAP", "1").args(["--format", "json", "-Z", "unstable-options"]);
    // What a test says is enough; a backtrace hides it.
    command.env("RUST_BACKTRACE", std::env::var_os("RUST_BACKTRACE").unwrap_or_else(|| "0".into()));
    command.stdin(Stdio::null());
    command
}

/// A command of lower priority: what computes must not delay what waits, and then has a moment to act. It is
/// not the lowest one, with which it would never end beside other programs of the machine.
pub(crate) fn patient(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("nice");
    command.args(["-n", "5"]).arg(program);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(package: &str, kind: &str, name: &str, test: bool) -> Option<String> {
        let line = format!(
            r#"{{"reason":"compiler-artifact","package_id":"x","manifest_path":"/house/{package}Cargo.toml",
            "target":{{"kind":["{kind}"],"crate_types":["bin"],"name":"{name}"}},"profile":{{"opt_level":"0","test":{test}}},
            "executable":"/target/debug/deps/{name}-0123"}}"#
        );
        Program::parse(&line.replace('\n', " "), Path::new("/house")).map(|program| program.title)
    }

    #[test]
    fn test_programs_have_short_titles() {
        assert_eq!(parsed("backend-sql/", "test", "sql", true).as_deref(), Some("backend-sql/sql"));
        assert_eq!(parsed("lockcore/", "lib", "lockcore", true).as_deref(), Some("lockcore/lib"));
        assert_eq!(parsed("cli/", "bin", "lockwell", true).as_deref(), Some("cli/bin"));
        assert_eq!(parsed("", "test", "conformance", true).as_deref(), Some("lockwell/conformance"));
        assert_eq!(parsed("cli/", "bin", "lockwell", false), None);
        assert_eq!(
            Program::parse(r#"{"reason":"build-finished","success":true}"#, Path::new("/house")),
            None
        );
    }

    /// A plan for a program that does not exist any more would be forgotten.
    #[test]
    fn every_plan_is_for_a_program() {
        for (title, ..) in PLANS {
            let (folder, name) = title.rsplit_once("/").expect("a folder and a name");
            let folder = if folder == "lockwell" { root().to_owned() } else { root().join(folder) };
            let file = folder.join("tests").join(name);
            let is_there = if name == "lib" {
                folder.join("src/lib.rs").is_file()
            } else {
                file.with_extension("rs").is_file() || file.join("main.rs").is_file()
            };
            assert!(is_there, "{title}");
        }
    }
}
