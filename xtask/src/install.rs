//! Installs missing packages, prints what it does, and goes on without those that cannot be installed.

use std::process::Command;

use crate::packages::Package;
use crate::shell::{line, text};

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

/// Installs these packages as far as possible.
pub(crate) fn ensure(packages: impl IntoIterator<Item = &'static Package>, allowed: bool) {
    let missing: Vec<_> = packages.into_iter().filter(|package| !package.is_installed()).collect();
    if missing.is_empty() {
        return;
    }
    let apt = if allowed { Apt::find() } else { Err("--no-install forbids it".to_owned()) };
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

/// Takes `--no-install` out of the arguments that are to be handed on. Whether installing is allowed.
pub(crate) fn allowed(args: &mut Vec<String>) -> bool {
    // What follows a `--` belongs to the program.
    let end = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
    let Some(at) = args[..end].iter().position(|arg| arg == "--no-install") else { return true };
    args.remove(at);
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_is_taken_out_wherever_it_stands() {
        for (line, expected, left) in [
            ("--no-install --quick", false, "--quick"),
            ("--quick --no-install", false, "--quick"),
            ("--quick", true, "--quick"),
            ("-p cli -- --no-install", true, "-p cli -- --no-install"),
        ] {
            let mut args = line.split(' ').map(str::to_owned).collect();
            assert_eq!(allowed(&mut args), expected, "{line}");
            assert_eq!(args.join(" "), left);
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
