//! On what the figures were taken.

use std::fs;

use serde::{Deserialize, Serialize};
use testbed::Checkout;

use crate::stats::{as_float, round3};

/// How this program was built. A compiler does not tell the name of a profile, and `cargo xtask compare`
/// does.
pub(crate) const PROFILE: &str = match option_env!("LOCKWELL_COMPARE_PROFILE") {
    _ if cfg!(debug_assertions) => "debug",
    Some(profile) => profile,
    None => "release",
};

/// The machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// Its name.
    pub(crate) host: String,
    pub(crate) cores: usize,
    pub(crate) cpu: String,
    pub(crate) kernel: String,
    pub(crate) memory_mib: u64,
}

/// The program that took the figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Build {
    pub(crate) version: String,
    /// "release", "quick", which was not optimised when it was linked, or "debug", whose figures mean
    /// nothing.
    pub(crate) profile: String,
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
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            cores: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            cpu: field("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            kernel: format!("{} {}", std::env::consts::OS, kernel.trim()),
            memory_mib: memory.trim_end_matches(" kB").parse::<u64>().unwrap_or_default() / 1024,
        }
    }
}

impl Build {
    pub(crate) fn look() -> Self {
        let checkout = Checkout::look();
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            profile: PROFILE.to_owned(),
            git_commit: checkout.commit,
            git_dirty: checkout.has_changes,
        }
    }
}

/// How many processes ran or wanted to run, on the average of the last minute. Zero where nobody knows.
pub(crate) fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0.0)
}

/// What all cores have spent since the machine was started, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticks {
    all: u64,
    idle: u64,
}

impl Ticks {
    pub(crate) fn now() -> Self {
        Self::of(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// The line `cpu USER NICE SYSTEM IDLE IOWAIT ..`. The time of guests is in that of the users.
    fn of(text: &str) -> Self {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu ")).unwrap_or_default();
        let ticks: Vec<u64> = line.split_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
        Self { all: ticks.iter().sum(), idle: ticks.iter().skip(3).take(2).sum() }
    }

    /// The share that was spent on anything since then, from 0 to 1.
    pub(crate) fn busy_since(self, before: Self) -> f64 {
        let (all, idle) = (self.all.saturating_sub(before.all), self.idle.saturating_sub(before.idle));
        if all == 0 { 0.0 } else { round3(as_float(all.saturating_sub(idle)) / as_float(all)) }
    }
}

/// The arguments of a command, without the passwords in addresses.
pub(crate) fn arguments(words: impl Iterator<Item = String>) -> Vec<String> {
    let shown = |word: String| {
        let (option, url) = match word.split_once('=') {
            Some((option, rest)) if option.starts_with("--") => (format!("{option}="), rest),
            _ => (String::new(), &*word),
        };
        match url.parse::<lockwell::backend::ServerUrl>() {
            Ok(url) => format!("{option}{url}"),
            // Nothing that looks like an address is shown as it is.
            Err(_) if url.contains("://") => format!("{option}?"),
            Err(_) => word,
        }
    };
    words.map(shown).collect()
}

/// The first value of `name` in lines of the form `name : value`.
fn field(text: &str, name: &str) -> Option<String> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.into_iter().find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
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
    fn passwords_are_not_kept() {
        let words = [
            "--url",
            "postgres://ann:hunter2@h/db",
            "--url=redis://:hunter2@h",
            "--quick",
            "redis://:hunter2@a b",
        ];
        let kept = arguments(words.map(str::to_owned).into_iter());
        assert!(!format!("{kept:?}").contains("hunter2"), "{kept:?}");
        assert!(kept[1].starts_with("postgres://ann") && kept[2].starts_with("--url=redis://"), "{kept:?}");
        assert_eq!((&*kept[0], &*kept[3]), ("--url", "--quick"));
    }

    #[test]
    fn the_busy_share_is_that_of_the_ticks() {
        let before = Ticks::of("cpu  10 0 10 70 10 0 0 0 5 0\ncpu0 1 1 1 1\n");
        assert_eq!(before, Ticks { all: 100, idle: 80 });
        let after = Ticks::of("cpu  40 0 20 120 20 0 0 0 5 0\n");
        assert!((after.busy_since(before) - 0.4).abs() < 1e-9);
        assert!(Ticks::of("").busy_since(before).abs() < 1e-9);
    }

    #[test]
    fn this_machine_has_cores_and_memory() {
        let machine = Machine::look();
        assert!(machine.cores > 0 && machine.memory_mib > 0, "{machine:?}");
    }
}
