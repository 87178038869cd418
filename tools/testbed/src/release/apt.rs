//! Looks up and downloads packages of a suite of Debian, with the machine's own apt, beside what it is set up
//! for.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::Error;

/// Where Debian puts the keys of its archive.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// An apt with sources, lists and a state of its own. It knows one suite, so that one that is gone from the
/// mirror does not affect the others.
#[derive(Debug)]
pub(super) struct Apt {
    folder: PathBuf,
    suite: &'static str,
}

impl Apt {
    /// Sets it up in a folder.
    pub(super) fn new(folder: PathBuf, suite: &'static str) -> Result<Self, Error> {
        let mirror = mirror()?;
        let keys = if Path::new(KEYS).is_file() { format!("Signed-By: {KEYS}\n") } else { String::new() };
        for part in ["sources", "lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(folder.join(part)).map_err(Error::io(part))?;
        }
        let sources = format!("Types: deb\nURIs: {mirror}\nSuites: {suite}\nComponents: main\n{keys}");
        let write =
            |name: &str, text: &str| fs::write(folder.join(name), text).map_err(Error::io(name.to_owned()));
        write("sources/suite.sources", &sources)?;
        // Nothing is installed, so that nothing of what is needed is left out.
        write("status", "")?;
        Ok(Self { folder, suite })
    }

    /// Reads the lists of packages, unless they are there already.
    pub(super) fn lists(&self, anew: bool) -> Result<(), Error> {
        let mut lists = fs::read_dir(self.folder.join("lists")).into_iter().flatten().flatten();
        let is_read = lists.any(|list| list.file_name().to_string_lossy().contains("Packages"));
        if !is_read || anew {
            run(self.get().args(["-q", "update"]))?;
        }
        Ok(())
    }

    /// What it would install for these packages on an empty system: names and versions.
    pub(super) fn needed(&self, packages: &[&str]) -> Result<Vec<(String, String)>, Error> {
        let mut simulation = self.get();
        simulation.args(["--no-install-recommends", "-s", "-t", self.suite, "install"]).args(packages);
        Ok(installed_by(&run(&mut simulation)?))
    }

    /// Downloads packages into a folder.
    pub(super) fn download(&self, packages: &[(String, String)], folder: &Path) -> Result<(), Error> {
        let exact = packages.iter().map(|(name, version)| format!("{name}={version}"));
        run(self.get().args(["-q", "download"]).args(exact).current_dir(folder)).map(drop)
    }

    fn get(&self) -> Command {
        let mut command = Command::new("apt-get");
        for (name, value) in [
            ("Dir::Etc::sourcelist", "/dev/null"),
            ("Dir::Etc::preferences", "/dev/null"),
            ("Dir::Etc::preferencesparts", "/dev/null"),
            // Our folders, in place of the system's: no lock, and no user of its own for downloads, is
            // needed.
            ("Debug::NoLocking", "1"),
            ("APT::Sandbox::User", "root"),
            ("Acquire::Languages", "none"),
            // No network is soon told.
            ("APT::Update::Error-Mode", "any"),
            ("Acquire::Retries", "1"),
            ("Acquire::http::Timeout", "20"),
            ("Acquire::https::Timeout", "20"),
        ] {
            command.args(["-o", &format!("{name}={value}")]);
        }
        for (name, part) in [
            ("Dir::Etc::sourceparts", "sources"),
            ("Dir::State::lists", "lists"),
            ("Dir::State::status", "status"),
            ("Dir::Cache", "cache"),
        ] {
            command.args(["-o", &format!("{name}={}", self.folder.join(part).display())]);
        }
        command.env("LC_ALL", "C.UTF-8");
        command
    }
}

/// The mirror of Debian that this machine is set up for.
fn mirror() -> Result<String, Error> {
    let format = "$(RELEASE) $(COMPONENT) $(LABEL) $(REPO_URI)";
    let mut command = Command::new("apt-get");
    command.args(["indextargets", "--format", format, "Created-By: Packages"]);
    mirror_in(&run(&mut command)?).ok_or_else(|| Error::State("apt knows no mirror of Debian".into()))
}

/// Updates of a release, which may come from elsewhere, have a dash in their names. The label is known when
/// the lists were read.
fn mirror_in(targets: &str) -> Option<String> {
    let mut lines = targets.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    lines.find_map(|words| match &*words {
        [release, "main", "Debian" | "$(LABEL)", uri] if !release.contains('-') => Some((*uri).to_owned()),
        _ => None,
    })
}

/// Reads lines like `Inst libc6 (2.41-12 Debian:13.1/stable [amd64])`.
fn installed_by(simulation: &str) -> Vec<(String, String)> {
    let lines = simulation.lines().filter_map(|line| line.strip_prefix("Inst "));
    let words = lines.filter_map(|line| {
        let (name, rest) = line.split_once(' ')?;
        Some((name.to_owned(), rest.strip_prefix('(')?.split(' ').next()?.to_owned()))
    });
    words.collect()
}

/// Runs a program of the system and takes what it writes.
pub(super) fn run(command: &mut Command) -> Result<String, Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(Error::io(&program))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last: Vec<_> = said.lines().rev().filter(|line| !line.trim().is_empty()).take(2).collect();
    Err(Error::Client(format!("{program}: {}: {}", output.status, last.join("; "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_that_of_the_release_itself() {
        let targets = "nodistro main nodejs http://other/\nbookworm-security main Debian-Security http://a/\n\
                       bookworm contrib Debian http://b/\nbookworm main Debian http://c/debian/\n";
        assert_eq!(mirror_in(targets).as_deref(), Some("http://c/debian/"));
        assert_eq!(mirror_in("bookworm main $(LABEL) http://c/").as_deref(), Some("http://c/"));
        assert_eq!(mirror_in("jammy main Ubuntu http://d/"), None);
    }

    #[test]
    fn packages_are_read_from_a_simulation() {
        let simulation = "NOTE: This is only a simulation!\n\
                          Inst libc6 (2.41-12 Debian:13.1/stable [amd64]) []\nConf libc6 (2.41-12 [amd64])\n";
        assert_eq!(installed_by(simulation), [("libc6".to_owned(), "2.41-12".to_owned())]);
    }
}
