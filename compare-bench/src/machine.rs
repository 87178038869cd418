//! On what the figures were taken.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde::Serialize;

/// The machine.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) cpu: String,
    pub(crate) kernel: String,
    pub(crate) memory_mib: u64,
}

/// The program that took the figures.
#[derive(Debug, Serialize)]
pub(crate) struct Build {
    pub(crate) version: &'static str,
    /// "release", or "debug", whose figures mean nothing.
    pub(crate) profile: &'static str,
    pub(crate) git_commit: Option<String>,
    /// Whether the checkout had changes that were not committed.
    pub(crate) git_dirty: Option<bool>,
}

impl Machine {
    pub(crate) fn look() -> Self {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let field = |file: &str, name: &str| field(&fs::read_to_string(file).unwrap_or_default(), name);
        let memory = field("/proc/meminfo", "MemTotal").unwrap_or_default();
        Self {
            cores: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            cpu: field("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            kernel: format!("{} {}", std::env::consts::OS, kernel.trim()),
            memory_mib: memory.trim_end_matches(" kB").parse::<u64>().unwrap_or_default() / 1024,
        }
    }
}

impl Build {
    pub(crate) fn look() -> Self {
        let status = git(&["status", "--porcelain", "--untracked-files=no"]);
        Self {
            version: env!("CARGO_PKG_VERSION"),
            profile: if cfg!(debug_assertions) { "debug" } else { "release" },
            git_commit: git(&["rev-parse", "HEAD"]),
            git_dirty: status.map(|changes| !changes.is_empty()),
        }
    }
}

/// The first value of `name` in lines of the form `name : value`.
fn field(text: &str, name: &str) -> Option<String> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.into_iter().find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
}

/// What git says about the checkout that this program was built from, if it is still there.
fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(["-C", env!("CARGO_MANIFEST_DIR")]).args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// The kind of file system that a folder is on.
pub(crate) fn file_system(folder: &Path) -> String {
    // The numbers are those of linux/magic.h.
    match rustix::fs::statfs(folder).map(|about| about.f_type) {
        Ok(0x0102_1994) => "tmpfs".to_owned(),
        Ok(0xef53) => "ext4".to_owned(),
        Ok(0x5846_5342) => "xfs".to_owned(),
        Ok(0x9123_683e) => "btrfs".to_owned(),
        Ok(0x794c_7630) => "overlayfs".to_owned(),
        Ok(0x2fc1_2fc1) => "zfs".to_owned(),
        Ok(other) => format!("file system {other:#x}"),
        Err(_) => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found() {
        let text = "processor\t: 0\nmodel name\t: A CPU @ 2:1\nmodel name\t: B\n";
        assert_eq!(field(text, "model name").as_deref(), Some("A CPU @ 2:1"));
        assert_eq!(field(text, "model"), None);
    }

    #[test]
    fn this_machine_has_cores_and_memory() {
        let machine = Machine::look();
        assert!(machine.cores > 0 && machine.memory_mib > 0, "{machine:?}");
    }
}
